"""graphed: the whole step of one trial as a CUDA graph, launched at once instead of kernel by kernel."""

from collections.abc import Sequence

from trainlab.train.engines.engine import Member, Update
from trainlab.train.engines.programs import ProgramSession
from trainlab.train.moments import Grain, Moments, Progress
from trainlab.train.setup import Setup
from trainlab.train.steps.evaluation import make_inference_step


class GraphedEngine:
    """Takes one trial at a time. Where there is no GPU the same step is called again and again."""

    name = "graphed"
    shows: Grain = "point"
    takes_many = False
    is_program = True

    def open(self, group: Sequence[Member]) -> ProgramSession:
        return ProgramSession(group, is_vectorised=False)

    def training_step(self, setup: Setup, moments: Moments) -> Update:
        return self.open([Member(setup, moments, Progress())]).step_on

    def inference_step(self, setup: Setup, moments: Moments) -> Update:
        return make_inference_step(setup, moments)
