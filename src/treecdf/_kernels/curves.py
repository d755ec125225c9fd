"""A sequence of trees of one outcome as a curve: many ascending points of one row go through a tree in one walk."""

import numpy as np

from treecdf._kernels.compiling import kernel
from treecdf._kernels.transform import left_logit, work_sizes

_TILE_ROWS = 64  # rows that go through a tree together, so that its classifiers stay in the cache
_TINY = 1e-300  # the cube is open at zero
_SAFE = 1e150  # slopes are multiplied up to here before their logarithm is taken


@kernel
def forward_ascending(nodes, theta, roots, kind, x, u, log_det):
    """u (n, m) <- G_T o ... o G_1 (u) at the rows of x (n, q); add the log-determinants to log_det (n, m).

    The points of a row ascend. A tree of one outcome is a piecewise linear function: its leaves are visited from left
    to right, the points of each are moved, and parts of the tree without points are skipped.
    """
    n, m = u.shape
    _, deepest, width = work_sizes(nodes, roots, kind, x.shape[1])
    value, product = np.empty((kind.size, width)), np.empty((_TILE_ROWS, m))
    at, part = np.empty(deepest + 2, np.int64), np.empty((3, deepest + 2))
    for first in range(0, n, _TILE_ROWS):
        size = min(_TILE_ROWS, n - first)
        product[:] = 1.0
        for tree in range(roots.size - 1):
            if roots[tree] < roots[tree + 1]:
                for t in range(size):
                    move_ascending(nodes, theta, roots[tree], kind, x, first + t, u, product[t], at, part, value)
                    for k in range(m):
                        if not (1.0 / _SAFE < product[t, k] < _SAFE):
                            log_det[first + t, k] += np.log(product[t, k])
                            product[t, k] = 1.0
        for t in range(size):
            for k in range(m):
                log_det[first + t, k] += np.log(product[t, k])


@kernel
def move_ascending(nodes, theta, root, kind, x, row, u, product, at, part, value):
    """Move the ascending points u[row] by the tree at `root`; multiply `product` by their slopes.

    at, part, value are work space: parts of the tree that are still to come, with their ends and masses.
    """
    m = u.shape[1]
    k, below, waiting = 0, 0.0, 1  # next point, mass left of it, parts of the tree that are still to come
    at[0], part[0, 0], part[1, 0], part[2, 0] = root, 0.0, 1.0, 1.0
    while waiting > 0 and k < m:
        waiting -= 1
        i, low, high, mass = at[waiting], part[0, waiting], part[1, waiting], part[2, waiting]
        if u[row, k] > high:
            below += mass
        elif i < 0:
            slope = mass / (high - low)
            while k < m and u[row, k] <= high:
                u[row, k] = min(max(below + (u[row, k] - low) * slope, _TINY), 1.0)
                product[k] *= slope
                k += 1
            below += mass
        else:
            prob = 1.0 / (1.0 + np.exp(-left_logit(theta, i, kind, x, row, value)))
            left_mass = nodes[i].rate * prob + (1.0 - nodes[i].rate) * nodes[i].left_share
            at[waiting], part[0, waiting], part[1, waiting] = nodes[i].right, nodes[i].cut, high
            part[2, waiting] = mass * (1.0 - left_mass)
            waiting += 1
            at[waiting], part[0, waiting], part[1, waiting] = nodes[i].left, low, nodes[i].cut
            part[2, waiting] = mass * left_mass
            waiting += 1
