"""What the profiled processes show: which operator takes most, and how its time grows with the batch."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from trainlab.analyse.batch_series import BatchSeries
from trainlab.analyse.cost.operators import ranked
from trainlab.analyse.findings.finding import Finding
from trainlab.record.cost import OperatorsRecord
from trainlab.words import Words
from trainlab.words.numbers import bare_operator


@dataclass(frozen=True, kw_only=True)
class OfOperator(Finding):
    """An operator between two batch sizes."""

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
class TopOperator(OfOperator):
    """The operator that takes most of the step at the largest batch, and its share at the smallest."""

    kind = "top_operator"
    rank = 8

    share_a: float
    share_b: float
    first_a: str
    """The one that takes most at the smallest batch."""
    first_share_a: float

    def tell(self, words: Words) -> str:
        key = "dominates_both" if self.first_a == self.subject else "dominates_one"
        return self.fill(words, key, other=bare_operator(self.first_a))


@dataclass(frozen=True, kw_only=True)
class OperatorGrowth(OfOperator):
    """How many times longer one call takes from one batch size to the next."""

    kind = "operator_growth"
    text = "growth"

    time: float
    work: float
    average_us_a: float
    average_us_b: float


def operator_findings(series: BatchSeries) -> Iterator[Finding]:
    """Where two or more of the batch sizes were profiled."""
    records = {s: m.operators for s, m in series.by_size.items() if m.operators is not None}
    if len(records) > 1:
        yield _top(series, records)
        yield from _growth(series, records)


def _top(series: BatchSeries, records: Mapping[int, OperatorsRecord]) -> Finding:
    smallest, largest = min(records), max(records)
    small, large = ranked(records[smallest]), ranked(records[largest])
    top = large[0]
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


def _growth(series: BatchSeries, records: Mapping[int, OperatorsRecord]) -> Iterator[Finding]:
    """Of the operator that takes most at the largest size; sizes at which it did not run are skipped."""
    top = ranked(records[max(records)])[0].name
    averages = {
        size: average
        for size, record in sorted(records.items())
        if (average := next((op.average_us for op in ranked(record) if op.name == top), 0.0)) > 0
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
