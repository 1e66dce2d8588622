"""The method: what was repeated and tested, what the instruments cost, what could not be decided."""

import statistics
from collections.abc import Iterable, Iterator

from trainlab.analysis.cost import cells_twice, noise_ratio
from trainlab.analysis.document import Block, Paragraph, Section
from trainlab.analysis.finding import RunData, confounds_text, num_seeds
from trainlab.analysis.measurement import MODES
from trainlab.analysis.tables import bullets
from trainlab.report.tables.cost import overhead_table, warning_table
from trainlab.spec import Study
from trainlab.words import Words
from trainlab.words.numbers import figure


def method_section(data: RunData, words: Words) -> Section:
    """What was warmed up, repeated and tested; what the instruments cost; what could not be decided."""
    evidence, study = data.evidence, data.evidence.study
    blocks: list[Block] = []
    if study.learn and evidence.learned:
        blocks.append(Paragraph(_learn_text(study, words)))
    if evidence.measured:
        blocks += _cost_method(data, words)
    tests = dict.fromkeys(finding.test for finding in data.findings if finding.test)
    blocks += [Paragraph(words(f"test_{test}")) for test in tests]
    confounds = confounds_text(data.findings, words)
    if confounds:
        blocks.append(Paragraph(words("confounds", confounds=confounds)))
    elif len(study.all_cells) > 1:
        blocks.append(Paragraph(words("no_confounds")))
    if evidence.measured:
        first = [m for mode in MODES for m in evidence.measured_in(mode)[:1]]
        tables = overhead_table(first, words), warning_table(evidence, words)
        blocks += filter(None, tables)
    undecided = data.findings_in("method")
    if undecided:
        blocks.append(bullets(undecided, words))
    elif evidence.diagnosis is None and (evidence.measured or len(study.all_cells) > 1):
        blocks.append(Paragraph(words("nothing_open")))
    return Section("method", words("method"), tuple(blocks))


def _learn_text(study: Study, words: Words) -> str:
    """What was repeated, and whether cells have seeds in common."""
    if study.script is not None and study.script.from_inside:
        return words("method_inside")
    if study.script is not None:
        key = "method_script_seed" if study.script.seed_argument else "method_script"
        seeds = num_seeds(len(study.seeds), words)
        return words(key, seeds=seeds, option=study.script.seed_argument)
    parts = {cell.settings.seed_parts for cell in study.all_cells}
    number = len(study.seeds)
    if len(parts) > 1:
        return words("method_learn_parts", seeds=number)
    (part,) = parts
    if part == "all":
        return words("method_learn", seeds=number)
    return words("method_learn_part", seeds=number, part_name=words.named("part", part))


def _cost_method(data: RunData, words: Words) -> Iterator[Block]:
    summaries = [measurement.summary for measurement in data.evidence.measured]
    yield Paragraph(
        words(
            "method_cost",
            processes=_range((s.num_processes for s in summaries), words),
            warmups=_range((s.num_warmup_steps for s in summaries), words),
            steps=_range((s.num_steps for s in summaries), words),
        )
    )
    if turns := sum(summary.num_turns for summary in summaries):
        aside = sum(summary.num_set_aside for summary in summaries)
        yield Paragraph(words("method_turns", turns=f"{turns:,}", aside=f"{aside:,}"))
    yield Paragraph(_load_text(data, words))
    for mode in MODES:
        if (ratio := noise_ratio(data.evidence, mode)) is not None:
            cells = words.listed(cells_twice(data.evidence, mode))
            yield Paragraph(
                words("method_noise", step=words.step(mode), cells=cells, ratio=figure(ratio, 4))
            )


def _load_text(data: RunData, words: Words) -> str:
    """What else ran meanwhile, as it was recorded: nobody measures alone because it was asked for."""
    loads = [cost.load for measurement in data.evidence.measured for cost in measurement.costs]
    others = [load.others_cores for load in loads]
    return words(
        "method_load",
        others=f"{statistics.fmean(others):.2f}",
        most=f"{max(others):.2f}",
        stolen=f"{statistics.fmean(load.stolen_cores for load in loads):.2f}",
    )


def _range(values: Iterable[int], words: Words) -> str:
    numbers = list(values)
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else words("range", low=f"{low:,}", high=f"{high:,}")
