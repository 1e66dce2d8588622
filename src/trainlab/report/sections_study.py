"""What the study is about and how it was done: the answer, the machine, the method, how to repeat it."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from trainlab.analyse.cost_findings import MODES, floor_of
from trainlab.analyse.finding import Finding
from trainlab.analyse.ledger import ledger
from trainlab.analyse.measurement import Measurement
from trainlab.record.environment import Environment
from trainlab.record.schema import TrialRecord
from trainlab.report.answer import main_findings
from trainlab.report.document import (
    Block,
    Entry,
    Listing,
    Notice,
    Paragraph,
    Row,
    Section,
    Table,
    table,
)
from trainlab.report.entries import count, points, text
from trainlab.report.material import Material
from trainlab.report.numbers import percent
from trainlab.report.study_file import study_file
from trainlab.report.words import Words

MOST_TRIALS = 50
"""Of those that did not end well; the files have them all."""
LONGEST_ERROR = 2000


def notices(material: Material, words: Words) -> Iterator[Notice]:
    """What a reader must know before anything else."""
    states = [trial.state for trial in material.evidence.trials]
    unended = states.count("pending") + states.count("running")
    if unended:
        yield Notice(words("notice_unfinished", some=unended, all=len(states)), "failure")
    if failed := states.count("failed"):
        yield Notice(words("notice_failed", some=failed, all=len(states)), "failure")
    if stopped := states.count("interrupted"):
        yield Notice(words("notice_interrupted", some=stopped, all=len(states)), "failure")
    seen: dict[str, None] = {}
    for trial in material.evidence.trials:
        data = trial.data
        if data is not None and data.is_subset:
            told = words(
                "notice_subset",
                name=data.name,
                train=f"{data.num_train:,}",
                test=f"{data.num_test:,}",
            )
            seen[words.sentences(told, data.note) if data.note else told] = None
    yield from (Notice(told) for told in seen)


def answer_section(material: Material, words: Words) -> Section:
    """The question, and the main findings in at most five lines."""
    study = material.evidence.study
    blocks: list[Block] = []
    if not study.title:
        blocks.append(Paragraph(words("no_question", workload=study.workload)))
    found = main_findings(material.findings)
    blocks.append(points(found, words) if found else Paragraph(words("no_findings")))
    return Section("answer", words("answer"), tuple(blocks))


def trouble_section(material: Material, words: Words) -> Section | None:
    """Trials that did not end well, as what they are; None where all did."""
    found = [one for one in material.evidence.trials if one.state != "done"]
    noted = [one for one in material.evidence.trials if one.state == "done" and one.notes]
    if not found and not noted:
        return None
    rows = [_trouble_row(trial, words) for trial in (*found, *noted)]
    headings = (
        (words("trial"), False),
        (words("state"), False),
        (words("updates"), True),
        (words("what_happened"), False),
    )
    blocks: list[Block] = [
        table(
            words("trouble_table"),
            headings,
            rows,
            is_sortable=True,
            num_shown=MOST_TRIALS if len(rows) > MOST_TRIALS else None,
            is_code=True,
        )
    ]
    errors = {t.error.traceback: t for t in found if t.error is not None and t.error.traceback}
    blocks += [
        Listing(words("traceback", trial=trial.id), _cut(told)) for told, trial in errors.items()
    ][:3]
    return Section("trouble", words("trouble"), tuple(blocks))


def _cut(told: str) -> str:
    """The end of a long error: what failed is told there."""
    return told if len(told) <= LONGEST_ERROR else "…" + told[-LONGEST_ERROR:]


def _trouble_row(trial: TrialRecord, words: Words) -> Row:
    told = list(trial.notes)
    if trial.error is not None:
        told.append(f"{trial.error.kind}: {trial.error.message}"[:LONGEST_ERROR])
    if trial.diverged_at_step is not None:
        told.append(words("diverged_at", step=f"{trial.diverged_at_step:,}"))
    return Row(
        (
            text(trial.id),
            text(words(f"state_{trial.state}")),
            count(trial.steps_done),
            text(words("list_semicolon").join(told)),
        ),
        cell=trial.cell,
    )


def environment_section(material: Material, words: Words) -> Section:
    """The machine and software everything ran on."""
    return Section("environment", words("environment"), (environment_table(material, words),))


def environment_table(material: Material, words: Words) -> Table:
    """One row per fact."""
    rows = environment_rows(material.evidence.environment, words)
    data = {
        f"{d.name}: {d.num_train:,} + {d.num_test:,} ({d.source})": None
        for trial in material.evidence.trials
        if (d := trial.data) is not None
    }
    rows += [(words("env_data"), told) for told in data]
    return table(
        words("environment_table"),
        ((words("what"), False), (words("value"), False)),
        [Row((text(name), text(value))) for name, value in rows],
        note=words("environment_note"),
    )


def environment_rows(environment: Environment, words: Words) -> list[tuple[str, str]]:
    """What explains a number, as name and value."""
    usable = words("vcpus", usable=environment.num_vcpus_usable, number=environment.num_vcpus)
    rows = [
        (words("env_cpu"), f"{environment.cpu}, {usable}"),
        (words("env_memory"), f"{environment.memory_gib} GiB"),
    ]
    for gpu in environment.gpus:
        memory = "" if gpu.memory_gib is None else f", {gpu.memory_gib:.0f} GiB"
        rows.append((words("env_gpu"), gpu.name + memory))
    rows.append((words("env_os"), f"{environment.os}, {environment.kernel}"))
    rows.append(("Python", environment.python))
    rows.append(
        (words("env_packages"), ", ".join(f"{n} {v}" for n, v in environment.packages.items()))
    )
    if environment.cuda:
        cudnn = f", cuDNN {environment.cudnn}" if environment.cudnn else ""
        driver = f", {words('env_driver')} {environment.driver}" if environment.driver else ""
        rows.append(("CUDA", f"{environment.cuda}{cudnn}{driver}"))
    if environment.torch_threads is not None:
        rows.append((words("env_threads"), str(environment.torch_threads)))
    if environment.variables:
        told = ", ".join(f"{n}={v}" for n, v in environment.variables.items())
        rows.append((words("env_variables"), told))
    if environment.git_commit:
        dirty = f" ({words('env_dirty')})" if environment.git_dirty else ""
        rows.append((words("env_commit"), environment.git_commit[:12] + dirty))
    return rows


def method_section(material: Material, words: Words) -> Section:
    """What was warmed up, repeated and tested; what it cost to watch; what cannot be told."""
    evidence, study = material.evidence, material.evidence.study
    blocks: list[Block] = []
    if study.learn and evidence.learned:
        blocks.append(Paragraph(words("method_learn", seeds=len(study.seeds))))
    if evidence.measured:
        blocks += _cost_method(material, words)
    tests = dict.fromkeys(one.test for one in material.findings if one.test)
    blocks += [Paragraph(words.test(test)) for test in tests]
    blocks.append(Paragraph(_confounds_told(material.findings, words)))
    if evidence.measured:
        blocks.append(ledger_table(material, words))
        shaky = warning_table(material, words)
        if shaky is not None:
            blocks.append(shaky)
    open_ones = [one for one in material.findings if one.kind in ("unstable", "undecided")]
    blocks.append(points(open_ones, words) if open_ones else Paragraph(words("nothing_open")))
    return Section("method", words("method"), tuple(blocks))


def _cost_method(material: Material, words: Words) -> Iterator[Block]:
    found = material.evidence.measured
    summaries = [one.summary for one in found]
    yield Paragraph(
        words(
            "method_cost",
            processes=_range((s.num_processes for s in summaries), words),
            warmups=_range((s.num_warmup_steps for s in summaries), words),
            steps=_range((s.num_steps for s in summaries), words),
        )
    )
    for mode in MODES:
        floor = floor_of(material.evidence, mode)
        if floor is not None:
            yield Paragraph(
                words(
                    "method_floor",
                    step=words(f"step_{mode}"),
                    cell=material.evidence.cells[0].id,
                    floor=percent(floor),
                )
            )


def _range(values: Iterable[int], words: Words) -> str:
    known = sorted(set(values))
    low, high = known[0], known[-1]
    return f"{low:,}" if low == high else words("range", low=f"{low:,}", high=f"{high:,}")


def _confounds_told(found: tuple[Finding, ...], words: Words) -> str:
    confounds = dict.fromkeys(told for one in found for told in one.confounds)
    if not confounds:
        return words("no_confounds")
    return words("confounds", told=words("list_semicolon").join(confounds))


def ledger_table(material: Material, words: Words) -> Table:
    """What each instrument added to a step of the first cell, by mode."""
    rows = []
    for mode in MODES:
        for found in material.measured(mode)[:1]:
            for row in ledger(_with_pairs(found)):
                reach = f"{100 * row.low:+.1f} %, {100 * row.high:+.1f} %"
                entries = (
                    text(words.instrument(row.instrument)),
                    text(words(f"mode_{mode}")),
                    Entry(f"{100 * row.added:+.1f} %", row.added),
                    text(reach),
                    count(row.num_pairs),
                )
                rows.append(Row(entries))
    headings = (
        (words("instrument"), False),
        (words("mode"), False),
        (words("added"), True),
        (words("interval"), True),
        (words("pairs"), True),
    )
    cell = material.evidence.cells[0].id
    caption = words("ledger_table", cell=cell)
    return table(caption, headings, rows, note=words("ledger_note"))


def _with_pairs(found: Measurement) -> Measurement:
    """Without the instruments whose records have no bare steps to hold the watched ones against."""
    operators, layers = found.operators, found.layers
    return replace(
        found,
        operators=operators if operators and operators.bare_ms and operators.profiled_ms else None,
        layers=layers if layers and layers.bare_ms and layers.watched_ms else None,
    )


def warning_table(material: Material, words: Words) -> Table | None:
    """Every measurement that was unstable, and why."""
    rows = [
        Row(
            (
                text(one.trial.cell + (f" ({words('again')})" if one.trial.again else "")),
                text(words(f"mode_{one.summary.mode}")),
                text(words("list_semicolon").join(map(words.warning, one.summary.warnings))),
            ),
            cell=one.trial.cell,
        )
        for one in material.evidence.measured
        if one.summary.warnings
    ]
    if not rows:
        return None
    headings = ((words("cell"), False), (words("mode"), False), (words("why"), False))
    shown = MOST_TRIALS if len(rows) > MOST_TRIALS else None
    return table(words("warning_table"), headings, rows, num_shown=shown, is_code=True)


def repeat_section(material: Material, words: Words) -> Section:
    """The command as given, the study as a file, and the versions."""
    packages = material.evidence.environment.packages
    pins = "\n".join(
        f"{name}=={version.partition('+')[0]}"
        for name, version in packages.items()
        if name != "trainlab"
    )
    return Section(
        "repeat",
        words("repeat"),
        (
            Paragraph(words("repeat_intro", version=material.record.trainlab)),
            Listing(words("repeat_command"), material.record.command, "sh"),
            Listing(words("repeat_file"), study_file(material.evidence.study), "toml"),
            Listing(words("repeat_versions"), pins),
        ),
    )


def files_section(material: Material, words: Words) -> Section:
    """Where the raw figures are."""
    names = {
        "study.json": "file_study",
        "environment.json": "file_environment",
        "results.csv": "file_results",
        "results.parquet": "file_parquet",
        "epochs.csv": "file_epochs",
        "trials/*/trial.json": "file_trial",
        "trials/*/curve.jsonl": "file_curve",
        "trials/*/cost.json": "file_cost",
        "trials/*/operators.json": "file_operators",
        "trials/*/layers.json": "file_layers",
        "trials/*/trace.json.gz": "file_trace",
        "trials/*/tensorboard": "file_tensorboard",
    }
    has = {
        "results.csv": "results.csv" in material.files,
        "results.parquet": "results.parquet" in material.files,
        "epochs.csv": "epochs.csv" in material.files,
        "trials/*/curve.jsonl": bool(material.evidence.learned),
        "trials/*/cost.json": bool(material.evidence.measured),
        "trials/*/operators.json": any(m.operators for m in material.evidence.measured),
        "trials/*/layers.json": any(m.layers for m in material.evidence.measured),
        "trials/*/trace.json.gz": material.num_traces > 0,
        "trials/*/tensorboard": material.has_tensorboard,
    }
    rows = [
        Row((text(name), text(words(key)))) for name, key in names.items() if has.get(name, True)
    ]
    headings = ((words("file"), False), (words("holds"), False))
    found = table(words("files_table"), headings, rows, is_code=True)
    return Section("files", words("files"), (Paragraph(words("files_intro")), found))
