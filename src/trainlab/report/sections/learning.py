"""What was learned: curves over training, where every cell ended, time to the targets."""

from collections.abc import Iterable

from trainlab.analysis.charts import dot_chart, heat_map, metric_values
from trainlab.analysis.document import Block, Figure, Paragraph, Section, figure_id
from trainlab.analysis.evidence import ENDED_WELL
from trainlab.analysis.metrics import compared_metrics
from trainlab.analysis.run_data import RunData
from trainlab.analysis.tables import first_bullets
from trainlab.report.figures.curves import Curves, curve_chart, exploding, metric_curves
from trainlab.report.tables.learning import epochs_by_cell, learn_table
from trainlab.spec import Cell
from trainlab.words import Words
from trainlab.words.numbers import is_share, metric_value

USUAL = ("train/loss", "test/loss", "train/accuracy", "test/accuracy")


def learn_section(data: RunData, words: Words) -> Section | None:
    """None where nothing was trained."""
    learned, seeds = data.evidence.learned, data.evidence.study.seeds
    if not learned:
        return None
    figures = [*filter(None, (curve_figure(data, one, words) for one in _drawn_metrics(data)))]
    intro = "learn_intro" if figures else "learn_intro_no_curves"
    blocks: list[Block] = [Paragraph(words(intro, seeds=len(seeds)))]
    num_drawn = len(data.drawn_cells)
    if len(learned) > num_drawn and figures:
        blocks.append(Paragraph(words("curves_chosen", drawn=num_drawn, all=len(learned))))
    blocks += figures
    for metric in compared_metrics(data.evidence)[:1]:
        blocks += filter(None, [heat_figure(data, metric, words)])
    blocks.append(learn_table(data.evidence, words))
    if (epochs := epochs_by_cell(data.evidence, words)) is not None:
        blocks.append(epochs)
    blocks += first_bullets(data.findings_in("learning"), words)
    return Section("learning", words(_heading(data.evidence.metrics)), tuple(blocks))


def _heading(metrics: Iterable[str]) -> str:
    """The key of the heading: what there is beside the loss."""
    others = [metric for metric in metrics if not metric.endswith("/loss")]
    if not others:
        return "learn_loss"
    return "learn" if any(map(is_share, others)) else "learn_metrics"


def _drawn_metrics(data: RunData) -> list[str]:
    """Losses and accuracies of training and test, then the other metrics that are compared."""
    recorded = data.evidence.metrics
    usual = [metric for metric in USUAL if metric in recorded]
    return usual + [metric for metric in compared_metrics(data.evidence) if metric not in usual]


def curve_figure(data: RunData, metric: str, words: Words) -> Figure | None:
    """A metric over training; None below two moments: the comparison of cells shows one better."""
    curves = metric_curves(data, metric)
    if curves is None or len({point.epoch for point in curves.points}) < 2:
        return None
    last = {point.cell: point for point in curves.points}
    ends = words.listed(f"{cell}: {metric_value(metric, p.mean)}" for cell, p in last.items())
    has_band = len(data.evidence.study.seeds) > 1
    notes = [words("trend_note" if has_band else "trend_note_one")]
    alt = "trend_alt"
    if curves.num_each is not None:
        alt = "trend_alt_updates"
        each = "trend_note_updates" if curves.num_each > 1 else "trend_note_each_update"
        notes.append(words(each, number=curves.num_each))
        if any(trial.state in ENDED_WELL for trial in data.evidence.trials):
            notes.append(words("table_mean_end" if _is_one_pass(data) else "table_mean_epoch"))
    elif curves.by_step:
        alt = "trend_alt_steps"
        notes.append(words("trend_note_steps"))
    notes += _cut_notes(curves, words)
    return Figure(
        id=figure_id("trend", metric),
        caption=_caption(
            "trend_caption_updates" if curves.over_updates else "trend_caption", metric, words
        ),
        alt=words.tidy(words(alt, metric=words.metric(metric), ends=ends)),
        note=words.sentences(*notes),
        spec=curve_chart(curves, data.drawn_cells, words),
    )


def _is_one_pass(data: RunData) -> bool:
    learned = data.evidence.learned
    return any(one.is_one_pass() for cell in data.drawn_cells for one in learned[cell].values())


def _cut_notes(curves: Curves, words: Words) -> list[str]:
    """That the axis leaves out how far a setting explodes, and how far that is."""
    peaks = curves.peaks()
    texts = [
        words("trend_peak", cell=cell, value=f"{peaks[cell]:.2g}") for cell in exploding(curves)
    ]
    return [words("trend_cut", peaks=words("list_semicolon").join(texts))] if texts else []


def _caption(key: str, metric: str, words: Words) -> str:
    return words.tidy(words(key, metric=words.capital(words.metric(metric))))


def heat_figure(data: RunData, metric: str, words: Words) -> Figure | None:
    """A metric over two factors; None unless the study is a grid of two."""
    evidence, scale = data.evidence, 100 if is_share(metric) else 1

    def value_of(cell: Cell) -> float | None:
        values = evidence.finite_values(cell.id, metric)
        return scale * sum(values) / len(values) if values else None

    def text_of(value: float) -> str:
        return metric_value(metric, value / scale)

    spec = heat_map(evidence, value_of, text_of, words.metric_title(metric), words)
    if spec is None:
        return None
    known = ((cell.id, value_of(cell)) for cell in evidence.cells)
    values = words.listed(f"{cell}: {text_of(value)}" for cell, value in known if value is not None)
    return Figure(
        id=figure_id("grid", metric),
        caption=_caption("grid_caption", metric, words),
        alt=words.tidy(words("final_alt", metric=words.metric(metric), values=values)),
        note=words("grid_note"),
        spec=spec,
    )


def metric_figure(data: RunData, metric: str, words: Words) -> Figure | None:
    """Where each cell ended."""
    cell_values = metric_values(data.evidence, metric)
    if cell_values is None:
        return None
    values = words.listed(f"{v.cell}: {metric_value(metric, v.value)}" for v in cell_values.values)
    notes = [words("dots_note")]
    if cell_values.num_left_out:
        notes.append(words("left_out", number=cell_values.num_left_out))
    return Figure(
        id=figure_id("final", metric),
        caption=_caption("final_caption", metric, words),
        alt=words.tidy(words("final_alt", metric=words.metric(metric), values=values)),
        note=words.sentences(*notes),
        spec=dot_chart(cell_values, words.metric_title(metric), words),
    )
