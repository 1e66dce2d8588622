"""Probes in TensorBoard: numbers as scalars, histograms as TensorBoard's own."""

import math
from itertools import pairwise

from torch.utils.tensorboard import SummaryWriter

from trainlab.record.probe import HistogramRecord, ProbeRecord
from trainlab.spec.probe import Bins


def write_probe(writer: SummaryWriter, record: ProbeRecord) -> None:
    """Adds one record, under `probe/<quantity>:<reducer>/<layer>`; not finite ones are left out."""
    tag = f"probe/{record.quantity}:{record.reducer.partition('(')[0]}/{record.target}"
    if record.histogram is not None:
        _write_histogram(writer, tag, record.histogram, record.step)
    elif record.value is not None:
        writer.add_scalar(tag, record.value, record.step)


def _write_histogram(writer: SummaryWriter, tag: str, found: HistogramRecord, step: int) -> None:
    """Log bins are drawn over the exponent of ten: over the value itself they could not be seen."""
    bins = Bins(log=found.log, low=found.low, high=found.high, num=len(found.counts))
    edges = [math.log10(edge) for edge in bins.edges()] if found.log else bins.edges()
    middles = [(low + high) / 2 for low, high in pairwise(edges)]
    writer.add_histogram_raw(
        f"{tag} log10" if found.log else tag,
        min=edges[0],
        max=edges[-1],
        num=sum(found.counts),
        sum=sum(n * x for n, x in zip(found.counts, middles, strict=True)),
        sum_squares=sum(n * x * x for n, x in zip(found.counts, middles, strict=True)),
        bucket_limits=edges[1:],
        bucket_counts=found.counts,
        global_step=step,
    )
