"""Whether the means of several cells lie on a straight line, seeds being the same in all of them."""

import numpy as np
from scipy import special

from trainlab.stats.contrasts import Floats


def lack_of_fit(x: Floats, values: Floats) -> float | None:
    """The chance that means of cells at places `x` lie as far from a line by noise alone.

    `values` [cells, seeds], NaN where there is none; only seeds that all cells have are used, and what a
    seed does to all cells alike is no noise. `None` below three places or two seeds.
    """
    known = values[:, np.isfinite(values).all(axis=0)]
    num_cells, num_seeds = known.shape
    if num_cells < 3 or num_seeds < 2 or len({*x.tolist()}) < 3:
        return None
    means = known.mean(axis=1)
    away = means - np.polyval(np.polyfit(x, means, 1), x)
    rest = known - means[:, np.newaxis] - known.mean(axis=0) + means.mean()
    freedom = num_cells - 2, (num_cells - 1) * (num_seeds - 1)
    noise = float((rest**2).sum()) / freedom[1]
    missed = num_seeds * float((away**2).sum()) / freedom[0]
    rounding = 1e-24 * float((means**2).max())
    if noise <= rounding:
        return 1.0 if missed <= rounding else 0.0
    return float(special.fdtrc(*freedom, missed / noise))
