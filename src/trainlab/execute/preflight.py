"""The preflight: what only the machine that runs the trials can say, checked before any of them runs."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from trainlab.data.dataset import Dataset, Loaded
from trainlab.errors import SpecError, TrainlabError, said_by
from trainlab.instruments.probe_listing import check_selectors
from trainlab.machine.device import devices_here, pick_device
from trainlab.machine.host import check_capacity, cpus_text, usable_vcpus
from trainlab.machine.process_state import prepare_process
from trainlab.plan import Trial
from trainlab.spec import Study, TrainSpec
from trainlab.spec.facts import too_large
from trainlab.train.loader import Loader
from trainlab.train.seeds import seeded
from trainlab.train.setup import set_up
from trainlab.train.updates import check_optimizer
from trainlab.watching.script_process import source_of
from trainlab.workloads.user_code import own_line, told_place
from trainlab.workloads.workload import Workload

OF_OPTIMIZER = (
    *("optimizer", "optimizer_options", "optimizer_code"),
    *("momentum", "weight_decay", "schedule"),
)
"""What the workload's own optimizer may do without."""


def preflight(study: Study, load: Loader, *, each_device: bool = False) -> tuple[str, ...]:
    """The devices of this machine, once all that the study needs has been seen to be here: devices,
    optimizers on them, data, probed layers. `each_device`: every cell will run on every device."""
    settings = [cell.settings for cell in study.all_cells]
    check_capacity([one.threads for one in settings], [one.device for one in settings])
    devices = tuple(str(device) for device in devices_here())
    if study.script is not None:
        source_of(Path(study.script.path))
        return devices
    _refuse(process_problems(settings))
    _refuse(_optimizer_problems(settings, devices if each_device else ()))
    prepare_process(base := settings[0])
    whole = base.model_copy(update={"train_samples": None, "val_fraction": 0.0})
    workload, dataset = load.workload(study.workload), load.data(study.workload, whole)
    _refuse(_data_problems(settings, dataset))
    _refuse(_own_update_problems(settings, workload))
    _check_own_optimizer(study, workload)
    _check_models(settings, workload)
    if study.probes:
        trial = Trial(id="probes", workload=study.workload, seed=0, settings=base)
        try:
            check_selectors(study.probes, set_up(trial, workload, dataset))
        except SpecError:
            raise
        except Exception:  # noqa: BLE001, S110  the model's own: its trials will fail and say so
            pass
    return devices


def _refuse(problems: Iterable[str]) -> None:
    """SpecError with all of them, each told once; nothing where there are none."""
    if found := dict.fromkeys(problems):
        raise SpecError(found)


def process_problems(settings: Sequence[TrainSpec]) -> Iterator[str]:
    """Processes of one trial that would share a GPU or a vCPU: they would only wait for each other."""
    for one in (one for one in settings if one.processes > 1):
        device, got = pick_device(one.device), f"processes: got {one.processes}"
        if device.type == "cuda":
            most = torch.cuda.device_count() - (device.index or 0)
            there = f"{'1 GPU' if most == 1 else f'{most} GPUs'} for them"
        elif device.type == "cpu":
            vcpus, threads = usable_vcpus(), one.threads or 1
            most = max(1, vcpus // threads)
            each = f"with --threads {threads} each" if threads > 1 else "for them"
            there = f"{cpus_text(vcpus)} {each}"
        else:
            yield f"{got}, but they need a CPU or NVIDIA GPUs; use --device cpu"
            continue
        if one.processes > most:
            yield f"{got}, but this machine has {there}; use at most {most}"


def _optimizer_problems(settings: Sequence[TrainSpec], devices: Sequence[str]) -> Iterator[str]:
    for one in settings:
        for device in devices or (one.device,):
            try:
                check_optimizer(one, pick_device(device))
            except TrainlabError as error:
                yield from str(error).splitlines()


def _data_problems(settings: Sequence[TrainSpec], dataset: Dataset) -> Iterator[str]:
    what = f"{dataset.name} ({dataset.source})" if dataset.source else dataset.name
    # Of data that are counted as they come, it shows then.
    is_counted = isinstance(dataset.train, Loaded) and dataset.train.is_counted
    for one in settings:
        # A batch of more samples than there are would silently be a smaller one.
        if not is_counted and (problem := too_large(one, len(dataset.train), what)):
            yield problem
        # Deciding by the test set would make its result better than it is.
        for name in ("patience", "keep_best"):
            if getattr(one, name) and not one.val_fraction and dataset.val is None:
                rule = "decides by a validation set, and there is none"
                yield f"{name}: {rule}; add val_fraction, as 0.1, or give the Dataset a `val`"


def _own_update_problems(settings: Sequence[TrainSpec], workload: Workload) -> Iterator[str]:
    """What our update does, the workload's own would silently not do."""
    for one in settings if workload.update is not None else ():
        for name in one.set_beyond("own_update"):
            rule = "but the workload's own update makes its steps; do it there, or give a `step`"
            yield f"{name}: got {getattr(one, name)}, {rule}"
        if one.precision == "fp16":
            yield "precision: got fp16, but the workload has its own update; use bf16"


class _Read:
    """Settings that remember which of them were asked for."""

    def __init__(self, settings: TrainSpec) -> None:
        self._settings, self.names = settings, set[str]()

    def __getattr__(self, name: str) -> Any:
        self.names.add(name)
        return getattr(self._settings, name)


def _check_own_optimizer(study: Study, workload: Workload) -> None:
    """SpecError for a factor that the workload's own optimizer never looks at: it would change nothing."""
    varied = {factor.partition(".")[0] for factor in study.factors}.intersection(OF_OPTIMIZER)
    if workload.optimizer is None or not varied:
        return
    settings = study.all_cells[0].settings
    read = _Read(settings)
    try:
        with seeded(0, "weights"):
            workload.optimizer(workload.build(settings.model), read)
    except Exception:  # noqa: BLE001  the user's code: its trials will fail and say so
        return
    if unread := sorted(varied - read.names) if "model_dump" not in read.names else []:
        rule = "but the workload's own optimizer does not read it"
        remedy = f"use settings.{unread[0]} there, or leave it out"
        raise SpecError([f"vary.{unread[0]}: is varied, {rule}; {remedy}"])


def _check_models(settings: Sequence[TrainSpec], workload: Workload) -> None:
    """Makes the model of every cell once: parameters that it cannot have are known before a run is."""
    asked = {", ".join(f"{n}={v}" for n, v in one.model.items()): one.model for one in settings}
    problems: dict[str, BaseException | None] = {}
    for written, parameters in asked.items():
        try:
            with seeded(0, "weights"):
                workload.build(parameters)
        except TrainlabError as error:
            problems[str(error)] = None
        except (Exception, SystemExit) as error:  # noqa: BLE001  the user's code may raise anything
            reason = f"{type(error).__name__}: {said_by(error)}".partition("\n")[0]
            line = told_place(own_line(error, workload.place) or workload.place)
            problems[f"model({written}): {line}{reason}"] = error
    if problems:
        # Its traceback is told as well.
        raise SpecError(problems) from next(filter(None, problems.values()), None)
