"""What the answer says about learning: the best setting, what each factor does, what failed."""

import statistics
from collections.abc import Iterator, Sequence
from itertools import combinations

from trainlab.analysis.answer.sentence import Sentence
from trainlab.analysis.evidence import ENDED_WELL, Evidence
from trainlab.analysis.finding import Finding, num_seeds
from trainlab.analysis.findings.best import BestCells
from trainlab.analysis.findings.effects import Effect, NoReset
from trainlab.analysis.findings.learning import Diverged
from trainlab.analysis.findings.patterns import Trend
from trainlab.analysis.metrics import compared_metrics
from trainlab.analysis.names import cell_name, joined, level_name, names_of, section_of
from trainlab.record.script_record import num_at_the_end
from trainlab.spec import Cell
from trainlab.words import Words
from trainlab.words.numbers import figure, is_share, metric_value

MOST_NAMED = 4
"""Settings named one by one."""
SAME = ("equivalent", "identical")
LOSS = "train/loss"


def learned_sentences(
    evidence: Evidence, findings: Sequence[Finding], words: Words
) -> Iterator[Sentence]:
    """About the metric that people ask about first."""
    metrics = compared_metrics(evidence)
    if not metrics:
        return
    metric = metrics[0]
    if len(evidence.cells) == 1:
        yield from _one_setting(evidence, metric, words)
        return
    effects = [one for one in findings if isinstance(one, Effect) and one.subject == metric]
    best = [one for one in findings if isinstance(one, BestCells) and one.subject == metric]
    by_factor: dict[str, list[Effect]] = {}
    for effect in effects:
        by_factor.setdefault(effect.factor or "", []).append(effect)
    trends = [
        one
        for one in findings
        if isinstance(one, Trend) and one.subject == metric and one.verdict == "different"
    ]
    for one in best:
        yield from _best(evidence, one, effects, trends, words)
    if len(by_factor) > 1:
        yield from _by_factor(evidence, metric, by_factor, words)


def failure_sentences(
    evidence: Evidence, findings: Sequence[Finding], words: Words
) -> Iterator[Sentence]:
    """Settings some of whose runs diverged."""
    diverged = [one for one in findings if isinstance(one, Diverged)]
    cells = {cell.id: cell for cell in evidence.cells}
    if len(cells) == 1:
        for one in diverged:
            text = words("answer_diverged_all", some=one.num_diverged, n=one.n)
            yield Sentence(text, "trouble", (one,))
        return
    for one in sorted(diverged, key=lambda one: -one.num_diverged / one.n)[:MOST_NAMED]:
        name = cell_name(cells[one.cells[0]], words)
        key = "answer_diverged" if one.num_diverged == one.n else "answer_diverged_some"
        text = words(key, setting=name, some=one.num_diverged, n=one.n)
        yield Sentence(text, "trouble", (one,))


def value_text(metric: str, value: float) -> str:
    """`95.2%`, `0.312`: one digit less than a table has."""
    return f"{100 * value:.1f}%" if is_share(metric) else metric_value(metric, value)


def size_text(metric: str, value: float, words: Words) -> str:
    """The size of a difference: `5.0 points`, `0.0123`."""
    if not is_share(metric):
        return f"{abs(value):.3g}"
    points = 100 * abs(value)
    return words("answer_points", number=f"{points:.1f}" if points >= 0.95 else f"{points:.2g}")


def _one_setting(evidence: Evidence, metric: str, words: Words) -> Iterator[Sentence]:
    cell = evidence.cells[0]
    values = evidence.finite_values(cell.id, metric)
    if not values:
        return
    parts = {
        "metric": words.capital(words.metric(metric)),
        "value": value_text(metric, sum(values) / len(values)),
        "when": _when(evidence, cell, metric, words),
    }
    if len(values) == 1:
        yield Sentence(words("answer_value", **parts), "learning")
    else:
        low, high = value_text(metric, min(values)), value_text(metric, max(values))
        number = num_seeds(len(values), words)
        text = words("answer_values", **parts, seeds=number, low=low, high=high)
        yield Sentence(text, "learning")
    yield from _course(evidence, cell, words)


def _when(evidence: Evidence, cell: Cell, metric: str, words: Words) -> str:
    """After how much training the values are; not always what was asked: training may stop early."""
    if cell.settings.keep_best:
        return words("answer_best_epoch")
    if cell.settings.max_steps is not None:
        return words("answer_after_updates", number=f"{cell.settings.max_steps:,}")
    trained = evidence.learned.get(cell.id, {}).values()
    if not _tells_epochs(evidence, cell):
        number = max((one.trial.steps_done for one in trained), default=0)
        if metric.startswith("train/") and any(one.is_one_pass() for one in trained):
            return words("answer_over_updates", number=f"{num_at_the_end(number):,}")
        return words("answer_after_updates", number=f"{number:,}")
    number = max((one.trial.epochs_done for one in trained), default=0) or cell.settings.epochs
    return words("answer_after", epochs=words.counted("one_epoch", "epochs", number))


def _tells_epochs(evidence: Evidence, cell: Cell) -> bool:
    """Whether passes over the data are known: of a script, where a loader gives them."""
    trained = evidence.learned.get(cell.id, {}).values()
    return evidence.study.script is None or all("passes" in one.trial.resolved for one in trained)


