"""What was learned: curves over training, where every cell ended, time to the targets."""

from trainlab.analyse.findings.learning import subjects
from trainlab.report.document import Block, Entry, Figure, Paragraph, Row, Section, Table, table
from trainlab.report.entries import mean, number, points, text
from trainlab.report.figures.charts import dot_chart
from trainlab.report.figures.dots import metric_dots
from trainlab.report.figures.line_charts import trend_chart
from trainlab.report.figures.trends import trend
from trainlab.report.material import Material
from trainlab.stats.means import mean_of
from trainlab.words import Words

SHOWN = 20
"""Rows of a long table at first."""


def learn_section(material: Material, words: Words) -> Section | None:
    """None where nothing was trained."""
    if not material.evidence.learned:
        return None
    metrics = _curves(material)
    blocks: list[Block] = [
        Paragraph(words("learn_intro", seeds=len(material.evidence.study.seeds)))
    ]
    num_cells = len(material.evidence.learned)
    if num_cells > len(material.drawn):
        blocks.append(Paragraph(words("curves_chosen", drawn=len(material.drawn), all=num_cells)))
    blocks += [found for metric in metrics if (found := trend_figure(material, metric, words))]
    blocks.append(learn_table(material, words))
    blocks += _told(material, words)
    return Section("learning", words("learn"), tuple(blocks))


def _curves(material: Material) -> list[str]:
    """Losses and accuracies, of training and of the test, then what else is compared."""
    usual = ("train/loss", "test/loss", "train/accuracy", "test/accuracy")
    known = material.evidence.metrics()
    found = [metric for metric in usual if metric in known]
    return found + [metric for metric in subjects(material.evidence) if metric not in found]


def trend_figure(material: Material, metric: str, words: Words) -> Figure | None:
    """A metric over training; None where there is but one moment: the comparison shows that better."""
    found = trend(material, metric)
    if found is None or len({point.epoch for point in found.points}) < 2:
        return None
    seeds = len(material.evidence.study.seeds)
    last = {point.cell: point for point in found.points}
    ends = words("list_comma").join(f"{cell}: {point.mean:.4g}" for cell, point in last.items())
    return Figure(
        id=f"trend-{metric.replace('/', '-')}",
        caption=words("trend_caption", metric=metric),
        alt=words("trend_alt", metric=metric, ends=ends),
        note=words("trend_note" if seeds > 1 else "trend_note_one"),
        spec=trend_chart(found, material.drawn, words),
    )


def metric_figure(material: Material, metric: str, words: Words) -> Figure | None:
    """Where each cell ended."""
    found = metric_dots(material, metric)
    if found is None:
        return None
    told = words("list_comma").join(f"{dot.cell}: {dot.value:.4g}" for dot in found.dots)
    notes = [words("dots_note")]
    if found.num_left_out:
        notes.append(words("left_out", number=found.num_left_out))
    title = f"{metric} (%)" if metric.endswith("accuracy") else metric
    return Figure(
        id=f"final-{metric.replace('/', '-')}",
        caption=words("final_caption", metric=metric),
        alt=words("final_alt", metric=metric, values=told),
        note=words.sentences(*notes),
        spec=dot_chart(found, title, words),
    )


def learn_table(material: Material, words: Words) -> Table:
    """Each cell's means over seeds, with the 95 % interval of the mean."""
    evidence = material.evidence
    metrics = subjects(evidence)
    rows = []
    for cell in evidence.cells:
        seeds = evidence.learned.get(cell.id, {})
        if not seeds:
            continue
        values = [mean_of(list(evidence.values(cell.id, metric).values())) for metric in metrics]
        times = [float(line["train_s"]) for one in seeds.values() for line in one.epochs]
        done = sum(one.trial.state == "done" for one in seeds.values())
        told = str(done) if done == len(seeds) else words("some_of", some=done, all=len(seeds))
        entries = (
            text(cell.id),
            Entry(told, float(done)),
            *(mean(metric, one, words) for metric, one in zip(metrics, values, strict=True)),
            number(sum(times) / len(times) if times else None),
        )
        rows.append(Row(entries, cell=cell.id))
    headings = (
        (words("cell"), False),
        (words("seeds"), True),
        *((metric, True) for metric in metrics),
        (words("epoch_s_training"), True),
    )
    return table(
        words("learn_table"),
        headings,
        rows,
        note=words("learn_table_note"),
        is_sortable=True,
        num_shown=SHOWN if len(rows) > SHOWN else None,
        is_code=True,
    )


def _told(material: Material, words: Words) -> list[Block]:
    kinds = ("diverged", "quality")
    found = [one for one in material.findings if one.kind in kinds]
    left_out = found[SHOWN:]
    blocks: list[Block] = [points(found[:SHOWN], words)] if found else []
    if left_out:
        blocks.append(Paragraph(words("findings_left_out", number=len(left_out))))
    return blocks
