"""Several runs: two compared side by side, or runs of one study pooled where that is allowed."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trainlab import __version__
from trainlab.analysis import charts, document, factors
from trainlab.analysis.answer import size_text
from trainlab.analysis.cost import MOST_VALUES, headline, ratios_between
from trainlab.analysis.document import Document, Entry, Figure, Paragraph, Section, Table
from trainlab.analysis.evidence import (
    ENDED_WELL,
    Confound,
    Evidence,
    grouped,
    pooling_problems,
    run_confounds,
    trial_confounds,
)
from trainlab.analysis.finding import RunData
from trainlab.analysis.measurement import MODES, Measurement
from trainlab.analysis.metrics import compared_metrics, compared_values
from trainlab.analysis.overview import notices
from trainlab.analysis.tables import name, table_of, value
from trainlab.errors import RecordError
from trainlab.record.trial_record import TrialRecord
from trainlab.spec.facts import AS_OBJECT, is_script
from trainlab.stats.means import Interval
from trainlab.stats.verdict import Verdict
from trainlab.words import Words
from trainlab.words.numbers import figure


@dataclass(frozen=True)
class CellComparison:
    """One figure of one cell in both runs; `b` is the second run."""

    cell: str
    subject: str
    """A metric, or `train/sample_us`, `inference/sample_us`."""
    a: float
    b: float
    change: float
    """B over A for a cost, B minus A for a metric."""
    interval: Interval | None
    """The 95% interval of the change."""
    verdict: Verdict
    measured: tuple[Measurement, ...] = ()
    """Of a cost, in both runs."""

    @property
    def is_cost(self) -> bool:
        """Whether it is a cost, whose change is a ratio; otherwise a metric."""
        return self.subject.endswith("/sample_us")


@dataclass(frozen=True)
class SideBySide:
    """Two runs of the same workload: the cells that are in both, compared."""

    learned: tuple[CellComparison, ...]
    costs: tuple[CellComparison, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    confounds: tuple[Confound, ...]
    """What differs between the cells, the machines and the software: the answer to "why"."""


CellPair = tuple[str, str, str]
"""The same cell in both runs: a name for it, and its id in each."""
TrialPair = tuple[TrialRecord, TrialRecord]
"""The same trial in both runs."""


def labels_of(runs: Sequence[Evidence], paths: Sequence[Path]) -> tuple[str, ...]:
    """A name for each run that no other has: its study's, else its folder's, else its path."""
    candidates = [run.name for run in runs], [path.name for path in paths], [*map(str, paths)]
    return tuple(next((c for c in candidates if len(set(c)) == len(c)), candidates[-1]))


def side_by_side(first: Evidence, second: Evidence) -> SideBySide:
    """RecordError where the runs have no setting in common or are of different workloads."""
    if first.study.workload != second.study.workload:
        raise RecordError(
            f"compare: {first.name} is about {first.study.workload}, {second.name} about "
            f"{second.study.workload}; compare runs of one workload"
        )
    ids_a, ids_b = ([cell.id for cell in run.cells] for run in (first, second))
    pairs = _matched(ids_a, ids_b)
    if not pairs:
        raise RecordError(
            f"compare: no setting in common: {', '.join(ids_a)} against {', '.join(ids_b)}"
        )
    _, both_a, both_b = map(set, zip(*pairs, strict=True))
    return SideBySide(
        learned=tuple(_learned(first, second, pairs)),
        costs=tuple(_costs(first, second, pairs)),
        only_a=tuple(cell for cell in ids_a if cell not in both_a),
        only_b=tuple(cell for cell in ids_b if cell not in both_b),
        confounds=(
            *_cell_confounds(first, second, pairs),
            *run_confounds(first.environment, second.environment),
        ),
    )


def pooled(runs: Sequence[Evidence], paths: Sequence[Path] = ()) -> Evidence:
    """Runs of one study with different seeds as one; RecordError says why they must stay apart."""
    first = runs[0]
    names = labels_of(runs, paths) if paths else tuple(run.name for run in runs)
    learned = {cell: dict(seeds) for cell, seeds in first.learned.items()}
    for other, label in zip(runs[1:], names[1:], strict=True):
        git_matters = not _same_builtin_code(first, other)
        problems = list(pooling_problems(first.environment, other.environment, git_matters))
        if other.study.workload != first.study.workload:
            problems.append(f"{first.study.workload} against {other.study.workload}")
        if other.study.all_cells != first.study.all_cells:
            problems.append("their cells or settings differ")
        else:
            same = [(cell.id,) * 3 for cell in first.cells]
            problems += map(str, _cell_confounds(first, other, same))
        for cell, seeds in other.learned.items():
            if in_both := learned.get(cell, {}).keys() & seeds.keys():
                problems.append(f"seed {min(in_both)} of {cell} is in both")
                break
        if problems:
            raise RecordError(
                f"{names[0]} and {label} must not be pooled: {'; '.join(problems)}; "
                "lay them side by side with `trainlab compare`"
            )
        for cell, seeds in other.learned.items():
            learned.setdefault(cell, {}).update(seeds)
    # Cost is not pooled: a machine's luck on one day is not that of another.
    added = (trial for run in runs[1:] for trial in run.trials if trial.kind == "learn")
    return replace(
        first,
        trials=(*first.trials, *added),
        learned=learned,
        damaged=tuple(damage for run in runs for damage in run.damaged),
        probed=tuple(probed for run in runs for probed in run.probed),
    )


def _same_builtin_code(first: Evidence, second: Evidence) -> bool:
    """Whether both ran one of our workloads with the same code: the git commit has then no part in it."""
    codes = {
        trial.resolved.get("code")
        for run in (first, second)
        for trial in run.trials
        if trial.state in ENDED_WELL
    }
    workload = first.study.workload
    is_own = ":" in workload or workload.endswith(AS_OBJECT) or is_script(workload)
    return not is_own and len(codes) == 1 and None not in codes


def _matched(ids_a: Sequence[str], ids_b: Sequence[str]) -> list[CellPair]:
    """Cells that are the same: by id, or if they differ by device only, as on another machine."""

    def without_device(cell: str) -> str:
        parts = [part for part in cell.split(",") if not part.startswith("device=")]
        return ",".join(parts) or "base"

    pairs = []
    for a in ids_a:
        for b in [a] if a in ids_b else [b for b in ids_b if b not in ids_a]:
            if (shared := without_device(a)) == without_device(b):
                name = b if a == shared else a if b in (a, shared) else shared
                pairs.append((name, a, b))
    return pairs


def _cell_confounds(
    first: Evidence, second: Evidence, pairs: list[CellPair]
) -> tuple[Confound, ...]:
    """Settings, what they became, and data: whatever differs between trials of the same cell."""
    trials = trial_pairs(first, second, ((a, b) for _, a, b in pairs))
    found = (one for a, b in trials for one in trial_confounds(a, b, frozenset()))
    return tuple({str(one): one for one in found}.values())


def trial_pairs(
    first: Evidence, second: Evidence, cells: Iterable[tuple[str, str]], mode: str | None = None
) -> Iterator[TrialPair]:
    """Of every cell, of each kind of trial, one that is done in both runs; cost in this mode, if given."""

    def done(evidence: Evidence, cell: str) -> dict[str, TrialRecord]:
        trials = [one.trial for one in evidence.learned.get(cell, {}).values()]
        measured = (evidence.measurement(cell, one) for one in ([mode] if mode else MODES))
        trials += [one.trial for one in measured if one is not None]
        return {one.kind: one for one in reversed(trials) if one.state == "done"}

    for a, b in cells:
        done_a, done_b = done(first, a), done(second, b)
        yield from (
            (done_a[kind], done_b[kind])
            for kind in ("cost", "learn")
            if kind in done_a.keys() & done_b
        )


def _learned(first: Evidence, second: Evidence, pairs: list[CellPair]) -> Iterator[CellComparison]:
    # A cell of the one run and the same cell of the other are two cells here.
    named = {
        (f"A/{a}", f"B/{b}"): (cell, a, b)
        for cell, a, b in pairs
        if first.learned.get(a) and second.learned.get(b)
    }
    for metric in compared_metrics(first):
        values = {name: first.values(a, metric) for (name, _), (_, a, _) in named.items()}
        values |= {name: second.values(b, metric) for (_, name), (_, _, b) in named.items()}
        found = compared_values(first, metric, values, [*named])
        for (cell, _, _), one in zip(named.values(), found, strict=True):
            if one.mean_a is not None and one.mean_b is not None:
                ends = one.mean_a, one.mean_b, one.mean_b - one.mean_a
                yield CellComparison(cell, metric, *ends, one.interval, one.verdict)


def _costs(first: Evidence, second: Evidence, pairs: list[CellPair]) -> Iterator[CellComparison]:
    for mode in MODES:
        measured = [
            (cell, one, other)
            for cell, a, b in pairs
            if (one := first.measurement(a, mode)) and (other := second.measurement(b, mode))
        ]
        comparisons = ratios_between(first, second, mode, [(a, b) for _, a, b in measured])
        for (cell, a, b), found in zip(measured, comparisons, strict=True):
            is_equivalent = found.verdict == "equivalent"
            yield CellComparison(
                cell,
                f"{mode}/sample_us",
                a.summary.sample_us.value,
                b.summary.sample_us.value,
                found.ratio.value,
                found.equivalence if is_equivalent else found.ratio.interval,
                found.verdict,
                (a, b),
            )


# Two runs beside each other, as tables; the first is A, the second B.

MANY_DIFFERENCES = 30


def beside_table(
    caption: str, pairs: Sequence[CellComparison], words: Words, note: str = ""
) -> Table:
    """One figure of one cell per row, in both runs."""

    def entry(place: int) -> Callable[[CellComparison], Entry]:
        return lambda one: factors.compared_entries(
            *(one.subject, (one.a, one.b), one.change, one.interval, one.verdict, words),
            is_ratio=one.is_cost,
        )[place]

    kinds = {one.is_cost for one in pairs}
    key = "compare_b_over_a" if kinds == {True} else "compare_b_less_a"
    headings = ("A", "B", words(key if len(kinds) == 1 else "compare_b_against_a"))
    return table_of(
        caption,
        [
            # A gap after a comma, where a narrow column may break.
            name(words("cell"), lambda pair: pair.cell.replace(",", ", ")),
            name(words("figure"), lambda pair: figure_text(pair, words)),
            *(value(heading, entry(place)) for place, heading in enumerate(headings)),
            value(words("interval"), entry(len(headings)), is_extra=True),
            name(words("verdict"), lambda pair: factors.verdict_entry(pair.verdict, words)),
        ],
        pairs,
        note,
        cell=lambda pair: pair.cell,
        is_sortable=True,
    )


def figure_text(pair: CellComparison, words: Words) -> str:
    """A metric, or a time in few letters: the verdict is to stand beside its numbers."""
    if not pair.is_cost:
        return words.metric(pair.subject)
    return words("beside_time", mode=words.mode(pair.subject.partition("/")[0]))


def difference_table(confounds: Sequence[Confound], words: Words) -> Table:
    """Whatever differs between the runs."""
    return table_of(
        words("compare_differs"),
        [
            name(words("what"), lambda confound: words.differing(confound.what)),
            name("A", lambda confound: words.level(confound.first)),
            name("B", lambda confound: words.level(confound.second)),
        ],
        confounds,
        num_shown=MANY_DIFFERENCES,
        is_sortable=True,
    )


# What the answer says about two runs: how much faster the second is, and what it learned.

MOST_NAMED = 4
ALIKE = 1.05
"""Two ratios that differ by less read as one number."""


def compared_sentences(compared: SideBySide, words: Words) -> Iterator[document.Statement]:
    """Training, inference, then the metric that was compared first; why there is only a range once."""
    known = ""
    for mode in MODES:
        pairs = [pair for pair in compared.costs if pair.subject == f"{mode}/sample_us"]
        if pairs:
            text, why = _speed(mode, pairs, words)
            text = words.sentences(
                text, words("only_range", why=why) if why and why != known else ""
            )
            known = why or known
            yield document.Statement(words.tidy(text), "costs")
    if compared.learned:
        metric = compared.learned[0].subject
        pairs = [pair for pair in compared.learned if pair.subject == metric]
        yield document.Statement(words.tidy(_learned_compared(metric, pairs, words)), "learning")


def _speed(mode: str, pairs: Sequence[CellComparison], words: Words) -> tuple[str, str]:
    """A sentence, and why its figures are ranges, where they are."""
    told = [pair for pair in pairs if pair.verdict == "different"]
    if not told:
        return words(f"compared_speed_{mode}_open", number=len(pairs)), ""
    known = [headline(one.change, one.interval, one.measured, words) for one in told]
    gains, why = [ends.inverse for ends, _ in known], max(why for _, why in known)
    ends, key = Interval(min(o.low for o in gains), max(o.high for o in gains)), "faster"
    if {pair.change > 1 for pair in told} == {True, False}:
        named = zip(gains[:MOST_NAMED], told, strict=False)
        parts = (words("compared_at", times=ratio, setting=pair.cell) for ratio, pair in named)
        listed = words("list_semicolon").join(parts)
        return words(f"compared_speed_{mode}_both", parts=listed), why
    if ends.low < 1:
        ends, key = ends.inverse, "slower"
    span = Interval(ends.low, ends.low) if ends.high < ALIKE * ends.low else ends
    text = words(f"compared_speed_{mode}_{key}", times=span)
    if len(told) == len(pairs):
        return text, why
    return words.sentences(text, words("compared_some", some=len(told), all=len(pairs))), why


def _learned_compared(metric: str, pairs: Sequence[CellComparison], words: Words) -> str:
    name = words.capital(words.metric(metric))
    told = [pair for pair in pairs if pair.verdict == "different"]
    if told:
        most = max(told, key=lambda pair: abs(pair.change))
        key = "compared_higher" if most.change > 0 else "compared_lower"
        size = size_text(metric, most.change, words)
        return words(key, metric=name, some=len(told), all=len(pairs), size=size, setting=most.cell)
    if all(pair.verdict == "identical" for pair in pairs):
        return words("compared_identical", metric=name)
    if all(pair.verdict in ("equivalent", "identical") for pair in pairs):
        return words("compared_same", metric=name)
    return words("compared_open", metric=name)


# Two runs side by side as a document: say, a laptop's and a server's.


def comparison_of(
    first: RunData, second: RunData, compared: SideBySide, lang: str, labels: Sequence[str] = ()
) -> Document:
    """The report of two runs, A and B; `labels` name them in the title, else their studies do."""
    words = Words(lang)
    a, b = first.evidence, second.evidence
    name_a, name_b = labels or (a.name, b.name)
    figures = _cost_figures(compared.costs, words)
    told = tuple(compared_sentences(compared, words))
    lead = document.Statements(told, is_lead=True)
    # The chart that shows the first sentence stands beside it, the others with the costs.
    answer: list[document.Block] = [lead if told else Paragraph(words("no_findings")), *figures[:1]]
    differing: list[document.Block] = [Paragraph(words("compare_nothing"))]
    if compared.confounds:
        table = difference_table(compared.confounds, words)
        differing = [Paragraph(words("compare_differs_intro")), table]
    for run, cells in (("A", compared.only_a), ("B", compared.only_b)):
        if cells:
            listed = words.listed(cells)
            differing.append(Paragraph(words("compare_only", run=run, cells=listed)))
    sections = [
        Section("differs", words("compare_differs"), tuple(differing)),
        Section("answer", words("compare_answer"), tuple(answer)),
    ]
    if compared.costs:
        caption, note = words("compare_costs_table"), words("compare_costs_note")
        table = beside_table(caption, compared.costs, words, note)
        sections.append(Section("costs", words("compare_costs"), (*figures[1:], table)))
    if compared.learned:
        learned = beside_table(words("compare_learned_table"), compared.learned, words)
        sections.append(Section("learning", words("compare_learned"), (learned,)))
    elif a.study.learn and b.study.learn and not {*a.study.seeds} & {*b.study.seeds}:
        apart = Paragraph(words("compare_no_seed"))
        sections.append(Section("learning", words("compare_learned"), (apart,)))
    names = {"first": name_a, "second": name_b}
    dates = {"date_a": a.record.created[:10], "date_b": b.record.created[:10]}
    return Document(
        title=words("compare_title", workload=a.study.workload, **names),
        subtitle=words("compare_subtitle", **names, **dates),
        lang=lang,
        made_by=words("made_by", version=__version__),
        notices=tuple(
            replace(notice, text=f"{run}: {notice.text}")
            for run, data in (("A", first), ("B", second))
            for notice in notices(data, words)
        ),
        sections=tuple(sections),
        cells=tuple(dict.fromkeys(pair.cell for pair in (*compared.costs, *compared.learned))),
    )


def _cost_figures(costs: Sequence[CellComparison], words: Words) -> list[Figure]:
    """Of each mode, A and B of every cell as two dots."""
    figures = []
    for subject, pairs in grouped(costs, lambda one: one.subject).items():
        both = ((one.cell, run, ms) for one in pairs for run, ms in (("A", one.a), ("B", one.b)))
        title, dots = factors.subject_text(subject, words), [charts.dot(*one) for one in both]
        told = words.listed(
            f"{pair.cell} A {figure(pair.a)}, B {figure(pair.b)}" for pair in pairs[:MOST_VALUES]
        )
        figures.append(
            Figure(
                id=document.figure_id("beside", subject.replace("_", "-")),
                caption=title,
                alt=words("final_alt", metric=title, values=told),
                spec=charts.dot_chart(
                    subject.replace("/", "_"), title, dots, words, mode_title="run"
                ),
            )
        )
    return figures
