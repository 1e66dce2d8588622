"""Keras' own training, whatever runs it (JAX, TensorFlow or torch): `fit`, `evaluate`, `predict` and
`train_on_batch` of a model, told to the tracer.

Keras itself tells of its batches, epochs and tests. A step is one part: forward, backward and update are
not told apart, not even where torch runs it, whose calls are not heard meanwhile. Nothing is added to the
script's list of callbacks: one more could change when the others run.
"""

import math
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any

from torch.utils.data import DataLoader

from trainlab.instruments.calls import Patches
from trainlab.record.script_record import ModelRow
from trainlab.watching.step_log import SeenLoader, SeenOptimizer, StepLog
from trainlab.watching.timeline import DATA, EVALUATION, OTHER, TRAIN_STEP

EPOCHS = "keras.src.trainers.epoch_iterator"
"""Where Keras goes through its data; not public, and without it data is not seen."""
MODULES = {"jax": "JAX", "tensorflow": "TensorFlow", "torch": "PyTorch", "openvino": "OpenVINO"}
"""The back ends by the names of their modules."""


class KerasFit:
    """Of the thread that made it."""

    def __init__(self, tracer: Any, patches: Patches, set_aside: Callable[[bool], None]) -> None:
        """`set_aside`: has torch's calls not heard, or heard again."""
        self._tracer, self._patches, self._set_aside = tracer, patches, set_aside
        self._thread = threading.get_ident()
        self._keras: Any = None
        self._under_way: list[str] = []
        """The methods of models that run, the outermost first."""
        self._model: Any = None
        self._data: SeenLoader | None = None
        """What `fit` trains on."""
        self._other_data: SeenLoader | None = None
        """What a method went through last, and did not train on."""
        self._size = 0
        """Samples fetched for the step that comes."""
        self._is_in_epoch = self._is_validation = False
        self._part: int | None = None
        """That of the timeline which has begun and not ended."""
        self._optimizers: weakref.WeakKeyDictionary[Any, SeenOptimizer]
        self._optimizers = weakref.WeakKeyDictionary()
        self._models: weakref.WeakSet[Any] = weakref.WeakSet()

    def see(self, keras: Any) -> None:
        """Keras has been imported."""
        self._keras = keras
        for name in ("fit", "evaluate", "predict", "train_on_batch"):
            self._see_method(keras.Model, name)
        for name in ("on_train_batch_begin", "on_epoch_begin"):
            self._see_call(name, getattr(self, name), is_before=False)
        for name in ("on_train_batch_end", "on_epoch_end", "on_test_end"):
            self._see_call(name, getattr(self, name), is_before=True)
        iterator = getattr(sys.modules.get(EPOCHS), "EpochIterator", None)
        if iterator is not None:
            original = iterator.__init__

            @wraps(original)
            def made(own: Any, *arguments: Any, **options: Any) -> None:
                original(own, *arguments, **options)
                if self._is_heard:
                    self._see_data(own, options)

            self._patches.put(iterator, "__init__", made)

    @property
    def _is_heard(self) -> bool:
        return bool(self._under_way) and threading.get_ident() == self._thread

    def _see_method(self, owner: Any, name: str) -> None:
        original = getattr(owner, name)
        trains = name == "train_on_batch"

        @wraps(original)
        def seen(model: Any, *arguments: Any, **options: Any) -> Any:
            if threading.get_ident() != self._thread:
                return original(model, *arguments, **options)
            with self._running(name, model, options):
                result = original(model, *arguments, **options)
                if trains:
                    self._trained_on_batch(result, arguments, options)
            return result

        self._patches.put(owner, name, seen)

    def _see_call(self, name: str, tell: Callable[..., None], *, is_before: bool) -> None:
        """Of the list of callbacks, which calls those of the script then."""
        owner = self._keras.callbacks.CallbackList
        original = getattr(owner, name)

        @wraps(original)
        def seen(callbacks: Any, *arguments: Any, **options: Any) -> Any:
            if is_before and self._is_heard:
                tell(*arguments, **options)
            result = original(callbacks, *arguments, **options)
            if not is_before and self._is_heard:
                tell(*arguments, **options)
            return result

        self._patches.put(owner, name, seen)

    @contextmanager
    def _running(self, name: str, model: Any, options: Mapping[str, Any]) -> Iterator[None]:
        """While the method runs, however it ends."""
        timeline, is_test = self._tracer.timeline, name in ("evaluate", "predict")
        before = self._model, self._data, self._is_in_epoch
        self._set_aside(True)
        self._under_way.append(name)
        if is_test:
            self._is_validation = "_use_cached_eval_dataset" in options
            timeline.begin(EVALUATION)
        else:
            self._model, self._data, self._is_in_epoch = model, None, False
        if name == "train_on_batch":
            if self._tracer.log.loader is not None:  # the epochs of a `fit` are over
                self._tracer.log.epoch_begins(None)
            self._begin(TRAIN_STEP)
        try:
            yield
        finally:
            if is_test:
                timeline.test_ends()
                if self._other_data is not None:
                    self._other_data.num_passes += 1
                    self._other_data.num_given += self._other_data.num_batches or 0
            else:
                self._end()
                self._model, self._data, self._is_in_epoch = before
            self._under_way.pop()
            self._set_aside(bool(self._under_way))

    def _see_data(self, epochs: Any, options: Mapping[str, Any]) -> None:
        """What a method goes through its data by: the first in `fit` is what it trains on."""
        seen = self._loader_of(epochs.data_adapter, options)
        if self._under_way[-1] == "fit" and self._data is None:
            self._data = seen
        else:
            self._other_data = seen
        if self._keras.backend.backend() != "tensorflow":  # which fetches within its own graph
            batches = epochs._get_iterator
            # Iterated at once, as Keras does: a loader of torch's draws a random number then.
            epochs._get_iterator = lambda: self._fetched(iter(batches()), seen)

    def _loader_of(self, adapter: Any, options: Mapping[str, Any]) -> SeenLoader:
        data, size, number = options.get("x"), adapter.batch_size, adapter.num_batches
        log: StepLog = self._tracer.log
        if isinstance(data, DataLoader):
            return log.like_loader(SeenLoader.of(data))
        is_array, samples = type(adapter).__name__ == "ArrayDataAdapter", None
        if is_array and number:
            samples = (number - 1) * size + (adapter.partial_batch_size or size)
        order = ("shuffled" if options.get("shuffle") else "in order") if is_array else "own"
        workers = getattr(data, "workers", 0)
        seen = SeenLoader(size, samples, number, workers, False, order, False, samples)
        with suppress(TypeError):
            seen.data = weakref.ref(data)
        return log.like_loader(seen)

    def _fetched(self, batches: Iterator[Any], seen: SeenLoader) -> Iterator[Any]:
        """The batches; the wait for those that are trained on is seen."""
        timeline = self._tracer.timeline
        while True:
            is_heard = self._is_heard and self._is_in_epoch and seen is self._data
            if is_heard:
                timeline.begin(DATA)
                self._tracer.num_fetched += 1
            try:
                batch = next(batches)
            except StopIteration:
                return
            finally:
                if is_heard:
                    timeline.end(OTHER)
            if is_heard:
                self._size += self._samples_in(batch)
            yield batch

    def _samples_in(self, batch: Any) -> int:
        first = next(
            (one for one in self._keras.tree.flatten(batch) if hasattr(one, "shape")), None
        )
        return int(first.shape[0]) if first is not None and len(first.shape) else 0

    # What Keras tells: the names are those of its callbacks.

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self._under_way[-1] != "fit":
            return
        self._end()
        self._tracer.num_fetched += 1  # its first step holds more than others: it is set aside
        if self._model.built:  # else the first step makes its weights
            self._see_model()
        self._tracer.log.epoch_begins(self._data)
        self._is_in_epoch, self._size = True, 0
        self._begin(DATA)  # what gives the batches is made

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._begin(TRAIN_STEP)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        values = self._values(logs)  # waits for the step
        if self._data is not None and self._data.batch_size is None and not self._size:
            # The first step of TensorFlow on a data set of its own: the mean loss is over samples.
            with suppress(AttributeError, TypeError, ValueError):
                self._data.batch_size = int(self._model._loss_tracker.count) or None
        self._step_ends(values, are_means=True)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self._under_way[-1] != "fit":
            return
        self._end()
        if self._data is not None:
            self._data.has_run_out = True
        self._tell(self._values(logs), are_means=True)

    def on_test_end(self, logs: Any = None) -> None:
        """Those of a validation come with the epoch."""
        if not self._is_validation:
            told = self._values(logs)
            self._tell({f"test/{name.partition('/')[2]}": value for name, value in told.items()})

    def _values(self, logs: Any) -> dict[str, float]:
        """As `train/loss`, and `val/loss` of `val_loss`."""
        found = dict[str, float]()
        for name, value in (logs or {}).items():
            if isinstance(value, Mapping):
                found |= self._values(value)
                continue
            part = "val" if name.startswith("val_") else "train"
            with suppress(TypeError, ValueError):
                number = float(self._keras.ops.convert_to_numpy(value))
                found[f"{part}/{name.removeprefix('val_')}"] = number
        return found

    def _tell(self, values: Mapping[str, float], *, are_means: bool = False) -> None:
        if self._tracer.on_logs is not None and values:
            self._tracer.on_logs(values, are_means=are_means)

    def _begin(self, part: int) -> None:
        self._end()
        self._part = part
        self._tracer.timeline.begin(part)

    def _end(self) -> None:
        """The step has ended, or had no data any more, or raised."""
        if self._part is not None:
            self._part = None
            self._tracer.timeline.end(OTHER)

    def _step_ends(self, values: Mapping[str, float], *, are_means: bool) -> None:
        self._end()
        if self._model not in self._models:
            self._see_model()
        log, size, self._size = self._tracer.log, self._size, 0
        log.fitted(self._data, size)
        optimizer = self._optimizers.get(self._model.optimizer)
        if optimizer is not None:
            optimizer.num_steps, optimizer.last_step = optimizer.num_steps + 1, len(log.samples)
        try:
            self._tracer.step_fitted(values.get("train/loss", math.nan))
        finally:
            self._tell(values, are_means=are_means)

    def _trained_on_batch(self, result: Any, arguments: Any, options: Mapping[str, Any]) -> None:
        """Its metrics are those of this batch alone."""
        values = result if isinstance(result, Mapping) else {"loss": self._first(result)}
        self._see_model()
        self._size = self._samples_in(arguments[0] if arguments else options.get("x"))
        self._step_ends(self._values(values), are_means=False)

    @staticmethod
    def _first(result: Any) -> Any:
        return result[0] if isinstance(result, list | tuple) else result

    def _see_model(self) -> None:
        """The model and its optimizer, which may be new; the learning rate of now."""
        model, log = self._model, self._tracer.log
        is_first = not log.models
        if model not in self._models:
            self._models.add(model)
            name, self._tracer.log.framework = self._back_end()
            parameters = sum(math.prod(one.shape) for one in model.weights)
            types = [model.dtype_policy.name]
            log.models.append(
                ModelRow(
                    name=type(model).__name__,
                    num_parameters=parameters,
                    devices=[self._device(name)],
                    dtypes=types,
                    is_compiled=False,
                )
            )
            log.num_parameters = max(log.num_parameters, parameters)
        lr = None
        with suppress(TypeError, ValueError):
            rate = model.optimizer.learning_rate
            lr = float(f"{float(self._keras.ops.convert_to_numpy(rate)):.7g}")
        seen = self._optimizers.get(model.optimizer)
        if seen is None:
            first = len(log.samples)
            seen = SeenOptimizer(
                type(model.optimizer).__name__, lr, "auto", is_of_new=not is_first, first_step=first
            )
            self._optimizers[model.optimizer] = seen
            log.optimizers.append(seen)
        seen.see_lrs([{"lr": lr}])

    def _back_end(self) -> tuple[str, str]:
        """Its name, and how both are called with their versions."""
        name = self._keras.backend.backend()
        version = getattr(sys.modules.get(name), "__version__", "")
        back_end = f"{MODULES.get(name, name)} {version}".strip()
        return name, f"Keras {self._keras.__version__}, {back_end}"

    def _device(self, back_end: str) -> str:
        """What the back end computes on."""
        kind = "cpu"
        if back_end == "jax":
            kind = sys.modules["jax"].default_backend()
        elif back_end == "tensorflow" and sys.modules["tensorflow"].config.list_logical_devices(
            "GPU"
        ):
            kind = "gpu"
        elif back_end == "torch":
            kind = self._model.trainable_variables[0].value.device.type
        return "cuda" if kind == "gpu" else str(kind)
