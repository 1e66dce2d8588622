"""The method: what was repeated and tested, what the instruments cost, what could not be decided."""

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from trainlab.analysis.cost import noise_ratio
from trainlab.analysis.document import Block, Entry, Paragraph, Section, Table
from trainlab.analysis.evidence import Evidence
from trainlab.analysis.finding import Finding, Kind, RunData, confounds_text, num_seeds
from trainlab.analysis.measurement import MODES, Measurement
from trainlab.analysis.metrics import MetricTable, num_test_samples
from trainlab.analysis.tables import Field, bullets, count, name, table_of, value
from trainlab.record.cost_record import CostRecord
from trainlab.record.study_record import Environment
from trainlab.spec import Study
from trainlab.stats.means import FEWEST_FOR_INTERVAL, median_interval
from trainlab.words import Words
from trainlab.words.numbers import figure, is_share, metric_value


@dataclass(frozen=True)
class Overhead:
    """How much longer a watched step takes than a bare one in the same process, as a share of it."""

    instrument: str
    """`phases`, `layers`, `operators` or `probes`."""
    added: float
    low: float
    high: float
    """95% interval of the median over pairs; the whole range where there are fewer than six."""
    num_pairs: int

    def interval_text(self, words: Words) -> str:
        """The interval, or the range where there are too few pairs for one."""
        key = "added_range" if self.num_pairs < FEWEST_FOR_INTERVAL else "added_interval"
        return words(key, low=_signed(self.low), high=_signed(self.high))


def overheads(measurement: Measurement) -> list[Overhead]:
    """One per instrument that watched this cell and has bare steps to compare with."""
    ratios = {"phases": [r for record in measurement.costs for r in round_ratios(record)]}
    layers, operators = measurement.layers, measurement.operators
    probes = measurement.probe_price
    for instrument, pairs in {
        "layers": layers and zip(layers.bare_ms, layers.watched_ms, strict=False),
        "operators": operators and zip(operators.bare_ms, operators.profiled_ms, strict=False),
        "probes": probes and zip(probes.bare_ms, probes.watched_ms, strict=False),
    }.items():
        ratios[instrument] = [watched / bare for bare, watched in pairs or ()]
    found = []
    for instrument, values in ratios.items():
        if values:
            added, low, high = (end - 1 for end in median_interval(values))
            found.append(Overhead(instrument, added, low, high, len(values)))
    return found


def round_ratios(record: CostRecord) -> list[float]:
    """Marked over bare, per turn that has both: a machine that drifts hits both alike."""
    marked_ms = [sum(phases) for phases in zip(*record.phases_ms.values(), strict=True)]
    if record.turns:
        numbers = [turn.num_marked for turn in record.turns]
        turns = list(zip(numbers, record.bare_turns_ms(), strict=True))
    else:  # an older record: rounds of one length
        size = record.round_steps
        starts = range(0, len(marked_ms), size) if marked_ms else ()
        turns = [(size, record.step_ms[start : start + size]) for start in starts]
    ratios, start = [], 0
    for number, bare_ms in turns:
        if number:
            marked = statistics.median(marked_ms[start : start + number])
            ratios.append(marked / statistics.median(bare_ms))
        start += number
    return ratios


def _signed(share: float) -> str:
    return f"{100 * share:+.1f}%"


def overhead_table(measured: Sequence[Measurement], words: Words) -> Table | None:
    """What each instrument adds to a step; None where nothing was compared."""
    fields: list[Field[tuple[Measurement, Overhead]]] = [
        name(words("instrument"), lambda row: words.named("instrument", row[1].instrument)),
        name(words("mode"), lambda row: words.mode(row[0].summary.mode)),
        value(words("added"), lambda row: Entry(_signed(row[1].added), row[1].added)),
        value(words("interval"), lambda row: Entry(row[1].interval_text(words))),
        value(words("pairs"), lambda row: count(row[1].num_pairs)),
    ]
    rows = [(m, overhead) for m in measured for overhead in overheads(m)]
    if not rows:
        return None
    caption = words("overhead_table", cell=measured[0].trial.cell)
    return table_of(caption, fields, rows, words("overhead_note"))


