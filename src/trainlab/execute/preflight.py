"""The preflight: what only the machine that runs the trials can say, checked before any of them runs."""

import linecache
import os
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import torch

from trainlab import errors
from trainlab.data.dataset import Dataset, Loaded
from trainlab.data.fetch import report
from trainlab.errors import SpecError, TrainlabError, WorkloadError, said_by
from trainlab.execute.launch import DONE_S, TAIL_BYTES, Job, JobProcess, Launcher
from trainlab.instruments.probe_targets import check_selectors
from trainlab.machine.device import devices_here, pick_device
from trainlab.machine.host import check_capacity, cpus_text, usable_vcpus
from trainlab.machine.process_state import prepare_process
from trainlab.plan import Trial
from trainlab.spec import Study, TrainSpec
from trainlab.spec.facts import WorkloadFacts, too_large
from trainlab.train.loader import Loader
from trainlab.train.optimizers import check_optimizer
from trainlab.train.seeds import seeded
from trainlab.train.setup import set_up
from trainlab.watching.script_process import check_script
from trainlab.workloads.user_code import (
    ToldMistakeError,
    UserMistake,
    about_to_run,
    is_own,
    mistake_in,
    told_place,
)
from trainlab.workloads.workload import Workload, line_in_file

FIRST_STEP = "first_step"
"""What is about to run where probed layers are looked at: all that a step takes."""


def preflight(study: Study, load: Loader, *, each_device: bool = False) -> tuple[str, ...]:
    """The devices of this machine, once all that the study needs has been seen to be here: devices,
    optimizers on them, data, probed layers. `each_device`: every cell will run on every device."""
    check_capacity(
        [cell.settings.threads for cell in study.all_cells],
        [cell.settings.device for cell in study.all_cells],
    )
    if study.script is not None:
        check_script(study.script)
        return tuple(str(device) for device in devices_here())
    check_processes(study)
    devices = tuple(str(device) for device in devices_here())
    _check_cells(study, devices if each_device else ())
    base = study.all_cells[0].settings
    prepare_process(base)
    whole = base.model_copy(update={"train_samples": None, "val_fraction": 0.0})
    workload, dataset = load.workload(study.workload), load.data(study.workload, whole)
    _check_batches(study, dataset)
    _check_validation(study, dataset)
    _check_own_update(study, workload)
    _check_own_optimizer(study, workload)
    _check_models(study, workload)
    if study.probes:
        about_to_run(FIRST_STEP)
        trial = Trial(id="probes", workload=study.workload, seed=0, settings=base)
        try:
            check_selectors(study.probes, set_up(trial, workload, dataset))
        except SpecError:
            raise
        except Exception:  # noqa: BLE001, S110  the model's own: its trials will fail and say so
            pass
    return devices


def check_processes(study: Study) -> None:
    """SpecError where processes of one trial would share a GPU or a vCPU: they would only wait for each
    other."""
    asking = (cell.settings for cell in study.all_cells if cell.settings.processes > 1)
    if problems := list(filter(None, map(_process_problem, asking))):
        raise SpecError(dict.fromkeys(problems))


