"""Finding: one thing a study has shown, or could not show, as a value. Sentences are made from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from trainlab.analyse.confounds import Confound
from trainlab.spec.settings import Scalar
from trainlab.stats.means import Interval
from trainlab.stats.verdict import Verdict

Kind = Literal[
    "effect",
    "no_reset",
    "diverged",
    "quality",
    "cost",
    "memory",
    "scaling",
    "dominates",
    "growth",
    "optimizer_share",
    "vanishing_gradient",
    "exploding_gradient",
    "accumulation",
    "dead_units",
    "update_ratio",
    "unstable",
    "undecided",
    "unfinished",
]
Number = float | int | str | None


@dataclass(frozen=True)
class Finding:
    """One finding with its evidence. Every number a sentence tells is in here, and nowhere else."""

    kind: Kind
    subject: str
    """A metric (`test/accuracy`), a cost (`train/sample_us`), or an operator."""
    cells: tuple[str, ...]
    """The cells it is about; of a comparison, the reference first."""
    numbers: Mapping[str, Number]
    n: int
    """Seeds or processes behind it."""
    factor: str | None = None
    levels: tuple[Scalar | None, Scalar | None] = (None, None)
    interval: Interval | None = None
    """95 %, of the difference or ratio."""
    test: str | None = None
    verdict: Verdict | None = None
    """None where nothing was tested: a count, or a figure that does not vary."""
    confounds: tuple[Confound, ...] = ()
    """What else differs between the cells."""
