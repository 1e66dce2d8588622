"""A study's cells side by side, for the terminal."""

from rich.markup import escape
from rich.table import Table

from trainlab.analyse.evidence import Evidence
from trainlab.analyse.findings.learning import subjects
from trainlab.cli.tables import measured, plain_table
from trainlab.stats.means import Mean, mean_of
from trainlab.words.numbers import MIB, is_share, metric_value


def learn_table(evidence: Evidence) -> Table:
    """Each cell's means over seeds, with the 95 % interval of the mean."""
    metrics = subjects(evidence)
    title = "what it learns: mean over seeds [95 % interval of the mean]"
    table = plain_table(title, "cell", "seeds", *metrics, "s per epoch")
    for cell in evidence.cells:
        seeds = evidence.learned.get(cell.id, {})
        if not seeds:
            continue
        means = [mean_of(list(evidence.values(cell.id, metric).values())) for metric in metrics]
        times = [float(line["train_s"]) for one in seeds.values() for line in one.epochs]
        told = [mean_told(metric, mean) for metric, mean in zip(metrics, means, strict=True)]
        seconds = measured(sum(times) / len(times)) if times else ""
        done = sum(one.trial.state == "done" for one in seeds.values())
        count = str(done) if done == len(seeds) else f"{done} of {len(seeds)}"
        table.add_row(escape(cell.id), count, *told, seconds)
    return table


def cost_table(evidence: Evidence) -> Table:
    """Each cell's cost by mode, from bare processes, with the interval of repeats."""
    title = "what it costs: bare fresh processes [95 % of repeats]"
    figures = ("ms per batch", "µs per sample", "s per epoch", "peak MiB")
    table = plain_table(title, "cell", "mode", *figures)
    for found in evidence.measured:
        summary = found.summary
        again = " (again)" if found.trial.again else ""
        weights = " (trained)" if found.is_trained else ""
        sample = summary.sample_us
        table.add_row(
            escape(found.trial.cell) + again + weights,
            summary.mode,
            measured(summary.step_ms.value),
            f"{measured(sample.value)} [{measured(sample.low)}, {measured(sample.high)}]",
            measured(summary.epoch_s.value),
            "" if found.memory is None else f"{found.memory.peak_bytes / MIB:.1f}",
        )
    return table


def mean_told(metric: str, mean: Mean | None) -> str:
    """`97.41 % [96.90, 97.92]`; without an interval for a single seed."""
    if mean is None:
        return "none finite"
    told = metric_value(metric, mean.value)
    if mean.interval is None:
        return told
    scale = 100 if is_share(metric) else 1
    places = 2 if is_share(metric) else 4
    low, high = (f"{scale * v:.{places}f}" for v in (mean.interval.low, mean.interval.high))
    return f"{told} [{low}, {high}]"
