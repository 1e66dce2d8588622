"""Order: what a process that runs a script is told, as JSON."""

from pathlib import Path
from typing import ClassVar, Literal

from trainlab.plan import Trial
from trainlab.spec import CostSpec
from trainlab.spec.base import Spec
from trainlab.spec.probe import ProbeSpec
from trainlab.spec.script import ScriptSpec


class Order(Spec):
    """A script to run, and what to do with it."""

    module: ClassVar[str] = "trainlab.watching.child"
    mode: Literal["whole", "turns", "operators"]
    """The whole script with its curve, steps in turns, or a profiled window."""
    script: ScriptSpec
    trial: Trial
    trial_folder: str
    threads: int | None = None
    """None: torch's or the script's own choice."""
    probes: tuple[ProbeSpec, ...] = ()
    tensorboard: bool = False
    commands: int
    """The pipe that commands come by; -1: none do."""
    answers: str
    """The pipe for answers, by its path: torchrun passes no open files on."""

    @property
    def path(self) -> Path:
        """The script's file."""
        return Path(self.script.path)

    @property
    def arguments(self) -> tuple[str, ...]:
        """Those of the script in this trial."""
        return self.script.arguments_for(self.trial.settings.script, self.trial.seed)

    @property
    def cost(self) -> CostSpec:
        """How the cost is measured; of a trial that measures none, what is usual."""
        return self.trial.cost or CostSpec()
