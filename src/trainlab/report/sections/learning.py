"""What was learned: curves over training, where every cell ended, time to the targets."""

from trainlab.analyse.findings.learning import compared_metrics
from trainlab.report.bullets import first_bullets
from trainlab.report.document import Block, Figure, Paragraph, Section
from trainlab.report.figures.cell_values import metric_values
from trainlab.report.figures.charts import dot_chart
from trainlab.report.figures.curves import trend
from trainlab.report.figures.line_charts import curve_chart
from trainlab.report.run_data import RunData
from trainlab.report.tables.learning import learn_table
from trainlab.words import Words

USUAL = ("train/loss", "test/loss", "train/accuracy", "test/accuracy")


def learn_section(data: RunData, words: Words) -> Section | None:
    """None where nothing was trained."""
    learned, seeds = data.evidence.learned, data.evidence.study.seeds
    if not learned:
        return None
    blocks: list[Block] = [Paragraph(words("learn_intro", seeds=len(seeds)))]
    if len(learned) > len(data.drawn):
        chosen = words("curves_chosen", drawn=len(data.drawn), all=len(learned))
        blocks.append(Paragraph(chosen))
    blocks += [made for metric in _curves(data) if (made := trend_figure(data, metric, words))]
    blocks.append(learn_table(data.evidence, words))
    blocks += first_bullets(data.of_section("learning"), words)
    return Section("learning", words("learn"), tuple(blocks))


def _curves(data: RunData) -> list[str]:
    """Losses and accuracies, of training and of the test, then what else is compared."""
    known = data.evidence.metrics
    usual = [metric for metric in USUAL if metric in known]
    return usual + [metric for metric in compared_metrics(data.evidence) if metric not in usual]


def trend_figure(data: RunData, metric: str, words: Words) -> Figure | None:
    """A metric over training; None where there is but one moment: the comparison shows that better."""
    curves = trend(data, metric)
    if curves is None or len({point.epoch for point in curves.points}) < 2:
        return None
    last = {point.cell: point for point in curves.points}
    ends = words.listed(f"{cell}: {point.mean:.4g}" for cell, point in last.items())
    has_band = len(data.evidence.study.seeds) > 1
    return Figure(
        id=f"trend-{metric.replace('/', '-')}",
        caption=words("trend_caption", metric=metric),
        alt=words("trend_alt", metric=metric, ends=ends),
        note=words("trend_note" if has_band else "trend_note_one"),
        spec=curve_chart(curves, data.drawn, words),
    )


def metric_figure(data: RunData, metric: str, words: Words) -> Figure | None:
    """Where each cell ended."""
    dots = metric_values(data.evidence, metric)
    if dots is None:
        return None
    values = words.listed(f"{dot.cell}: {dot.value:.4g}" for dot in dots.dots)
    notes = [words("dots_note")]
    if dots.num_left_out:
        notes.append(words("left_out", number=dots.num_left_out))
    title = f"{metric} (%)" if metric.endswith("accuracy") else metric
    return Figure(
        id=f"final-{metric.replace('/', '-')}",
        caption=words("final_caption", metric=metric),
        alt=words("final_alt", metric=metric, values=values),
        note=words.sentences(*notes),
        spec=dot_chart(dots, title, words),
    )
