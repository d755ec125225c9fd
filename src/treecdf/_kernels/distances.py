"""Squared distances of rows from points."""

import numpy as np

from treecdf._kernels.compiling import ordered_kernel


@ordered_kernel
def agreeing(x, i):
    """How many of the first columns of row i of x (n, q) are the same as in the row before; 0 for the first row."""
    if i == 0:
        return 0
    j = 0
    while j < x.shape[1] and x[i, j] == x[i - 1, j]:
        j += 1
    return j


@ordered_kernel
def nearest_squares(x, points, squares):
    """squares[i] <- smallest squared distance of row i of x (n, q) from points (q, m), over columns that are not NaN.

    Rows one below the other often agree in their first columns: what these add is worked out once.
    """
    n, q = x.shape
    shared, sums, n_shared = np.zeros(points.shape[1]), np.empty(points.shape[1]), 0
    for i in range(n):
        if agreeing(x, i) < n_shared or n_shared == 0:
            n_shared = agreeing(x, i + 1) if i + 1 < n else 0
            shared[:] = 0.0
            for j in range(n_shared):
                _add_squares(x[i, j], points[j], shared)
        sums[:] = shared
        for j in range(n_shared, q):
            _add_squares(x[i, j], points[j], sums)
        squares[i] = _smallest(sums)


@ordered_kernel
def _smallest(values):
    """The smallest of values (m,), which are overwritten: half of them are compared with the other half at a time."""
    size = values.size
    while size > 1:
        half = (size + 1) // 2
        first, second = values[: size - half], values[half:size]
        for t in range(second.size):
            first[t] = first[t] if first[t] < second[t] else second[t]
        size = half
    return values[0]


@ordered_kernel
def _add_squares(value, others, sums):
    """Add to sums (m,) the squared differences of a value from others (m,); nothing if it is NaN."""
    if not np.isnan(value):
        for t in range(sums.size):
            sums[t] += (value - others[t]) * (value - others[t])