def _process_problem(settings: TrainSpec) -> str | None:
    device, got = pick_device(settings.device), f"processes: got {settings.processes}"
    if device.type == "cuda":
        most = torch.cuda.device_count() - (device.index or 0)
        there = f"{'1 GPU' if most == 1 else f'{most} GPUs'} for them"
    elif device.type == "cpu":
        vcpus, threads = usable_vcpus(), settings.threads or 1
        most = max(1, vcpus // threads)
        each = f"with --threads {threads} each" if threads > 1 else "for them"
        there = f"{cpus_text(vcpus)} {each}"
    else:
        return f"{got}, but they need a CPU or NVIDIA GPUs; use --device cpu"
    if settings.processes <= most:
        return None
    return f"{got}, but this machine has {there}; use at most {most}"


def _check_batches(study: Study, dataset: Dataset) -> None:
    """A batch of more samples than there are would silently be a smaller one."""
    if isinstance(dataset.train, Loaded) and dataset.train.is_counted:
        return  # how many there are shows when they have come
    what = f"{dataset.name} ({dataset.source})" if dataset.source else dataset.name
    found = (too_large(cell.settings, len(dataset.train), what) for cell in study.all_cells)
    if problems := list(dict.fromkeys(filter(None, found))):
        raise SpecError(problems)


def _check_validation(study: Study, dataset: Dataset) -> None:
    """Deciding by the test set would make its result better than it is."""
    has_none = [
        one
        for cell in study.all_cells
        if not (one := cell.settings).val_fraction and not dataset.val
    ]
    deciding = {n for one in has_none for n in ("patience", "keep_best") if getattr(one, n)}
    if deciding:
        remedy = "add val_fraction, as 0.1, or give the Dataset a `val`"
        raise SpecError(
            [
                f"{name}: decides by a validation set, and there is none; {remedy}"
                for name in deciding
            ]
        )


def _check_own_update(study: Study, workload: Workload) -> None:
    """What our update does, the workload's own would silently not do."""
    if workload.update is None:
        return
    for cell in study.all_cells:
        for name in cell.settings.set_beyond("own_update"):
            rule = "but the workload's own update makes its steps; do it there, or give a `step`"
            raise SpecError([f"{name}: got {getattr(cell.settings, name)}, {rule}"])
        if cell.settings.precision == "fp16":
            raise SpecError(["precision: got fp16, but the workload has its own update; use bf16"])


class _Read:
    """Settings that remember which of them were asked for."""

    def __init__(self, settings: TrainSpec) -> None:
        self._settings, self.names = settings, set[str]()

    def __getattr__(self, name: str) -> Any:
        self.names.add(name)
        return getattr(self._settings, name)


OF_OPTIMIZER = (
    "optimizer",
    "optimizer_options",
    "optimizer_code",
    "momentum",
    "weight_decay",
    "schedule",
)
"""What the workload's own optimizer may do without."""


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


def _check_models(study: Study, workload: Workload) -> None:
    """Makes the model of every cell once: parameters that it cannot have are known before a run is."""
    problems: dict[str, str] = {}
    first: BaseException | None = None
    for cell in study.all_cells:
        parameters = cell.settings.model
        written = ", ".join(f"{name}={value}" for name, value in parameters.items())
        if written in problems:
            continue
        try:
            with seeded(0, "weights"):
                workload.build(parameters)
        except TrainlabError as error:
            problems[written] = str(error)
        except (Exception, SystemExit) as error:  # noqa: BLE001  the user's code may raise anything
            reason = f"{type(error).__name__}: {said_by(error)}".partition("\n")[0]
            line = line_in_file(error, workload.model) or told_place(workload.place)
            problems[written] = f"model({written}): {line}{reason}"
            first = first or error
        else:
            problems[written] = ""
    if raised := list(dict.fromkeys(filter(None, problems.values()))):
        raise SpecError(raised) from first


def _check_cells(study: Study, devices: Sequence[str]) -> None:
    """Every problem is told, not only the first."""
    problems: list[str] = []
    for cell in study.all_cells:
        for device in devices or (cell.settings.device,):
            problems += _problems(cell.settings, device)
    if problems:
        raise SpecError(list(dict.fromkeys(problems)))


def _problems(settings: TrainSpec, device: str) -> Sequence[str]:
    try:
        check_optimizer(settings, pick_device(device))
    except SpecError as error:
        return error.problems
    except TrainlabError as error:
        return [str(error)]
    return []


def told_error(error: BaseException) -> dict[str, Any] | None:
    """The error of a preflight as JSON, with its lines and where in the user's code it came from; None
    where it is neither ours nor a mistake there."""
    mistake = mistake_in(error)
    if isinstance(error, TrainlabError):
        kind, lines = type(error).__name__, [str(error)]
        if isinstance(error, SpecError):
            lines = list(error.problems)
    elif mistake is not None:
        kind, lines = WorkloadError.__name__, [str(mistake)]
    else:
        return None
    return {"error": kind, "lines": lines, "mistake": mistake and asdict(mistake)}


def raise_told(told: Mapping[str, Any]) -> None:
    """Raises the error that `told_error` told, if it is one."""
    if "error" not in told:
        return
    kind: type[TrainlabError] = getattr(errors, told["error"], TrainlabError)
    lines, mistake = told["lines"], told.get("mistake")
    error = SpecError(lines) if kind is SpecError else kind("\n".join(lines))
    raise error from (None if mistake is None else ToldMistakeError(UserMistake(**mistake)))


# The preflight of a user's own workload, in a process of its own: her code may crash or hang there, which

DOING = {
    "": "starting",
    "import": "importing the file",
    "data": "loading the data",
    "model": "building the model",
    FIRST_STEP: "making the first step",
}
"""What is done, by the field of the workload that runs."""
BEGIN = re.compile(rb"^(?:Fatal Python error: |(?:Current thread|Thread) 0x)", re.MULTILINE)
CURRENT = re.compile(r"^Current thread 0x.*\n((?:  .*\n)*)", re.MULTILINE)
FRAME = re.compile(r'  File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>.*)')
"""What Python's fault handler writes of a process that crashed or hung."""


class CheckingProcess:
    """Started when first asked; to be closed."""

    def __init__(
        self, launcher: Launcher, files: Mapping[str, str], limit_s: float | None = None
    ) -> None:
        """`limit_s`: how long any part of the checks may take, a download not counted."""
        self._launcher, self._limit_s = launcher, limit_s
        self._job = Job(threads=launcher.threads, files=dict(files))
        self._process: JobProcess | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="trainlab-checks-")
        self._log = Path(self._folder.name, "log")
        self._num_shown = 0
        """Bytes of the log that the user has seen."""
        self._doing = ""

    def facts(self, workload: str) -> WorkloadFacts:
        """What a study needs to know of a workload."""
        told = self._ask(workload, "facts", workload)
        names = ("parameters", "metrics", "loss_parameters", "data_parameters")
        listed = {name: None if told[name] is None else tuple(told[name]) for name in names}
        return WorkloadFacts(**told | listed)

    def preflight(self, study: Study, *, each_device: bool) -> tuple[tuple[str, ...], str | None]:
        """The devices of this machine, and the fingerprint of the workload's code."""
        told = self._ask(study.workload, "preflight", study.model_dump_json(), each_device)
        return tuple(told["devices"]), told["code"]

    def close(self) -> None:
        """Ends the process; one that has nothing to do leaves by itself."""
        if self._process is not None:
            self._process.tell()
            self._process.end_within(DONE_S)
        self._end()
        self._folder.cleanup()

    def _ask(self, workload: str, *command: object) -> Any:
        try:
            told = self._told(*command)
            if told is None:
                self._raise_exit(workload)
        except BaseException:
            self._end()  # whatever it does
            raise
        finally:
            self._show(self._printed())
        if "defect" in told:
            raise RuntimeError(told["defect"])
        raise_told(told)
        for name, value in told["environment"].items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        return told["answer"]

    def _told(self, *command: object) -> dict[str, Any] | None:
        """The answer; None where the process has died or was ended for taking too long."""
        if self._process is None:
            self._process = JobProcess(self._launcher, self._job, self._log, self._limit_s)
            if self._process.receive() is None:
                return None
        self._doing, process = "", self._process
        process.restart_clock()
        process.tell(*command)
        while (told := process.receive()) is not None:
            if "doing" in told:
                self._doing = told["doing"]
            elif "download" in told:
                report(*told["download"])
            else:
                return told
            process.restart_clock()
        return None

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None

    def _raise_exit(self, workload: str) -> NoReturn:
        assert self._process is not None
        what = DOING.get(self._doing) or f"running {self._doing}"
        ended = self._process.exit()
        reason = ended.reason if ended.ran_out_of_memory else ended.failure("").message
        message = f"{what} failed before any trial: {reason}"
        printed, line, trace = fault_in(self._printed())
        self._show(printed)
        mistake = UserMistake(self._doing, line, "ProcessDied", message, trace)
        raise WorkloadError(f"{line or workload}: {message}") from ToldMistakeError(mistake)

    def _printed(self) -> bytes:
        """What the user's code has printed and the user has not seen."""
        printed = self._log.read_bytes()[self._num_shown :] if self._log.exists() else b""
        self._num_shown += len(printed)
        return printed

    def _show(self, printed: bytes) -> None:
        """The end of it goes to this process's errors."""
        if printed:
            shown = printed[-TAIL_BYTES:].decode("utf-8", "backslashreplace")
            sys.stderr.write(shown if shown.endswith("\n") else f"{shown}\n")
            sys.stderr.flush()


def fault_in(log: bytes) -> tuple[bytes, str, str]:
    """What was printed before a fault; `file.py:12`, the innermost line of the user's code then; and her
    lines, as Python shows a traceback. All of it is what was printed where it tells of none in her code."""
    begin = BEGIN.search(log)
    if begin is None:
        return log, "", ""
    current = CURRENT.search(log[begin.start() :].decode("utf-8", "replace"))
    frames = FRAME.finditer(current[1]) if current else ()
    own = [one for one in frames if not one["file"].startswith("<") and is_own(one["file"])]
    if not own:
        return log, "", ""
    trace = ""
    for frame in reversed(own):
        trace += f'  File "{frame["file"]}", line {frame["line"]}, in {frame["function"]}\n'
        if source := linecache.getline(frame["file"], int(frame["line"])).strip():
            trace += f"    {source}\n"
    return log[: begin.start()], f"{Path(own[0]['file']).name}:{own[0]['line']}", trace
