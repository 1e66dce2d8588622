"""Jobs: how many learn trials run side by side, and with how many threads each.

The number of threads changes rounding, so it is the same for all trials of a run, however many happen to
run at a moment, and no machine is asked for more threads than it has vCPUs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from trainlab.errors import SpecError
from trainlab.machine.host import copies_that_fit, cpus_text, usable_vcpus
from trainlab.plan import Group
from trainlab.spec import Study
from trainlab.spec.base import did_you_mean

EXECUTORS: Mapping[str, str] = {
    "local": "this machine: a process for every group of trials, those that learn the same way in one",
    "inline": "this process alone, for debugging",
    "processes": "this machine, a fresh process for every group of trials",
    "ray": "a Ray cluster (ray://HEAD:10001, ray:ADDRESS), or one started here",
    "slurm": "a Slurm cluster, from a machine that has its commands",
}
"""Where trials can run, by the names that `--on` takes."""
CLUSTERS = frozenset({"ray", "slurm"})
"""Those that run trials elsewhere; an address or options may follow their name."""
AUTO: Literal["auto"] = "auto"
AskedJobs = int | Literal["auto"]


@dataclass(frozen=True)
class Jobs:
    """Processes at a time, and the threads of one whose trials do not say; None: torch's choice."""

    number: int
    threads: int | None
    on_gpu: int = 1
    """How many of them may use the GPU."""


ONE_AT_A_TIME = Jobs(1, None)


def jobs_of(value: Any) -> AskedJobs:
    """What a user gave as a number of jobs; SpecError where it cannot be one here."""
    text = str(value)
    if text == AUTO:
        return AUTO
    if not text.isdecimal() or not int(text):
        raise SpecError([f"--jobs: got {value!r}, must be auto or a whole number from 1"])
    most = usable_vcpus()
    if int(text) > most:
        raise SpecError(
            [f"--jobs: got {text}, but this machine has {cpus_text(most)}; use at most {most}"]
        )
    return int(text)


def check_place(
    on: str,
    asked: Any,
    trial_timeout_s: float | None = None,
    *,
    has_workload: bool = False,
    has_instruments: bool = False,
) -> AskedJobs:
    """The jobs asked for. SpecError where there is no such executor, or trials are to run where Python
    objects cannot go, or in this process, which cannot be ended for taking too long."""
    name = on.partition(":")[0]
    if name not in EXECUTORS or (name != on and name not in CLUSTERS):
        names = ", ".join(EXECUTORS)
        raise SpecError([f"--on: got {on!r}, must be one of {names}{did_you_mean(on, EXECUTORS)}"])
    jobs, is_limited = jobs_of(asked), trial_timeout_s is not None
    is_here = on in ("local", "inline")  # they can train in this process
    rule = "but instruments cannot go to another process"
    no_objects = "but objects cannot go to a cluster; name the workload as FILE.py:NAME"
    own_process = "--trial-timeout: --on inline runs trials in this process; use --on local"
    one_process = (
        "--trial-timeout: with instruments, trials train in this process; leave one of them out"
    )
    for is_wrong, problem in (
        (has_instruments and jobs not in (AUTO, 1), f"--jobs: got {jobs}, {rule}; use jobs=1"),
        (has_instruments and not is_here, f"--on: got {on!r}, {rule}; use on='local'"),
        (has_workload and name in CLUSTERS, f"--on: got {on!r}, {no_objects}"),
        (is_limited and on == "inline", own_process),
        (is_limited and has_instruments, one_process),
    ):
        if is_wrong:
            raise SpecError([problem])
    return jobs


def are_processes_asked(asked: AskedJobs, on: str, trial_timeout_s: float | None) -> bool:
    """Whether also learn trials of a workload that is a Python object run in processes of their own."""
    return on == "processes" or asked not in (AUTO, 1) or trial_timeout_s is not None


def are_scripts_started_here(
    study: object, on: str, asked: AskedJobs, trial_timeout_s: float | None
) -> bool:
    """Whether what is asked are runs of a script, one at a time: the driver starts them itself, and needs
    no torch."""
    if not isinstance(study, Study) or study.script is None:
        return False
    return on == "local" and trial_timeout_s is None and (study.num_learn < 2 or asked == 1)


def passes_output_on(
    study: Study, on: str, asked: AskedJobs, trial_timeout_s: float | None
) -> bool:
    """Whether it is one run of a script, whose output is passed on as it comes: standard output is the
    script's alone."""
    return study.is_one_script and are_scripts_started_here(study, on, asked, trial_timeout_s)


def check_jobs(asked: AskedJobs, on: str, study: Study, *, has_objects: bool = False) -> None:
    """SpecError where a study cannot run so many trials side by side, or one in several processes, which
    Python objects cannot go to."""
    processes = max(cell.settings.processes for cell in study.all_cells)
    if has_objects and processes > 1:
        rule = "but objects cannot go to another process; name the workload as FILE.py:NAME"
        raise SpecError([f"processes: got {processes}, {rule}"])
    if asked == AUTO or asked == 1:
        return
    if on.partition(":")[0] in CLUSTERS:
        rule = "but the cluster decides how many trials run at a time; leave it out"
        raise SpecError([f"--jobs: got {asked}, {rule}"])
    if on == "inline":
        rule = "but --on inline runs one trial after the other; use --on local"
        raise SpecError([f"--jobs: got {asked}, {rule}"])
    threads, vcpus = _most_threads(study), usable_vcpus()
    if asked * threads > vcpus:
        most = max(1, vcpus // threads)
        rule = f"but with --threads {threads} this machine has room for {most}; use --jobs {most}"
        raise SpecError([f"--jobs: got {asked}, {rule}"])


def jobs_for(
    asked: AskedJobs, study: Study, groups: Sequence[Group], on_cpu: Callable[[Group], bool]
) -> Jobs:
    """For a run that begins with these groups. `auto`: a vCPU for every trial on the CPU, as far as memory
    allows, and one at a time on the GPU."""
    threads, vcpus = _most_threads(study), usable_vcpus()
    if asked != AUTO:
        return Jobs(asked, max(threads, vcpus // asked), asked) if asked > 1 else ONE_AT_A_TIME
    if sum(not group.is_alone and on_cpu(group) for group in groups) < 2:
        return ONE_AT_A_TIME
    number = min(vcpus // threads, copies_that_fit())
    return Jobs(number, 1) if number > 1 else ONE_AT_A_TIME


def _most_threads(study: Study) -> int:
    """That a trial of the study asks for."""
    return max(cell.settings.threads or 1 for cell in study.all_cells)
