"""Probes in TensorBoard: numbers as scalars, histograms as TensorBoard's own."""

import math
from itertools import pairwise

from torch.utils.tensorboard import SummaryWriter

from trainlab.record.learning_record import HistogramRecord, ProbeRecord, probe_tag
from trainlab.spec.probe import Bins


def write_probe(writer: SummaryWriter, record: ProbeRecord, samples: int) -> None:
    """Adds one record at the samples seen by its end; not finite ones are left out."""
    tag = probe_tag(record.quantity, record.reducer, record.every, record.target)
    if record.histogram is not None:
        _write_histogram(writer, tag, record.histogram, samples)
    elif record.value is not None:
        writer.add_scalar(tag, record.value, samples)


def _write_histogram(
    writer: SummaryWriter, tag: str, histogram: HistogramRecord, samples: int
) -> None:
    """Log bins are drawn over the exponent of ten: over the value itself they could not be seen."""
    bins = Bins(
        log=histogram.log, low=histogram.low, high=histogram.high, num=len(histogram.counts)
    )
    edges = [math.log10(edge) for edge in bins.edges()] if histogram.log else bins.edges()
    middles = [(low + high) / 2 for low, high in pairwise(edges)]
    writer.add_histogram_raw(
        f"{tag} log10" if histogram.log else tag,
        min=edges[0],
        max=edges[-1],
        num=sum(histogram.counts),
        sum=sum(n * x for n, x in zip(histogram.counts, middles, strict=True)),
        sum_squares=sum(n * x * x for n, x in zip(histogram.counts, middles, strict=True)),
        bucket_limits=edges[1:],
        bucket_counts=histogram.counts,
        global_step=samples,
    )
