"""Quantiles of mixtures of sequences of trees of one outcome, for a block of rows at a time.

A row is a lane of the vector units: at each leaf of a tree all rows of the block choose, side by side, whether their
points are in it. What `curves.py` does point by point is done here for few points of many rows.
"""

import numpy as np

from treecdf._kernels.compiling import inlined_kernel, kernel
from treecdf._kernels.curves import most_leaves
from treecdf._kernels.roots import step_root

BLOCK = 32  # rows that are worked on together
_TINY = 1e-300  # the cube is open at zero
_N_STEPS = 200  # of root finding at most; five are usual


@kernel
def solve_levels(first, low, high, ends, slopes, shares, n_rows, levels):
    """levels (m, BLOCK) <- points whose images, in the mean over sequences of trees, they are.

    It is the inverse of `mix_points` for a block of rows, of which the first n_rows are there, with the slopes
    (leaves, BLOCK) of all leaves and shares (sequences, BLOCK). Newton's method begins between the smallest and the
    largest of what each sequence by itself would say. Points outside the unit interval, and its ends, stay.
    """
    m = levels.shape[0]
    v, product = np.empty((m, BLOCK)), np.empty((m, BLOCK))
    here, low_end, high_end, last, cdf, density = np.empty((6, m, BLOCK))
    line, flat = np.empty(most_leaves(first) * BLOCK), slopes.reshape(-1)
    points, rises = v.reshape(-1), product.reshape(-1)
    chosen = np.empty(3 * BLOCK)
    here[:], low_end[:], high_end[:] = 0.0, 1.0, 0.0
    for j in range(ends.size - 1):
        v[:] = levels
        if n_rows == BLOCK:  # loops of a known length are faster
            _unmove_rows(points, ends[j], ends[j + 1], first, low, high, flat, np.uint64(BLOCK), line, chosen)
        else:
            _unmove_rows(points, ends[j], ends[j + 1], first, low, high, flat, np.uint64(n_rows), line, chosen)
        for k in range(m):
            for r in range(n_rows):
                if shares[j, r] > 0.0:
                    low_end[k, r], high_end[k, r] = min(low_end[k, r], v[k, r]), max(high_end[k, r], v[k, r])
                    here[k, r] += shares[j, r] * v[k, r]
    n_left = 0
    for k in range(m):
        for r in range(n_rows):
            here[k, r] = min(max(here[k, r], low_end[k, r]), high_end[k, r])
            is_inside = 0.0 < levels[k, r] < 1.0 and low_end[k, r] <= high_end[k, r]
            n_left += is_inside
            last[k, r] = high_end[k, r] - low_end[k, r] if is_inside else -1.0  # of points that are found
    for _ in range(_N_STEPS):
        if n_left == 0:
            break
        cdf[:], density[:] = 0.0, 0.0
        for j in range(ends.size - 1):
            v[:], product[:] = here, 1.0
            if n_rows == BLOCK:
                _move_rows(points, rises, ends[j], ends[j + 1], first, low, high, flat, np.uint64(BLOCK), line, chosen)
            else:
                _move_rows(points, rises, ends[j], ends[j + 1], first, low, high, flat, np.uint64(n_rows), line, chosen)
            for k in range(m):
                for r in range(n_rows):
                    cdf[k, r] += shares[j, r] * v[k, r]
                    density[k, r] += shares[j, r] * product[k, r]
        for k in range(m):
            for r in range(n_rows):
                if last[k, r] >= 0.0:
                    step = step_root(
                        levels[k, r], cdf[k, r], density[k, r], here[k, r], low_end[k, r], high_end[k, r], last[k, r]
                    )
                    here[k, r], low_end[k, r], high_end[k, r], last[k, r], gap = step
                    if gap == 0.0:
                        last[k, r] = -1.0
                        n_left -= 1
    for k in range(m):
        for r in range(n_rows):
            if 0.0 < levels[k, r] < 1.0:
                levels[k, r] = here[k, r]


@inlined_kernel
def _fill_line(start, n_leaves, low, high, slopes, rows, line):
    """line (n_leaves, BLOCK), flat, <- mass left of each leaf of a tree at the rows of a block."""
    n = np.uint64(BLOCK)
    for r in range(rows):
        line[r] = 0.0
    for leaf in range(np.uint64(1), n_leaves):
        to, of = leaf * n, (start + leaf) * n
        length = high[start + leaf - np.uint64(1)] - low[start + leaf - np.uint64(1)]
        for r in range(rows):
            line[to + r] = line[to - n + r] + length * slopes[of - n + r]


@inlined_kernel
def _move_rows(v, product, begin, end, first, low, high, slopes, rows, line, chosen):
    """v (m, BLOCK) <- images of points at the rows of a block under the trees begin:end; slopes multiply product.

    All arrays are flat: the line of a leaf, and how far a point is in it, are chosen in vector units, without a branch
    on where a point is. line (leaves of a tree, BLOCK) and chosen (3, BLOCK) are work space.
    """
    n = np.uint64(BLOCK)
    for tree in range(begin, end):
        start, n_leaves = np.uint64(first[tree]), np.uint64(first[tree + 1] - first[tree])
        _fill_line(start, n_leaves, low, high, slopes, rows, line)
        for at in range(np.uint64(0), np.uint64(v.size), n):
            for r in range(rows):
                chosen[r], chosen[n + r], chosen[n + n + r] = 0.0, slopes[start * n + r], v[at + r]
            for leaf in range(np.uint64(1), n_leaves):
                cut, to, of = low[start + leaf], leaf * n, (start + leaf) * n
                for r in range(rows):
                    # Products are exact. To choose between two places in memory would not run in vector units.
                    rest = v[at + r] - cut
                    right = 1.0 if rest > 0.0 else 0.0
                    left = 1.0 - right
                    chosen[r] = left * chosen[r] + right * line[to + r]
                    chosen[n + r] = left * chosen[n + r] + right * slopes[of + r]
                    chosen[n + n + r] = left * chosen[n + n + r] + right * rest
            for r in range(rows):
                own = chosen[r] + chosen[n + n + r] * chosen[n + r]
                v[at + r] = min(max(own, _TINY), 1.0)
                product[at + r] *= chosen[n + r]


@inlined_kernel
def _unmove_rows(v, begin, end, first, low, high, slopes, rows, line, chosen):
    """v (m, BLOCK) <- what has the points v as images, the inverse of `_move_rows`."""
    n = np.uint64(BLOCK)
    for tree in range(end - 1, begin - 1, -1):
        start, n_leaves = np.uint64(first[tree]), np.uint64(first[tree + 1] - first[tree])
        _fill_line(start, n_leaves, low, high, slopes, rows, line)
        for at in range(np.uint64(0), np.uint64(v.size), n):
            for r in range(rows):
                chosen[r], chosen[n + r], chosen[n + n + r] = 0.0, slopes[start * n + r], 0.0
            for leaf in range(np.uint64(1), n_leaves):
                cut, to, of = low[start + leaf], leaf * n, (start + leaf) * n
                for r in range(rows):
                    is_beyond = v[at + r] > line[to + r]
                    chosen[r] = line[to + r] if is_beyond else chosen[r]
                    chosen[n + r] = slopes[of + r] if is_beyond else chosen[n + r]
                    chosen[n + n + r] = cut if is_beyond else chosen[n + n + r]
            for r in range(rows):
                own = chosen[n + n + r] + (v[at + r] - chosen[r]) / max(chosen[n + r], _TINY)
                v[at + r] = min(max(own, _TINY), 1.0)
