"""What the profiled processes show: which operator takes most, and how its time grows with the batch."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from trainlab.analyse.batch_series import BatchSeries
from trainlab.analyse.cost.operators import Operator, ranked
from trainlab.analyse.findings.finding import Finding
from trainlab.words import Words
from trainlab.words.numbers import bare_operator


@dataclass(frozen=True, kw_only=True)
class OperatorFinding(Finding):
    """A finding about one operator between two batch sizes."""

    section = "operators"

    of_mode: str
    """`train` or `inference`."""

    @property
    def weight(self) -> float:
        return float(self.of_mode == "train")

    def phrases(self, words: Words) -> dict[str, object]:
        own = {"mode_word": words.mode(self.of_mode), "operator": bare_operator(self.subject)}
        return super().phrases(words) | own


@dataclass(frozen=True, kw_only=True)
class TopOperator(OperatorFinding):
    """The operator that takes most of the step at the largest batch, and its share at the smallest."""

    kind = "top_operator"
    rank = 8

    share_a: float
    share_b: float
    first_a: str
    """The operator that takes most at the smallest batch."""
    first_share_a: float

    def statement(self, words: Words) -> str:
        key = "dominates_both" if self.first_a == self.subject else "dominates_one"
        return self.fill(words, key, other=bare_operator(self.first_a))


@dataclass(frozen=True, kw_only=True)
class OperatorGrowth(OperatorFinding):
    """How many times longer one call takes from one batch size to the next."""

    kind = "operator_growth"
    text = "growth"

    time: float
    work: float
    average_us_a: float
    average_us_b: float


def operator_findings(series: BatchSeries) -> Iterator[Finding]:
    """Where two or more of the batch sizes were profiled."""
    by_size = {
        size: ranked(measurement.operators)
        for size, measurement in series.by_size.items()
        if measurement.operators is not None
    }
    if len(by_size) > 1:
        yield _top(series, by_size)
        yield from _growth(series, by_size)


def _top(series: BatchSeries, by_size: Mapping[int, Sequence[Operator]]) -> Finding:
    smallest, largest = min(by_size), max(by_size)
    small, top = by_size[smallest], by_size[largest][0]
    return TopOperator(
        subject=top.name,
        factor="batch_size",
        levels=(smallest, largest),
        cells=series.cells,
        of_mode=series.mode,
        share_a=next((op.share for op in small if op.name == top.name), 0.0),
        share_b=top.share,
        first_a=small[0].name,
        first_share_a=small[0].share,
        n=1,
    )


def _growth(series: BatchSeries, by_size: Mapping[int, Sequence[Operator]]) -> Iterator[Finding]:
    """Of the operator that takes most at the largest size; sizes at which it did not run are skipped."""
    top = by_size[max(by_size)][0].name
    averages = {
        size: average
        for size, operators in by_size.items()
        if (average := next((op.average_us for op in operators if op.name == top), 0.0)) > 0
    }
    for small, large in pairwise(averages):
        yield OperatorGrowth(
            subject=top,
            factor="batch_size",
            levels=(small, large),
            cells=series.cells,
            of_mode=series.mode,
            time=averages[large] / averages[small],
            work=large / small,
            average_us_a=averages[small],
            average_us_b=averages[large],
            n=1,
        )
