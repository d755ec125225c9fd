"""Root finding for quantiles whose CDFs are worked out elsewhere: one step for all that are still looked for."""

import numpy as np

from treecdf._kernels.compiling import inlined_kernel, ordered_kernel

_ROUNDING = 1e-13  # relative error of a CDF at which root finding ends
_NOISE = 5e-15  # what many trees round a CDF near 1 by


@inlined_kernel
def step_root(level, cdf, density, here, low, high, last):
    """One step of Newton's method from a point to a level, in a bracket; `last` is the length of the step before.

    The point that follows, the bracket, the length of the step, and the gap between CDF and level, 0 if the root is
    found. Steps that leave the bracket or do not halve are replaced by its middle: they may go on for ever.
    """
    gap = cdf - level
    if gap <= 0.0:
        low = here
    elif gap > 0.0:
        high = here
    following = here - gap / density
    is_good = low < following < high and abs(following - here) <= last / 2
    # Below the rounding of the CDF, or of the outcome, steps are noise, and dozens of halvings would follow.
    is_there = abs(gap) <= _ROUNDING * min(level, 1.0 - level) + _NOISE * level
    is_there |= abs(gap) <= 2 * np.spacing(abs(here)) * density
    if not is_good:
        following = here if is_there else low / 2 + high / 2
    length = abs(following - here)
    # Levels 0 and 1 stay at their infinite ends, where a length is NaN.
    is_moving = not is_there and length > np.spacing(abs(following))
    return following, low, high, length, abs(gap) if is_moving else 0.0


@ordered_kernel
def step_roots(wanted, cdf, density, rows, y, low, high, last, gaps):
    """`step_root` from outcomes y[rows], whose CDF and density are (k, m), to levels wanted (n, m).

    Changes y, low, high, last and gaps, all (n, m), of these rows.
    """
    for i in range(rows.size):
        row = rows[i]
        for k in range(y.shape[1]):
            y[row, k], low[row, k], high[row, k], last[row, k], gaps[row, k] = step_root(
                wanted[row, k], cdf[i, k], density[i, k], y[row, k], low[row, k], high[row, k], last[row, k]
            )
