"""How far rows are from those that are remembered."""

import numpy as np

from treecdf._kernels.compiling import inlined_kernel, kernel

_TILE = 64  # remembered rows that are worked on together


@inlined_kernel
def _beyond(value, ends, j):
    """How far a value is beyond the ends of range j, in units of half the range; ends: lowest, highest, half."""
    return max(ends[0, j] - value, value - ends[1, j], 0.0) / ends[2, j]


@kernel
def fill_excess(x, relevance, ends, components, ends_of_scores, points, near, size, excess):
    """excess (n,) <- how far rows x (n, q) are from remembered ones; what is NaN does not count.

    It is the largest of how far they are beyond the ends (3, q) of a column, times its relevance (q,); beyond those
    (3, c) of their scores on the components (q, c), if nothing is missing; and farther than `near` from the nearest of
    the points (q, m), in units of `size`. The points are already times the relevance.
    """
    n, q = x.shape
    m = points.shape[1]
    away, least = np.empty(_TILE), np.empty(_TILE)
    for i in range(n):
        most, is_whole = 0.0, True
        for j in range(q):
            if np.isnan(x[i, j]):
                is_whole = False
            else:
                most = max(most, relevance[j] * _beyond(x[i, j], ends, j))
        if is_whole:
            for c in range(components.shape[1]):
                score = 0.0
                for j in range(q):
                    score += x[i, j] * components[j, c]
                most = max(most, _beyond(score, ends_of_scores, c))
        least[:] = np.inf
        for begin in range(0, m, _TILE):
            width = min(_TILE, m - begin)
            away[:] = 0.0
            for j in range(q):
                if relevance[j] == 0.0 or np.isnan(x[i, j]):
                    continue
                value, others = relevance[j] * x[i, j], points[j, begin : begin + width]
                for t in range(width):
                    away[t] += (value - others[t]) * (value - others[t])
            for t in range(width):
                least[t] = away[t] if away[t] < least[t] else least[t]
        excess[i] = max(most, max(np.sqrt(least.min()) - near, 0.0) / size)
