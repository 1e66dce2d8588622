"""Whether the first step of a program is the step that was rehearsed."""

from collections.abc import Sequence

import torch
from torch import Tensor

from trainlab.train.program.rehearsal import Rehearsal
from trainlab.train.program.stacked import Stacked
from trainlab.train.program.unsuited import Unsuited

LOSS_WITHIN = {"fp32": 1e-3, "bf16": 3e-2}
GRADIENT_WITHIN = {"fp32": 2e-2, "bf16": 2e-1}
"""How far the first step may be from the same step run by eager, relative; rounding is far below."""


def check_agreement(
    losses: Tensor,
    gradients: Tensor,
    rehearsed: Sequence[Rehearsal],
    stacked: Stacked,
    precision: str,
) -> None:
    """Refuses losses (one per trial) and gradients (a row per trial) that are not the rehearsed ones.

    A trial whose rehearsal gave numbers that are not finite has nothing to be compared with.
    """
    expected = torch.stack([_as_row(stacked, one) for one in rehearsed])
    reference = torch.tensor([one.loss for one in rehearsed], dtype=torch.float64)
    off = (losses.double().cpu() - reference).abs() / reference.abs().clamp_min(1e-2)
    apart = (gradients - expected).norm(dim=1) / expected.norm(dim=1).clamp_min(1e-12)
    usual = reference.isfinite() & expected.norm(dim=1).isfinite().cpu()
    too_far = (off > LOSS_WITHIN[precision]) | (apart.cpu() > GRADIENT_WITHIN[precision])
    too_far |= ~(off.isfinite() & apart.cpu().isfinite())
    if bool((too_far & usual).any()):
        raise Unsuited("not_the_same")


def _as_row(stacked: Stacked, one: Rehearsal) -> Tensor:
    """The gradients of one trial, arranged as a row."""
    row = torch.zeros_like(stacked.rows[0])
    for name, place in stacked.places.items():
        row[place] = one.gradients[name].reshape(-1)
    return row
