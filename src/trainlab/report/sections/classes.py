"""Which classes are confused: the confusion matrix of the best setting, and its worst mistakes."""

from trainlab.analysis.classes.confusion import Confusion, best_confusion
from trainlab.analysis.document import Block, Gallery, GalleryItem, Paragraph, Section, Table
from trainlab.analysis.finding import num_seeds
from trainlab.analysis.run_data import RunData
from trainlab.analysis.tables import first_bullets
from trainlab.report.tables.classes import MOST_COLUMNS, matrix_table, mistake_table, pair_table
from trainlab.words import Words
from trainlab.words.numbers import count, percent


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
