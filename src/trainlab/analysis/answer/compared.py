"""What the answer says about two runs: how much faster the second is, and what it learned."""

from collections.abc import Iterator, Sequence

from trainlab.analysis.answer.learned import size_text
from trainlab.analysis.answer.sentence import Sentence
from trainlab.analysis.answer.speed import times
from trainlab.analysis.side_by_side import CellComparison, SideBySide
from trainlab.words import Words

MOST_NAMED = 4
ALIKE = 1.05
"""Two ratios that differ by less read as one number."""


def compared_sentences(compared: SideBySide, words: Words) -> Iterator[Sentence]:
    """Training, inference, then each metric that was compared first."""
    for mode in ("train", "inference"):
        pairs = [pair for pair in compared.costs if pair.subject == f"{mode}/sample_us"]
        if pairs:
            yield Sentence(words.tidy(_speed(mode, pairs, words)), "costs")
    for metric in list(dict.fromkeys(pair.subject for pair in compared.learned))[:1]:
        pairs = [pair for pair in compared.learned if pair.subject == metric]
        yield Sentence(words.tidy(_learned(metric, pairs, words)), "learning")


def _speed(mode: str, pairs: Sequence[CellComparison], words: Words) -> str:
    told = [pair for pair in pairs if pair.verdict == "different"]
    if not told:
        return words(f"compared_speed_{mode}_open", number=len(pairs))
    gains = sorted(1 / pair.change for pair in told)
    key = "faster" if gains[0] > 1 else "slower" if gains[-1] < 1 else "both"
    if key == "slower":
        gains = sorted(1 / gain for gain in gains)
    if key == "both":
        parts = words("list_semicolon").join(
            words("compared_at", times=times(1 / pair.change), setting=pair.cell)
            for pair in told[:MOST_NAMED]
        )
        return words(f"compared_speed_{mode}_both", parts=parts)
    low, high = times(gains[0]), times(gains[-1])
    span = low if gains[-1] < ALIKE * gains[0] else words("range", low=low, high=high)
    text = words(f"compared_speed_{mode}_{key}", times=span)
    if len(told) == len(pairs):
        return text
    return words.sentences(text, words("compared_some", some=len(told), all=len(pairs)))


def _learned(metric: str, pairs: Sequence[CellComparison], words: Words) -> str:
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
