"""tuned: the eager loop on the CPU, with other code than torch's where that was measured to be faster."""

from collections.abc import Sequence

from trainlab.train.callbacks import Grain, Moments
from trainlab.train.engines.eager import EagerSession, make_training_step
from trainlab.train.engines.engine import Member, Unsuited, Update
from trainlab.train.evaluation import make_inference_step
from trainlab.train.setup import Setup
from trainlab.train.tuned.tuning import tune_model, tune_threads, tune_update


class TunedEngine:
    """Takes one trial at a time and shows every moment of it; results equal eager's to rounding."""

    name = "tuned"
    shows: Grain = "call"
    takes_many = False
    is_program = False

    def open(self, group: Sequence[Member]) -> EagerSession:
        (member,) = group
        _check(member.setup)
        setup = member.setup
        tune_threads(setup)
        tune_update(setup)
        return EagerSession(member, tune_model(setup))

    def training_step(self, setup: Setup, moments: Moments) -> Update:
        _check(setup)
        tune_threads(setup)
        tune_update(setup)
        return make_training_step(setup, moments, tune_model(setup))

    def inference_step(self, setup: Setup, moments: Moments) -> Update:
        _check(setup)
        return make_inference_step(setup, moments, tune_model(setup))


def _check(setup: Setup) -> None:
    if setup.own is not None:
        raise Unsuited("not_ours", what=setup.own)
