"""How far rows are from those that are remembered."""

import numpy as np

from treecdf._kernels.compiling import inlined_kernel, kernel

_TILE = 64  # remembered rows that are worked on together


@inlined_kernel
def _beyond(value, ends, j):
    """How far a value is beyond the ends of range j, in units of half the range; ends: lowest, highest, half."""
    return max(ends[0, j] - value, value - ends[1, j], 0.0) / ends[2, j]


@inlined_kernel
def _n_shared(x, i):
    """How many of the first columns rows i - 1 and i of x (n, q) have in common; 0 if one of the two is not there."""
    j = 0
    while 0 < i < x.shape[0] and j < x.shape[1] and x[i, j] == x[i - 1, j]:
        j += 1
    return j


@inlined_kernel
def _add_squares(value, others, sums):
    """Add to sums (m,) the squared differences of a value from others (m,)."""
    for t in range(others.size):
        sums[t] += (value - others[t]) * (value - others[t])


@kernel
def fill_excess(x, relevance, ends, components, ends_of_scores, points, near, size, excess):
    """excess (n,) <- how far rows x (n, q) are from remembered ones; what is NaN does not count.

    It is the largest of how far they are beyond the ends (3, q) of a column, times its relevance (q,); beyond those
    (3, c) of their scores on the components (q, c), if nothing is missing; and farther than `near` from the nearest of
    the points (q, m), in units of `size`. The points are already times the relevance. Rows one below the other often
    agree in their first columns: what these add to squared distances is worked out once.
    """
    n, q = x.shape
    m = points.shape[1]
    away, least = np.empty(_TILE), np.empty(_TILE)
    shared, n_shared = np.zeros(m), 0  # squares over the first columns, and how many these are
    for i in range(n):
        if n_shared == 0 or _n_shared(x, i) < n_shared:
            n_shared = _n_shared(x, i + 1)
            for t in range(m):
                shared[t] = 0.0
            for j in range(n_shared):
                _add_squares(relevance[j] * x[i, j], points[j], shared)
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
        for t in range(_TILE):
            least[t] = np.inf
        for begin in range(0, m, _TILE):
            width = min(_TILE, m - begin)
            for t in range(width):
                away[t] = shared[begin + t]
            for j in range(n_shared, q):
                if relevance[j] != 0.0 and not np.isnan(x[i, j]):
                    _add_squares(relevance[j] * x[i, j], points[j, begin : begin + width], away)
            for t in range(width):
                least[t] = away[t] if away[t] < least[t] else least[t]
        nearest = np.inf
        for t in range(_TILE):
            nearest = min(nearest, least[t])
        excess[i] = max(most, max(np.sqrt(nearest) - near, 0.0) / size)
