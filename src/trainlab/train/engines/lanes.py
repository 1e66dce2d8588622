"""lanes: many trials as rows of one vectorised program (`torch.func`), captured as a graph on a GPU."""

from collections.abc import Sequence

from trainlab.train.engines.engine import Member, Update
from trainlab.train.engines.programs import ProgramSession
from trainlab.train.moments import Grain, Moments, Progress
from trainlab.train.setup import Setup
from trainlab.train.steps.evaluation import make_inference_step


class LanesEngine:
    """Takes trials that are alike but for seed, optimizer, its settings, gradient resets and dropout."""

    name = "lanes"
    shows: Grain = "point"
    takes_many = True
    is_program = True

    def open(self, group: Sequence[Member]) -> ProgramSession:
        return ProgramSession(group, is_vectorised=True)

    def training_step(self, setup: Setup, moments: Moments) -> Update:
        return self.open([Member(setup, moments, Progress())]).step_on

    def inference_step(self, setup: Setup, moments: Moments) -> Update:
        return make_inference_step(setup, moments)
