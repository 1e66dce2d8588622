"""Confusion: which classes the best setting takes for which, its seeds together."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trainlab.analysis import document, tables
from trainlab.analysis.document import Entry, Paragraph, Section, Table
from trainlab.analysis.evidence import Evidence
from trainlab.analysis.finding import Finding, Kind, RunData, num_seeds
from trainlab.analysis.metrics import ACCURACY, compared_metrics
from trainlab.record.learning_record import MOST_MISTAKES, ConfusionRecord, Mistake
from trainlab.words import Words
from trainlab.words.numbers import count, percent


@dataclass(frozen=True)
class Confusion:
    """The test samples of one cell, counted once for each seed."""

    cell: str
    metric: str
    """The cell is the best of those that were trained by this one."""
    seeds: tuple[int, ...]
    classes: tuple[str, ...]
    """Their names; their numbers where the data has no names."""
    counts: NDArray[np.int64]
    """By the class that samples are of, then by the class that they were taken for; of all seeds."""
    num_samples: int
    """Of the test set."""
    worst: tuple[tuple[int, Mistake], ...]
    """The surest mistakes of any seed, each sample once; with the seed."""

    @property
    def shares(self) -> NDArray[np.float64]:
        """What each class was taken for, as shares of its samples."""
        return np.asarray(self.counts / np.maximum(1, self.counts.sum(axis=1, keepdims=True)))


def best_confusion(evidence: Evidence) -> Confusion | None:
    """Of the setting with the best accuracy, or of the metric compared first; None without any record. Only
    records of the same classes and as many samples are added up."""
    for metric in [ACCURACY] if ACCURACY in evidence.metrics else compared_metrics(evidence)[:1]:
        for cell in best_first(evidence, metric):
            trials = sorted(evidence.learned[cell].items())
            read = [
                (seed, record)
                for seed, one in trials
                if one.trial.state == "done" and (record := one.read_confusion()) is not None
            ]
            if read:
                first = read[0][1]
                records = {
                    seed: one
                    for seed, one in read
                    if (one.num_samples, one.classes, one.num_classes)
                    == (first.num_samples, first.classes, first.num_classes)
                }
                return Confusion(
                    cell=cell,
                    metric=metric,
                    seeds=tuple(records),
                    classes=first.classes or tuple(map(str, range(first.num_classes))),
                    counts=np.sum([one.counts for one in records.values()], axis=0),
                    num_samples=first.num_samples,
                    worst=_surest(records),
                )
    return None


def best_first(evidence: Evidence, metric: str) -> list[str]:
    """The cells that learned; those in which a seed diverged come last."""
    sign = 1 if evidence.study.is_better_lower(metric) else -1

    def place(cell: str) -> tuple[bool, float]:
        values, finite = evidence.values(cell, metric), evidence.finite_values(cell, metric)
        mean = sum(finite) / len(finite) if finite else math.inf * sign
        return len(finite) < len(values) or not finite, sign * mean

    return sorted((cell.id for cell in evidence.cells if cell.id in evidence.learned), key=place)


def _surest(records: dict[int, ConfusionRecord]) -> tuple[tuple[int, Mistake], ...]:
    mistakes = [(seed, one) for seed, record in records.items() for one in record.worst]
    mistakes.sort(key=lambda one: (-one[1].said_probability, one[1].true_probability, one[0]))
    by_sample: dict[int, tuple[int, Mistake]] = {}
    for seed, mistake in mistakes:
        by_sample.setdefault(mistake.index, (seed, mistake))
    return tuple(by_sample.values())[:MOST_MISTAKES]


MOST_COLUMNS = 20
"""Classes of a matrix that can be read; of more, the pairs confused most often are listed."""
MOST_PAIRS = 15
LONGEST_NAME = 24
"""Letters of a class in a heading."""


def _confused_text(found: Finding, words: Words) -> str:
    where = found.fill(words, "confused_where") if found.num_settings > 1 else ""
    counted = found.fill(words, "confused_of_one" if found.n == 1 else "confused_of_some")
    return found.fill(words, found.kind, where=where, counted=counted)


CONFUSED = Kind(
    "confused_classes",
    "classes",
    statement=_confused_text,
    phrases=lambda found, words: {name: found.numbers[name] for name in ("first", "second")},
)
"""The two classes confused most often: samples of the first taken for the second, over all seeds."""


def confused_findings(evidence: Evidence) -> Iterator[Finding]:
    """One, where the test set has classes and a sample was taken for the wrong one."""
    confusion = best_confusion(evidence)
    if confusion is None:
        return
    counts = confusion.counts
    num_wrong = int(counts.sum() - counts.trace())
    if not num_wrong:
        return
    both = np.triu(counts + counts.T, k=1)
    pair = divmod(int(both.argmax()), len(counts))
    first, second = pair if counts[pair] >= counts.T[pair] else pair[::-1]
    yield CONFUSED(
        subject=confusion.metric,
        cells=(confusion.cell,),
        first=confusion.classes[first],
        second=confusion.classes[second],
        num_taken=int(counts[first, second]),
        num_first=int(counts[first].sum()),
        num_other_way=int(counts[second, first]),
        num_second=int(counts[second].sum()),
        num_wrong=num_wrong,
        share=int(both.max()) / num_wrong,
        num_tested=int(counts.sum()),
        num_samples=confusion.num_samples,
        num_settings=len(evidence.learned),
        n=len(confusion.seeds),
    )


def matrix_table(confusion: Confusion, words: Words) -> Table:
    """A row per true class, a column per class that was said, in per cent of the row."""
    shares = confusion.shares
    largest = float((shares - np.diag(shares.diagonal())).max())
    names = [
        n if len(n) <= LONGEST_NAME else f"{n[: LONGEST_NAME - 1]}…" for n in confusion.classes
    ]

    def entry(true: int, said: int) -> Entry:
        share = float(shares[true, said])
        if share == 0:
            return Entry("", 0.0)
        # By the root: mistakes of a good model are few, and still differ.
        shade = share if true == said else math.sqrt(share / largest)
        tone: Literal["right", "wrong"] = "right" if true == said else "wrong"
        return Entry(share_text(share), share, tone=tone, shade=shade)

    fields: list[tables.Field[int]] = [
        tables.name(words("matrix_corner"), lambda true: names[true]),
        *(tables.value(one, partial(entry, said=said)) for said, one in enumerate(names)),
        tables.value(
            words("matrix_samples"), lambda t: tables.count(int(confusion.counts[t].sum()))
        ),
    ]
    table = tables.table_of(
        words("matrix_caption"), fields, range(len(names)), words("matrix_note")
    )
    return replace(table, is_matrix=True)


def share_text(share: float) -> str:
    """In per cent, without the sign; what is not nothing, or not all, does not look so."""
    if share == 1:
        return "100"
    text = f"{100 * share:.1f}"
    return {"0.0": "<0.1", "100.0": ">99.9"}.get(text, text)


def pair_table(confusion: Confusion, words: Words) -> Table:
    """What was taken for what most often, where a matrix would be too large to read."""
    counts, classes = confusion.counts, confusion.classes
    wrong = np.argwhere(counts - np.diag(counts.diagonal())).tolist()
    taken = sorted(wrong, key=lambda pair: -counts[*pair])
    fields: list[tables.Field[list[int]]] = [
        tables.name(words("true_class"), lambda pair: classes[pair[0]]),
        tables.name(words("said_class"), lambda pair: classes[pair[1]]),
        tables.value(words("num_taken"), lambda pair: tables.count(int(counts[*pair]))),
        tables.value(words("of_the_class"), lambda p: tables.share(float(confusion.shares[*p]))),
    ]
    note = words("pairs_note", number=len(classes), file="trials/*/confusion.json")
    return tables.table_of(words("pairs_caption"), fields, taken[:MOST_PAIRS], note)


def class_section(data: RunData, words: Words) -> Section | None:
    """None where the trials are about no classes."""
    confusion = best_confusion(data.evidence)
    if confusion is None:
        return None
    key = "classes_counted_one" if len(confusion.seeds) == 1 else "classes_counted"
    right, tested = int(confusion.counts.trace()), int(confusion.counts.sum())
    samples = count(confusion.num_samples)
    intro = words(
        "classes_intro" if len(data.evidence.learned) == 1 else "classes_intro_best",
        cell=confusion.cell,
        metric=words.metric(confusion.metric),
        right=count(right),
        tested=count(tested),
        share=percent(right / tested),
        counted=words(key, seeds=num_seeds(len(confusion.seeds), words), number=samples),
    )
    blocks: list[document.Block] = [Paragraph(words.tidy(intro))]
    blocks += tables.first_bullets(data.findings_in("classes"), words)
    if right == tested:
        blocks.append(Paragraph(words("classes_all_right")))
    else:
        is_small = len(confusion.classes) <= MOST_COLUMNS
        blocks.append((matrix_table if is_small else pair_table)(confusion, words))
        blocks += filter(None, [_mistakes(confusion, words)])
    return Section("classes", words("classes"), tuple(blocks), is_folded=True)


def _mistakes(confusion: Confusion, words: Words) -> document.Gallery | None:
    """Pictures of the worst; None where the inputs are no images."""
    classes = confusion.classes
    items = [
        document.GalleryItem(
            picture=one.picture,
            alt=words("mistake_alt", index=one.index),
            text=words(
                "mistake",
                true=classes[one.true],
                said=classes[one.said],
                share=percent(one.said_probability),
            ),
            remark=words("mistake_where", index=one.index, seed=seed),
        )
        for seed, one in confusion.worst
        if one.picture is not None
    ]
    if not items:
        return None
    caption, note = words("mistakes_caption"), words("mistakes_note")
    return document.Gallery("mistakes", caption, tuple(items), note=note)
