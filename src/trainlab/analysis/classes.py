"""Confusion: which classes the best setting takes for which, its seeds together."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from trainlab.analysis.document import (
    Block,
    Column,
    Entry,
    Gallery,
    GalleryItem,
    Paragraph,
    Row,
    Section,
    Table,
)
from trainlab.analysis.evidence import Evidence
from trainlab.analysis.finding import Finding, Kind, RunData, num_seeds
from trainlab.analysis.metrics import ACCURACY, compared_metrics
from trainlab.analysis.tables import Field, first_bullets, name, table_of, value
from trainlab.record.learning_record import MOST_MISTAKES, ConfusionRecord, Mistake
from trainlab.words import Words
from trainlab.words.numbers import count, percent

Counts = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class SeenMistake:
    """A mistake, and the seed of the trial that made it."""

    seed: int
    mistake: Mistake


@dataclass(frozen=True)
class Confusion:
    """The test samples of one cell, counted once for each seed."""

    cell: str
    metric: str
    """The cell is the best of those that were trained by this one."""
    seeds: tuple[int, ...]
    classes: tuple[str, ...]
    """Their names; their numbers where the data has no names."""
    counts: Counts
    """By the class that samples are of, then by the class that they were taken for; of all seeds."""
    num_samples: int
    """Of the test set."""
    worst: tuple[SeenMistake, ...]
    """The surest mistakes of any seed, each sample once."""

    @property
    def num_tested(self) -> int:
        """Over all seeds."""
        return sum(map(sum, self.counts))

    @property
    def num_right(self) -> int:
        """Over all seeds."""
        return sum(row[number] for number, row in enumerate(self.counts))

    def pairs(self) -> list[tuple[int, int]]:
        """Two classes of which one was taken for the other, the one that was so more often first; those
        that were so most often first."""
        counts = self.counts
        found = [
            (a, b) if counts[a][b] >= counts[b][a] else (b, a)
            for a, b in combinations(range(len(counts)), 2)
            if counts[a][b] or counts[b][a]
        ]
        return sorted(found, key=lambda pair: -counts[pair[0]][pair[1]] - counts[pair[1]][pair[0]])


def best_confusion(evidence: Evidence) -> Confusion | None:
    """Of the setting with the best accuracy, or where none was measured with the best of what is compared
    first; None where no trial recorded any."""
    metrics = [ACCURACY] if ACCURACY in evidence.metrics else compared_metrics(evidence)[:1]
    for metric in metrics:
        for cell in _best_first(evidence, metric):
            records = _records(evidence, cell)
            if records:
                return _together(cell, metric, records)
    return None


def _best_first(evidence: Evidence, metric: str) -> list[str]:
    """The cells that learned; those in which a seed diverged come last."""
    sign = 1 if evidence.study.is_better_lower(metric) else -1

    def place(cell: str) -> tuple[bool, float]:
        values = list(evidence.values(cell, metric).values())
        finite = [value for value in values if math.isfinite(value)]
        mean = sum(finite) / len(finite) if finite else math.inf * sign
        return len(finite) < len(values) or not finite, sign * mean

    return sorted((cell.id for cell in evidence.cells if cell.id in evidence.learned), key=place)


def _records(evidence: Evidence, cell: str) -> dict[int, ConfusionRecord]:
    """By seed; only those of the same classes and as many samples as the first."""
    found: dict[int, ConfusionRecord] = {}
    for seed, learned in sorted(evidence.learned[cell].items()):
        record = learned.read_confusion() if learned.trial.state == "done" else None
        first = next(iter(found.values()), record)
        if record is not None and first is not None and _shape(record) == _shape(first):
            found[seed] = record
    return found


def _shape(record: ConfusionRecord) -> object:
    return record.num_classes, record.num_samples, record.classes


def _together(cell: str, metric: str, records: Mapping[int, ConfusionRecord]) -> Confusion:
    first = next(iter(records.values()))
    each = [record.counts for record in records.values()]
    number = range(first.num_classes)
    return Confusion(
        cell=cell,
        metric=metric,
        seeds=tuple(records),
        classes=first.classes or tuple(map(str, number)),
        counts=tuple(
            tuple(sum(one[row][column] for one in each) for column in number) for row in number
        ),
        num_samples=first.num_samples,
        worst=_surest(
            SeenMistake(seed, mistake)
            for seed, record in records.items()
            for mistake in record.worst
        ),
    )


def _surest(mistakes: Iterable[SeenMistake]) -> tuple[SeenMistake, ...]:
    by_sample: dict[int, SeenMistake] = {}
    surest = sorted(
        mistakes,
        key=lambda one: (-one.mistake.said_probability, one.mistake.true_probability, one.seed),
    )
    for one in surest:
        by_sample.setdefault(one.mistake.index, one)
    return tuple(by_sample.values())[:MOST_MISTAKES]


MOST_COLUMNS = 20
"""Classes of a matrix that can be read; of more, the pairs confused most often are listed."""
MOST_PAIRS = 15
LONGEST_NAME = 24
"""Letters of a class in a heading."""


def _confused_text(found: Finding, words: Words) -> str:
    where = found.fill(words, "confused_where") if found.num_settings > 1 else ""
    counted = found.fill(words, "confused_of_one" if found.n == 1 else "confused_of_some")
    share = percent(found.share)
    return found.fill(words, found.kind, where=where, counted=counted, share_text=share)


CONFUSED = Kind(
    "confused_classes",
    "classes",
    statement=_confused_text,
    phrases=lambda found, words: {name: found.numbers[name] for name in ("first", "second")},
)
"""The two classes that the best setting confuses most often: the samples of the first that were taken for
the second, at least as many as the other way; all counts are over all seeds."""


def confused_findings(evidence: Evidence) -> Iterator[Finding]:
    """One, where the test set has classes and a sample was taken for the wrong one."""
    confusion = best_confusion(evidence)
    if confusion is None:
        return
    for first, second in confusion.pairs()[:1]:
        counts = confusion.counts
        num_wrong = confusion.num_tested - confusion.num_right
        yield CONFUSED(
            subject=confusion.metric,
            cells=(confusion.cell,),
            first=confusion.classes[first],
            second=confusion.classes[second],
            num_taken=counts[first][second],
            num_first=sum(counts[first]),
            num_other_way=counts[second][first],
            num_second=sum(counts[second]),
            num_wrong=num_wrong,
            share=(counts[first][second] + counts[second][first]) / num_wrong,
            num_tested=confusion.num_tested,
            num_samples=confusion.num_samples,
            num_settings=len(evidence.learned),
            n=len(confusion.seeds),
        )


def matrix_table(confusion: Confusion, words: Words) -> Table:
    """A row per true class, a column per class that was said, in per cent of the row."""
    largest = max(
        _share(confusion, true, said)
        for true in range(len(confusion.classes))
        for said in range(len(confusion.classes))
        if true != said
    )
    names = [short_name(one) for one in confusion.classes]
    return Table(
        caption=words("matrix_caption"),
        columns=(
            Column(words("matrix_corner")),
            *(Column(one, is_number=True) for one in names),
            Column(words("matrix_samples"), is_number=True),
        ),
        rows=tuple(
            Row(
                (
                    Entry(one),
                    *(_field(confusion, true, said, largest) for said in range(len(names))),
                    Entry(count(sum(confusion.counts[true])), sum(confusion.counts[true])),
                )
            )
            for true, one in enumerate(names)
        ),
        note=words("matrix_note"),
        is_matrix=True,
    )


def short_name(text: str) -> str:
    """A name that fits a heading."""
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…"


def _share(confusion: Confusion, true: int, said: int) -> float:
    of = sum(confusion.counts[true])
    return confusion.counts[true][said] / of if of else 0.0


def _field(confusion: Confusion, true: int, said: int, largest: float) -> Entry:
    share = _share(confusion, true, said)
    if share == 0:
        return Entry("", 0.0)
    if true == said:
        return Entry(share_text(share), share, tone="right", shade=share)
    # By the root: mistakes of a good model are few, and still differ.
    return Entry(share_text(share), share, tone="wrong", shade=math.sqrt(share / largest))


def share_text(share: float) -> str:
    """In per cent, without the sign; what is not nothing, or not all, does not look so."""
    if share == 1:
        return "100"
    text = f"{100 * share:.1f}"
    return {"0.0": "<0.1", "100.0": ">99.9"}.get(text, text)


def pair_table(confusion: Confusion, words: Words) -> Table:
    """What was taken for what most often, where a matrix would be too large to read."""
    number = range(len(confusion.classes))
    taken = [(a, b) for a in number for b in number if a != b and confusion.counts[a][b]]
    taken.sort(key=lambda pair: -confusion.counts[pair[0]][pair[1]])
    fields: list[Field[tuple[int, int]]] = [
        name(words("true_class"), lambda pair: confusion.classes[pair[0]]),
        name(words("said_class"), lambda pair: confusion.classes[pair[1]]),
        value(words("num_taken"), lambda pair: _counted(confusion.counts[pair[0]][pair[1]])),
        value(words("of_the_class"), lambda pair: _part(_share(confusion, *pair))),
    ]
    note = words("pairs_note", number=len(confusion.classes), file="trials/*/confusion.json")
    return table_of(words("pairs_caption"), fields, taken[:MOST_PAIRS], note)


def mistake_table(confusion: Confusion, words: Words) -> Table:
    """The worst mistakes where the inputs are no images."""
    fields: list[Field[SeenMistake]] = [
        name(words("mistake_sample"), lambda one: str(one.mistake.index)),
        name(words("mistake_seed"), lambda one: str(one.seed)),
        name(words("true_class"), lambda one: confusion.classes[one.mistake.true]),
        name(words("said_class"), lambda one: confusion.classes[one.mistake.said]),
        value(words("mistake_said_share"), lambda one: _part(one.mistake.said_probability)),
        value(words("mistake_true_share"), lambda one: _part(one.mistake.true_probability)),
    ]
    caption, note = words("mistakes_caption"), words("mistakes_note")
    return table_of(caption, fields, confusion.worst, note)


def _counted(number: int) -> Entry:
    return Entry(count(number), number)


def _part(share: float) -> Entry:
    return Entry(percent(share), share)


def class_section(data: RunData, words: Words) -> Section | None:
    """None where the trials are about no classes."""
    confusion = best_confusion(data.evidence)
    if confusion is None:
        return None
    blocks: list[Block] = [Paragraph(_intro(confusion, len(data.evidence.learned), words))]
    blocks += first_bullets(data.findings_in("classes"), words)
    if confusion.num_right == confusion.num_tested:
        blocks.append(Paragraph(words("classes_all_right")))
        return Section("classes", words("classes"), tuple(blocks))
    is_small = len(confusion.classes) <= MOST_COLUMNS
    blocks.append((matrix_table if is_small else pair_table)(confusion, words))
    blocks.append(_mistakes(confusion, words))
    return Section("classes", words("classes"), tuple(blocks))


def _intro(confusion: Confusion, num_settings: int, words: Words) -> str:
    seeds = num_seeds(len(confusion.seeds), words)
    key = "classes_counted_one" if len(confusion.seeds) == 1 else "classes_counted"
    return words.tidy(
        words(
            "classes_intro" if num_settings == 1 else "classes_intro_best",
            cell=confusion.cell,
            metric=words.metric(confusion.metric),
            right=count(confusion.num_right),
            tested=count(confusion.num_tested),
            share=percent(confusion.num_right / confusion.num_tested),
            counted=words(key, seeds=seeds, number=count(confusion.num_samples)),
        )
    )


def _mistakes(confusion: Confusion, words: Words) -> Gallery | Table:
    """As pictures where the inputs are images."""
    items = [
        GalleryItem(
            picture=mistake.picture,
            alt=words("mistake_alt", index=mistake.index),
            text=words(
                "mistake",
                true=confusion.classes[mistake.true],
                said=confusion.classes[mistake.said],
                share=chance_text(mistake.said_probability),
            ),
            remark=words("mistake_where", index=mistake.index, seed=one.seed),
        )
        for one in confusion.worst
        if (mistake := one.mistake).picture is not None
    ]
    if len(items) < len(confusion.worst):
        return mistake_table(confusion, words)
    return Gallery("mistakes", words("mistakes_caption"), tuple(items), note=words("mistakes_note"))


def chance_text(share: float) -> str:
    """`97%`; what is near to certain with as many digits as tell it from that: `99.98%`."""
    for places in (0, 1, 2):
        text = f"{100 * share:.{places}f}%"
        if not text.startswith("100"):
            return text
    return "100%" if share == 1 else ">99.99%"