def _course(evidence: Evidence, cell: Cell, words: Words) -> Iterator[Sentence]:
    """How long training took and where its loss went, as medians and means over seeds."""
    of_cell = evidence.learned.get(cell.id, {}).values()
    trained = [one for one in of_cell if one.trial.state in ENDED_WELL]
    epochs_s = [time_s for one in trained if (time_s := one.epoch_s()) is not None]
    totals_s = [one.trial.total_s for one in trained if one.trial.total_s is not None]
    has_epochs = cell.settings.max_steps is None and _tells_epochs(evidence, cell)
    if epochs_s and totals_s and has_epochs:
        text = words(
            "answer_time",
            total=figure(statistics.median(totals_s)),
            epoch=figure(statistics.median(epochs_s)),
            device=level_name("device", trained[0].trial.resolved.get("device", "cpu"), words),
        )
        yield Sentence(text, "learning")
    losses = [
        [float(line[LOSS]) for line in one.epochs if line.get(LOSS) is not None] for one in trained
    ]
    if losses and all(len(values) > 1 for values in losses):
        first, last = (statistics.fmean(values[end] for values in losses) for end in (0, -1))
        if first != last:
            key = "answer_fell" if last < first else "answer_rose"
            ends = {"first": value_text(LOSS, first), "last": value_text(LOSS, last)}
            yield Sentence(words(key, **ends), "learning")


def _best(
    evidence: Evidence,
    best: BestCells,
    effects: Sequence[Effect],
    trends: Sequence[Trend],
    words: Words,
) -> Iterator[Sentence]:
    cells = {cell.id: cell for cell in evidence.cells}
    names = [cell_name(cells[cell], words) for cell in best.cells]
    parts = {
        "metric": words.metric(best.subject),
        "seeds": num_seeds(best.n, words),
        "value": value_text(best.subject, best.mean),
    }
    is_told = best.num_worse > 0 or any(effect.verdict == "different" for effect in effects)
    if not is_told:
        if all(effect.verdict in SAME for effect in effects):
            yield from _same(evidence, best.subject, effects, words)
        elif best.n > 1:
            capital = words.capital(parts["metric"])
            # Over all levels together a trend may show that no two of them do.
            key = "answer_only_trend" if trends else "answer_none_told"
            factor = trends[0].factor if trends else ""
            text = words(key, **parts, capital_metric=capital, best=names[0], factor=factor)
            yield Sentence(text, "learning", (best, *trends))
        return
    if len(best.cells) == 1:
        text = words("answer_best", **parts, best=words.capital(names[0]))
    elif (margin := _shared_margin(best, effects)) is not None:
        key = "answer_best_same" if margin else "answer_best_identical"
        margin_text = size_text(best.subject, margin, words)
        together = words.capital(joined(names, words))
        text = words(key, **parts, names=together, margin=margin_text)
    else:
        named = names[1 : 1 + MOST_NAMED]
        others = joined(named, words)
        if len(names) - 1 > len(named):
            others = words("and_others", listed=others, number=len(names) - 1 - len(named))
        text = words("answer_best_tied", **parts, best=words.capital(names[0]), others=others)
    yield Sentence(text, "learning", (best,))


def _shared_margin(best: BestCells, effects: Sequence[Effect]) -> float | None:
    """Within which the best setting and all that tie with it were shown to be the same, 0 where they are
    identical; None where that was not shown."""
    same = {
        frozenset(effect.cells): 0.0 if effect.verdict == "identical" else effect.margin or 0.0
        for effect in effects
        if effect.verdict in SAME
    }
    pairs = [frozenset(pair) for pair in combinations(best.cells, 2)]
    if len(best.cells) > MOST_NAMED or not all(pair in same for pair in pairs):
        return None
    return max(same[pair] for pair in pairs)


def _by_factor(
    evidence: Evidence, metric: str, by_factor: dict[str, list[Effect]], words: Words
) -> Iterator[Sentence]:
    """The largest decided effect of each factor, the largest first; then the factors without any."""
    told = [
        max(different, key=lambda effect: abs(effect.difference or 0.0))
        for effects in by_factor.values()
        if (different := [effect for effect in effects if effect.verdict == "different"])
    ]
    for effect in sorted(told, key=lambda effect: -abs(effect.difference or 0.0)):
        yield _effect(evidence, effect, words)
    for effects in by_factor.values():
        yield from _same(evidence, metric, effects, words)


def _effect(evidence: Evidence, effect: Effect, words: Words) -> Sentence:
    first, second = names_of(effect, evidence.cells, words)
    difference = effect.difference or 0.0
    key = "answer_raises" if difference > 0 else "answer_lowers"
    text = words(
        key,
        second=words.capital(second),
        first=first,
        metric=words.metric(effect.subject),
        size=size_text(effect.subject, difference, words),
        value=value_text(effect.subject, effect.mean_b or 0.0),
        at=effect.shared_text(words),
    )
    section = "learning" if isinstance(effect, NoReset) else section_of(effect.factor)
    return Sentence(text, section, (effect,))


def _same(
    evidence: Evidence, metric: str, effects: Sequence[Effect], words: Words
) -> Iterator[Sentence]:
    """The levels of a factor that were shown to be the same wherever they were compared."""
    named = [(effect, names_of(effect, evidence.cells, words)) for effect in effects]
    not_same = {pair for effect, pair in named if effect.verdict not in SAME}
    found = [(e, pair) for e, pair in named if e.verdict in SAME and pair not in not_same]
    names = list(dict.fromkeys(name for _, pair in found for name in pair))
    if len({pair for _, pair in found}) < len(names) * (len(names) - 1) / 2:
        # Not each of these with each other: the first two alone.
        found, names = found[:1], list(found[0][1])
    if not found:
        return
    same = [effect for effect, _ in found]
    margins = [one.margin for one in same if one.verdict == "equivalent" and one.margin is not None]
    text = words(
        "answer_same" if margins else "answer_identical",
        metric=words.capital(words.metric(metric)),
        names=joined(names, words),
        margin=size_text(metric, max(margins, default=0.0), words),
    )
    yield Sentence(text, section_of(same[0].factor), tuple(same))