def method_section(data: RunData, words: Words) -> Section:
    """What was warmed up, repeated and tested; what the instruments cost; what could not be decided."""
    evidence, study = data.evidence, data.evidence.study
    texts: list[str] = []
    if study.learn and evidence.learned:
        texts.append(_learn_text(study, words))
    if evidence.measured:
        texts += _cost_texts(data, words)
    tests = dict.fromkeys(finding.test for finding in data.findings if finding.test)
    texts += [words(f"test_{test}") for test in tests]
    if confounds := confounds_text(data.findings, words):
        texts.append(words("confounds", confounds=confounds))
    elif len(study.all_cells) > 1 and evidence.is_complete:
        texts.append(words("no_confounds"))
    blocks: list[Block] = [Paragraph(text) for text in texts]
    if evidence.measured:
        first = [m for mode in MODES for m in evidence.measured_in(mode)[:1]]
        blocks += filter(None, [overhead_table(first, words)])
    if undecided := data.findings_in("method"):
        blocks.append(bullets(undecided, words))
    elif evidence.is_complete and evidence.diagnosis is None and (evidence.measured or study.cells):
        blocks.append(Paragraph(words("nothing_open")))
    return Section("method", words("method"), tuple(blocks), is_folded=True)


def _learn_text(study: Study, words: Words) -> str:
    """What was repeated, and whether cells have seeds in common."""
    number = len(study.seeds)
    if study.script is not None and study.script.from_inside:
        return words("method_inside")
    if study.script is not None:
        option = study.script.seed_argument
        key = "method_script_seed" if option else "method_script"
        key = key if study.script.is_seeded else "method_script_alone"
        return words(key, seeds=num_seeds(number, words), option=option)
    parts = {cell.settings.seed_parts for cell in study.all_cells}
    if len(parts) > 1:
        return words("method_learn_parts", seeds=number)
    (part,) = parts
    if part == "all":
        return words("method_learn", seeds=number)
    return words("method_learn_part", seeds=number, part_name=words.named("part", part))


def _cost_texts(data: RunData, words: Words) -> Iterator[str]:
    summaries = [measurement.summary for measurement in data.evidence.measured]
    yield words(
        "method_cost",
        processes=_range((s.num_processes for s in summaries), words),
        warmups=_range((len(c.warmup_ms) for m in data.evidence.measured for c in m.costs), words),
        steps=_range((s.num_steps for s in summaries), words),
    )
    tokens = [one.token for one in data.evidence.trials if one.watch == "steps" and one.token]
    if len(set(tokens)) < len(tokens):
        yield words("method_together")
    if turns := sum(summary.num_turns for summary in summaries):
        aside = sum(summary.num_set_aside for summary in summaries)
        yield words("method_turns", turns=f"{turns:,}", aside=f"{aside:,}")
        yield words("method_times")
    # What else ran meanwhile, as it was recorded: nobody measures alone because it was asked for.
    loads = [cost.load for measurement in data.evidence.measured for cost in measurement.costs]
    others = [load.others_cores for load in loads]
    yield words(
        "method_load",
        others=f"{statistics.fmean(others):.2f}",
        most=f"{max(others):.2f}",
        stolen=f"{statistics.fmean(load.stolen_cores for load in loads):.2f}",
    )
    for mode in MODES:
        if (ratio := noise_ratio(data.evidence, mode)) is not None:
            twice = (m for m in data.evidence.measured if m.trial.again and m.summary.mode == mode)
            cells = words.listed(dict.fromkeys(m.trial.cell for m in twice))
            yield words("method_noise", step=words.step(mode), cells=cells, ratio=figure(ratio, 4))


def _range(values: Iterable[int], words: Words) -> str:
    numbers = list(values)
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else words("range", low=f"{low:,}", high=f"{high:,}")


TEST_SET = Kind(
    "test_set",
    "method",
    phrases=lambda found, words: {
        "value_text": metric_value(found.subject, found.value),
        "error_text": found.difference_text(words, found.half_width).lstrip("+"),
        "difference_text": found.difference_text(words, found.half_width_difference).lstrip("+"),
    },
)
"""How well an accuracy, and the difference of two, is known from the number of test samples alone."""


