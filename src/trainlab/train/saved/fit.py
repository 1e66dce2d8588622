"""Whether a checkpoint fits the trials that are to go on from it: one that is sound may still be forged."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from torch import Tensor

from trainlab.train.callbacks import Progress
from trainlab.train.checkpoint.state import State, restored_nested
from trainlab.train.engines.engine import Member, Session
from trainlab.train.saved.place import Place

NESTED = ("optimizers", "carried", "kept")
"""Whose tensors are numbered, and come with the first updates."""
LIKE_PARAMETER = frozenset(
    {
        *("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "exp_inf"),
        *("square_avg", "grad_avg", "acc_delta", "sum", "prev"),
    }
)
"""What torch's optimizers keep of a parameter in its shape."""


def suits(state: State, session: Session, group: Sequence[Member]) -> bool:
    """Whether all that the session and its members take from a state is there and has the right shape."""
    try:
        return _has_tensors(state, session.state()) and _has_values(state, session, group)
    except Exception:  # noqa: BLE001  whatever a forged file makes of it: it does not fit
        return False


def _has_tensors(state: State, fresh: State) -> bool:
    wanted = {n: one for n, one in fresh.tensors.items() if n.partition(".")[0] not in NESTED}
    return all(
        name in state.tensors and _alike(state.tensors[name], one) for name, one in wanted.items()
    )


def _has_values(state: State, session: Session, group: Sequence[Member]) -> bool:
    told = state.values
    known = {one.name for one in fields(Progress)}
    Place(**told["place"])
    return (
        session.state().values.keys() <= told.keys()
        and len(told["members"]) == len(told["instruments"]) == len(group)
        and all(known >= one.keys() and int(one["steps_done"]) >= 0 for one in told["members"])
        and ("optimizers" not in told or _fit_optimizers(state, group))
    )


def _fit_optimizers(state: State, group: Sequence[Member]) -> bool:
    told = restored_nested("optimizers", state)
    for member in group:
        for name, optimizer in member.setup.optimizers.by_name.items():
            own = [one for some in optimizer.param_groups for one in some["params"]]
            places = [place for some in told[name]["param_groups"] for place in some["params"]]
            parameters = dict(zip(places, own, strict=True))
            for place, kept in told[name]["state"].items():
                if not _fits_parameter(kept, parameters[place]):
                    return False
    return True


def _fits_parameter(kept: Mapping[str, Any], parameter: Tensor) -> bool:
    tensors = {name: one for name, one in kept.items() if name in LIKE_PARAMETER}
    return all(one is None or one.shape == parameter.shape for one in tensors.values())


def _alike(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype
