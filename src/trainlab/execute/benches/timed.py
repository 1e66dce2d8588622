"""TimedTrial: a cost trial whose steps are timed in turns, with a record of it whatever happens."""

from contextlib import ExitStack
from typing import Literal

from trainlab.errors import Interrupted
from trainlab.execute.attempt import Attempt
from trainlab.execute.scripts import ScriptTimer
from trainlab.execute.worker import set_up_cost
from trainlab.machine.footprint import Footprint, footprint
from trainlab.machine.memory.layout import random_layout
from trainlab.machine.process import prepare_process
from trainlab.measure.timing import StepTimer
from trainlab.record.run_folder import RunFolder
from trainlab.train.loader import Loader
from trainlab.train.parallel.crew import dismiss_crew


class TimedTrial:
    """One seat of a bench, in this process. Once it has failed it takes no more turns."""

    def __init__(
        self,
        run: RunFolder,
        trial_id: str,
        environment: str,
        load: Loader,
        token: str | None = None,
    ) -> None:
        self._run, self._load = run, load
        self._attempt = Attempt(run.trial(trial_id), environment, token)
        self._timer: StepTimer | ScriptTimer | None = None
        self._layout = ExitStack()
        self._is_running = self._has_ended = False

    @property
    def has_ended(self) -> bool:
        """Whether it is finished or has failed."""
        return self._has_ended

    def warm_up(self) -> Footprint | None:
        """Sets the trial up and runs its steps until they are warm; None where that fails."""
        self._attempt.begin()
        self._is_running = True
        found: Footprint | None = None
        with self._attempt:
            script = self._run.study().to_study(str(self._run.study_file)).script
            if script is not None:
                self._timer = ScriptTimer(self._attempt, script)
                found = self._timer.warm_up()
            else:
                found = self._warm_up_steps()
        if found is None:
            self._end()
        return found

    def _warm_up_steps(self) -> Footprint:
        cost = self._attempt.trial.cost
        assert cost is not None
        # Where memory comes from is settled first: it is that which is to lie elsewhere.
        prepare_process(self._attempt.trial.settings)
        self._layout.enter_context(random_layout())
        setup = set_up_cost(self._run, self._attempt, self._load)
        self._timer = timer = StepTimer(setup, cost)
        timer.warm_up()
        return footprint(setup.device)

    def turn(self, number: int) -> float | None:
        """A turn in the round of that number: its median step in ms; None where it failed."""
        if self._timer is None:
            return None
        median_ms: float | None = None
        with self._attempt:
            median_ms = self._timer.turn(number)
        if median_ms is None:
            self._end()
        return median_ms

    def finish(self, bench: str, stopped: Literal["tight", "budget"]) -> None:
        """Writes what was measured, and that the trial is done."""
        if self._timer is None:
            return
        with self._attempt:
            self._attempt.folder.cost.write(self._timer.finish(bench, stopped))
            self._attempt.progress.state = "done"
        self._end()

    def abandon(self) -> None:
        """Records a trial that was under way as interrupted."""
        if self._is_running:
            with self._attempt:
                raise Interrupted
            self._close()

    def _end(self) -> None:
        self._close()
        self._attempt.pass_on_interrupt()

    def _close(self) -> None:
        dismiss_crew()
        if isinstance(self._timer, ScriptTimer):
            self._timer.close()
        self._layout.close()
        self._timer, self._is_running, self._has_ended = None, False, True
        self._attempt.end()