def sampling_findings(evidence: Evidence, table: MetricTable) -> Iterator[Finding]:
    """For the best of the cells, where the metric is an accuracy."""
    num_samples = num_test_samples(evidence)
    if not is_share(table.metric) or not num_samples or not table.cells:
        return
    value = float(np.nanmean(table.values, axis=1).max())
    if not 0 <= value <= 1:
        return  # no share, whatever its name says
    # Two right and two wrong more: without them nothing would be left to chance at 100%.
    share = (value * num_samples + 2) / (num_samples + 4)
    # Both test sets are drawn: this one and the other.
    half_width = 1.96 * math.sqrt(2 * share * (1 - share) / num_samples)
    yield TEST_SET(
        subject=table.metric,
        cells=(),
        num_samples=num_samples,
        value=value,
        half_width=half_width,
        half_width_difference=math.sqrt(2) * half_width,
        n=num_samples,
    )


# The machines, the software and the data of a run.


def environment_section(data: RunData, words: Words) -> Section:
    """A table for every machine."""
    machines = data.evidence.environments.values()
    tables = (environment_table(machine, words, data.evidence) for machine in machines)
    return Section("environment", words("environment"), tuple(tables))


def environment_table(
    environment: Environment, words: Words, evidence: Evidence | None = None
) -> Table:
    """One row per fact; also the data that a run used, where its evidence is given."""
    rows = environment_rows(environment, words)
    for data in dict.fromkeys(trial.data for trial in (evidence.trials if evidence else ())):
        if data is not None:
            numbers = [f"{number:,}" for number in (data.num_train, data.num_test)]
            if data.num_val:
                numbers.append(words("validation_samples", number=f"{data.num_val:,}"))
            source = words.named("source", data.source)
            rows.append((words("env_data"), f"{data.name}: {' + '.join(numbers)} ({source})"))
    fields: list[Field[tuple[str, str]]] = [
        name(words("what"), lambda row: row[0]),
        name(words("value"), lambda row: row[1]),
    ]
    note = words("environment_note") if evidence else ""
    caption = words("environment_table" if evidence else "environment_now")
    return table_of(caption, fields, dict.fromkeys(rows), note)


def environment_rows(env: Environment, words: Words) -> list[tuple[str, str]]:
    """Machine and software, as name and value; several GPUs have a row each."""
    usable = words("vcpus", usable=env.num_vcpus_usable, number=env.num_vcpus)
    rows = [
        (words("env_cpu"), f"{env.cpu}, {usable}"),
        (words("env_memory"), f"{env.memory_gib} GiB"),
    ]
    for gpu in env.gpus:
        memory = "" if gpu.memory_gib is None else f", {gpu.memory_gib:.0f} GiB"
        rows.append((words("env_gpu"), gpu.name + memory))
    if not env.gpus:
        rows.append((words("env_gpu"), words("env_none")))
    packages = ", ".join(f"{package} {version}" for package, version in env.packages.items())
    torch = f", PyTorch {env.packages['torch']}" if "torch" in env.packages else ""
    cudnn = f", cuDNN {env.cudnn}" if env.cudnn else ""
    driver = f", {words('env_driver')} {env.driver}" if env.driver else ""
    rows += [
        (words("env_os"), f"{env.os}, {env.kernel}"),
        ("Python", env.python + torch),
        ("CUDA", f"{env.cuda}{cudnn}{driver}" if env.cuda else words("env_none")),
    ]
    if env.torch_threads is not None:
        rows.append((words("env_threads"), str(env.torch_threads)))
    rows.append((words("env_packages"), packages))
    if env.variables:
        variables = ", ".join(f"{variable}={text}" for variable, text in env.variables.items())
        rows.append((words("env_variables"), variables))
    if env.git_commit:
        key = {True: "env_dirty", None: "env_dirty_unknown"}.get(env.git_dirty)
        dirty = f" ({words(key)})" if key else ""
        rows.append((words("env_commit"), env.git_commit[:12] + dirty))
    return rows
