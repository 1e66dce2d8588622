"""Order: what a process that runs a script is told, as JSON."""

from typing import ClassVar, Literal

from trainlab.plan import Trial
from trainlab.spec.base import Spec
from trainlab.spec.probe import ProbeSpec


class Order(Spec):
    """A script to run, and what to do with it."""

    module: ClassVar[str] = "trainlab.watching.child"
    mode: Literal["whole", "turns", "operators"]
    """The whole script with its curve, steps in turns, or a profiled window."""
    path: str
    arguments: tuple[str, ...]
    seed: int
    trial: Trial
    trial_folder: str
    metrics: dict[str, str] = {}
    columns: dict[str, tuple[str, str]] = {}
    threads: int | None = None
    """None: torch's or the script's own choice."""
    change: str = ""
    """What is changed from outside, as `threads=1`."""
    max_steps: int = 0
    max_s: float = 0.0
    is_searched: bool = False
    has_whole_turns: bool = False
    warmup_steps: int = 20
    num_profiled: int = 10
    trace_mb: float = 20.0
    probes: tuple[ProbeSpec, ...] = ()
    tensorboard: bool = False
    commands: int
    """The pipe that commands come by; -1: none do."""
    answers: str
    """The pipe for answers, by its path: torchrun passes no open files on."""
