"""Root finding for quantiles whose CDFs are worked out elsewhere: one step for all that are still looked for."""

import numpy as np

from treecdf._kernels.compiling import ordered_kernel

_ROUNDING = 1e-13  # relative error of a CDF at which root finding ends
_NOISE = 5e-15  # what many trees round a CDF near 1 by


@ordered_kernel
def step_roots(wanted, cdf, density, rows, y, low, high, last, gaps):
    """One step of Newton's method from outcomes y[rows], whose CDF and density are (k, m), to levels wanted (n, m).

    Changes y, the brackets low and high, the lengths of the last steps and the gaps between CDFs and levels, all
    (n, m), of these rows; the gap of a root that is found becomes 0. Steps that leave the bracket or do not halve are
    replaced by its middle: they may go on for ever.
    """
    for i in range(rows.size):
        row = rows[i]
        for k in range(y.shape[1]):
            here, level, steep = y[row, k], wanted[row, k], density[i, k]
            gap = cdf[i, k] - level
            if gap <= 0.0:
                low[row, k] = here
            elif gap > 0.0:
                high[row, k] = here
            following = here - gap / steep
            is_good = low[row, k] < following < high[row, k] and abs(following - here) <= last[row, k] / 2
            # Below the rounding of the CDF, or of the outcome, steps are noise, and dozens of halvings would follow.
            is_there = abs(gap) <= _ROUNDING * min(level, 1.0 - level) + _NOISE * level
            is_there |= abs(gap) <= 2 * np.spacing(abs(here)) * steep
            if not is_good:
                following = here if is_there else low[row, k] / 2 + high[row, k] / 2
            y[row, k], last[row, k] = following, abs(following - here)
            # Levels 0 and 1 stay at their infinite ends, where a length is NaN.
            is_moving = not is_there and last[row, k] > np.spacing(abs(following))
            gaps[row, k] = abs(gap) if is_moving else 0.0
