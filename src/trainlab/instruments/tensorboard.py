"""TensorBoard event files: scalars, sample inputs, the network graph, hyper-parameters.

What TensorBoard calls a step is the number of training samples seen, so that curves of different batch
sizes lie beside each other.
"""

import contextlib
import io
import logging
import math
import warnings
from itertools import pairwise
from typing import Any

import torch
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from trainlab.errors import reason_in
from trainlab.record.files import writing
from trainlab.record.learning_record import ProbeRecord, metric_tag
from trainlab.record.trial_record import FINISHED, Progress
from trainlab.spec.probe import Bins
from trainlab.train.callbacks import Instrument, Point, TrialView


def write_probe(writer: SummaryWriter, record: ProbeRecord, samples: int) -> None:
    """Adds one record at the samples seen by its end; not finite ones are left out. Log bins are drawn over
    the exponent of ten: over the value itself they could not be seen."""
    tag = f"probe/{record.quantity}:{record.reducer}@{record.every}/{record.target}"
    if record.value is not None:
        writer.add_scalar(tag, record.value, samples)
    if (histogram := record.histogram) is None:
        return
    num = len(histogram.counts)
    bins = Bins(log=histogram.log, low=histogram.low, high=histogram.high, num=num)
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


NUM_SAMPLES = 64
"""Of inputs that are drawn, eight in a row."""
HYPER_PARAMETERS = ("batch_size", "epochs", "optimizer", "precision")
"""Settings shown beside what the study varies: TensorBoard's table begins with the first few of all."""


class TensorBoard(Instrument):
    """Writes what TensorBoard shows; what it cannot show is noted in the trial's record."""

    goes_on = True

    def __init__(self, *, shows_samples: bool = True) -> None:
        """`shows_samples`: whether to draw sample inputs; one trial of a study does, they are the same."""
        self._shows_samples = shows_samples

    def trial_begins(self, view: TrialView) -> None:
        super().trial_begins(view)
        self._path = view.folder.tensorboard_folder
        with writing(self._path):
            if view.steps_before:
                # What was written after the checkpoint comes once more.
                first = view.samples_by(view.steps_before) + 1
                self._writer = SummaryWriter(str(self._path), purge_step=first)
                return
            self._writer = SummaryWriter(str(self._path))
            if self._shows_samples:
                inputs = view.stored_inputs(NUM_SAMPLES)
                if inputs is not None and inputs.dim() == 4 and inputs.shape[1] in (1, 3):
                    self._writer.add_images("samples/test", inputs, 0)

    def point_logged(self, point: Point) -> None:
        # Apart from the epoch's own: their last points fall on the same place.
        self._write_scalars({f"step/{metric_tag(n)}": v for n, v in point.metrics.items()}, point)

    def epoch_ends(self, point: Point) -> None:
        metrics = {metric_tag(name): value for name, value in point.metrics.items()}
        self._write_scalars(metrics | {f"time/{n}": v for n, v in point.times_s.items()}, point)

    def flush(self) -> None:
        with writing(self._path):
            self._writer.flush()

    def probe_logged(self, record: ProbeRecord) -> None:
        with writing(self._path):
            write_probe(self._writer, record, self._view.samples_by(record.step))

    def trial_ends(self, progress: Progress) -> None:
        with writing(self._path):
            if progress.state in FINISHED:
                self._write_graph()
            self._write_hyper_parameters(progress)
            self._writer.close()

    def _write_scalars(self, values: dict[str, float], point: Point) -> None:
        with writing(self._path):
            for name, value in values.items():
                self._writer.add_scalar(name, value, point.samples)

    def _write_graph(self) -> None:
        view = self._view
        try:
            with (
                torch.random.fork_rng(devices=[view.device] if view.device.type == "cuda" else []),
                warnings.catch_warnings(),
                contextlib.redirect_stdout(io.StringIO()),
            ):
                warnings.simplefilter("ignore")
                # The tracer also raises what it logs, and that goes into the record.
                logging.disable(logging.CRITICAL)
                model, (arguments, named) = view.model_call(2)
                if named:
                    raise TypeError(
                        "TensorBoard traces a model that is called by place, not by name"
                    )
                self._writer.add_graph(model.eval(), arguments)
        except Exception as error:  # noqa: BLE001  the user's model may raise anything
            view.note("graph_failed", kind=type(error).__name__, reason=reason_in(error))
        finally:
            logging.disable(logging.NOTSET)

    def _write_hyper_parameters(self, progress: Progress) -> None:
        """Its metrics are the curves that are there already: their last values."""
        metrics = {metric_tag(name): value for name, value in progress.final.items() if "/" in name}
        if not metrics:
            return
        values = {n: v for n, v in self._hyper_parameters().items() if v is not None}
        # Into this writer: SummaryWriter.add_hparams would open a second run beside it.
        for summary in hparams(values, metrics):
            self._writer._get_file_writer().add_summary(summary)

    def _hyper_parameters(self) -> dict[str, Any]:
        """What the trial was asked to do."""
        trial, settings = self._view.trial, self._view.trial.settings
        values: dict[str, Any] = settings.model_dump(include=set(HYPER_PARAMETERS))
        values |= settings.optimizer_options | settings.model | trial.levels
        values |= {"lr": settings.start_lr, "seed": trial.seed, "workload": trial.workload}
        return values | {"device": str(self._view.device)}
