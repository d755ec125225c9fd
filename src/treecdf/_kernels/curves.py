"""Mixtures of sequences of trees of one outcome, at rows where the masses of all nodes are known.

Classifiers are asked once for each row and node. After that a tree is a piecewise linear function of one number, and
many points go through it for the price of looking up where they are.
"""

import numpy as np

from treecdf._kernels.compiling import inlined_kernel, kernel
from treecdf._kernels.losses import exp_tile
from treecdf._kernels.transform import NETWORK, TREES, dot, network_logit, trees_logit, work_sizes

_TINY = 1e-300  # the cube is open at zero
_ROWS = 64  # rows that are worked on together, in vector units
_BLOCK = 32  # points of a row that are moved together
_FEW_ROWS = 8  # fewer go through classifiers one by one
_AT_ONCE = 4096  # exponentials that are taken together


@kernel
def fill_masses(nodes, theta, roots, kind, x, first, masses):
    """masses[first:first + nodes] <- share of each node's mass that its left child has, at the rows of x (n, q)."""
    value = np.empty((kind.size, work_sizes(nodes, roots, kind, x.shape[1])[2]))
    odds, bits = np.empty(_AT_ONCE), np.empty(_AT_ONCE, np.int64)
    held, columns = np.empty((2, 1 << max(kind[2] - 1, 0) if kind[0] == TREES else 1, _ROWS)), x.T.copy()
    for begin in range(0, x.shape[0], _ROWS):
        size = min(_ROWS, x.shape[0] - begin)
        n_together = _AT_ONCE // size
        for start in range(0, nodes.size, n_together):
            end = min(start + n_together, nodes.size)
            for k in range(start, end):
                at = (k - start) * size
                if kind[0] == TREES and size >= _FEW_ROWS:
                    _trees_odds(theta, k, kind, columns, begin, size, held, odds, at)
                    continue
                for r in range(size):
                    if kind[0] == TREES:
                        logit = trees_logit(theta, k, kind, x, begin + r)
                    elif kind[0] == NETWORK:
                        logit = network_logit(theta, k, kind, x, begin + r, value)
                    else:
                        logit = theta[k, 0] + dot(theta, k, np.int64(1), x, begin + r, theta.shape[1] - 1)
                    odds[at + r] = -logit
            exp_tile(odds, (end - start) * size, bits)
            for k in range(start, end):
                rate, share, at = nodes[k].rate, nodes[k].left_share, np.uint64((k - start) * size)
                for r in range(np.uint64(size)):
                    masses[first + k, np.uint64(begin) + r] = rate / (1.0 + odds[at + r]) + (1.0 - rate) * share


@inlined_kernel
def _trees_odds(theta, k, kind, columns, begin, size, held, odds, out):
    """odds[out:out + size] <- minus the log-odds of node k's boosted trees at rows begin:begin + size.

    columns (q, n) are their covariates. Rows go up a tree together: from both children of a node each takes what it
    would reach.
    """
    n_inner, offset = (1 << kind[2]) - 1, 1
    size, begin, out = np.uint64(size), np.uint64(begin), np.uint64(out)
    for r in range(size):
        odds[out + r] = -theta[k, 0]
    for _ in range(kind[1]):
        for level in range(kind[2] - 1, -1, -1):
            to, of = level & 1, 1 - (level & 1)
            for c in range(1 << level):
                at = offset + 3 * ((1 << level) - 1 + c)
                j, threshold, is_left = np.int64(theta[k, at]), theta[k, at + 1], theta[k, at + 2] != 0.0
                if level == kind[2] - 1:
                    left, right = theta[k, offset + 3 * n_inner + 2 * c], theta[k, offset + 3 * n_inner + 2 * c + 1]
                    for r in range(size):
                        z = columns[j, begin + r]
                        held[to, c, r] = right if _is_right(z, threshold, is_left) else left
                else:
                    for r in range(size):
                        z = columns[j, begin + r]
                        left, right = held[of, 2 * c, r], held[of, 2 * c + 1, r]
                        held[to, c, r] = right if _is_right(z, threshold, is_left) else left
        for r in range(size):
            odds[out + r] -= held[0, 0, r]
        offset += 4 * n_inner + 1


@inlined_kernel
def _is_right(value, threshold, missing_left):
    """Whether a value goes right; NaN goes where missing values went in training."""
    return (value > threshold) | ((value != value) & (not missing_left))


@kernel
def fill_lines(left, right, roots, first, low, high, masses, lines):
    """lines (n, leaves, 2) <- the line that a tree is in each leaf, value at 0 and slope, from masses (nodes, n).

    left, right (nodes,): a node's children, nodes of larger number, or -1 - leaf. Tree t has the nodes
    roots[t]:roots[t + 1] and, from left to right, the leaves first[t]:first[t + 1], which extend from low to high.
    """
    most = most_leaves(first)
    whole, mass, below = np.empty((most, _ROWS)), np.empty((most, _ROWS)), np.empty((most + 1, _ROWS))
    for begin in range(0, masses.shape[1], _ROWS):
        rows, at = np.uint64(min(_ROWS, masses.shape[1] - begin)), np.uint64(begin)
        for tree in range(roots.size - 1):
            start, n_leaves = np.uint64(first[tree]), np.uint64(first[tree + 1] - first[tree])
            _fill_slopes(left, right, roots, first, low, high, masses, tree, at, rows, whole, mass)
            for r in range(rows):
                below[0, r] = 0.0
            for leaf in range(n_leaves):
                length = high[start + leaf] - low[start + leaf]
                for r in range(rows):
                    below[leaf + np.uint64(1), r] = below[leaf, r] + mass[leaf, r] * length
            for r in range(rows):
                for leaf in range(n_leaves):
                    lines[at + r, start + leaf, 0] = below[leaf, r] - low[start + leaf] * mass[leaf, r]
                    lines[at + r, start + leaf, 1] = mass[leaf, r]


@kernel
def fill_slopes(left, right, roots, first, low, high, masses, slopes):
    """slopes (leaves, n or more) <- slopes of `fill_lines`, of n rows that are not more than `_ROWS`."""
    whole = np.empty((most_leaves(first), _ROWS))
    rows = np.uint64(masses.shape[1])
    for tree in range(roots.size - 1):
        own = slopes[first[tree] : first[tree + 1]]
        _fill_slopes(left, right, roots, first, low, high, masses, tree, np.uint64(0), rows, whole, own)


@inlined_kernel
def _fill_slopes(left, right, roots, first, low, high, masses, tree, at, rows, whole, slopes):
    """slopes (leaves of the tree, rows) <- masses of leaves over their lengths at the rows from `at` on."""
    root = roots[tree]
    for r in range(rows):
        whole[0, r], slopes[0, r] = 1.0, 1.0  # without nodes: one leaf
    for k in range(root, roots[tree + 1]):
        of = np.uint64(k - root)
        lefts, rights = whole if left[k] >= 0 else slopes, whole if right[k] >= 0 else slopes
        to_left = np.uint64(left[k] - root if left[k] >= 0 else -1 - left[k] - first[tree])
        to_right = np.uint64(right[k] - root if right[k] >= 0 else -1 - right[k] - first[tree])
        node = np.uint64(k)
        for r in range(rows):
            part = whole[of, r] * masses[node, at + r]
            rights[to_right, r] = whole[of, r] - part
            lefts[to_left, r] = part
    for leaf in range(first[tree + 1] - first[tree]):
        number, wide = np.uint64(leaf), 1.0 / (high[first[tree] + leaf] - low[first[tree] + leaf])
        for r in range(rows):
            slopes[number, r] *= wide


@kernel
def most_leaves(first):
    """Leaves of the largest tree."""
    most = 1
    for tree in range(first.size - 1):
        most = max(most, first[tree + 1] - first[tree])
    return most


@inlined_kernel
def _leaf_at(v, high, begin, last, n_halvings):
    """The leaf, of begin to last, that a point is in: one branch less to guess for the processor at each halving."""
    at = begin
    for s in range(n_halvings - 1, -1, -1):
        at += np.int64(v > high[np.uint64(min(at + (1 << s), last) - 1)]) << s
    return min(at, last)


@kernel
def mix_points(first, low, high, ends, lines, rows, shares, u, mixed, slopes):
    """mixed, slopes (n, m) <- means over sequences of trees of the images of points u (n, m), and of their slopes.

    Row i of u belongs to row rows[i] of the lines, where sequence j, the trees ends[j]:ends[j + 1], has the share
    shares[i, j]. Points outside the unit interval stay where they are.
    """
    n_sequences, m = ends.size - 1, u.shape[1]
    v, product = np.empty((n_sequences, m)), np.empty((n_sequences, m))
    for i in range(u.shape[0]):
        for j in range(n_sequences):
            for k in range(m):
                v[j, k] = min(max(u[i, k], _TINY), 1.0)
        move_points(first, low, high, ends, lines[rows[i]], m, v, product)
        for k in range(m):
            mixed[i, k], slopes[i, k] = 0.0, 0.0
            for j in range(n_sequences):
                mixed[i, k] += shares[i, j] * v[j, k]
                slopes[i, k] += shares[i, j] * product[j, k]
            if not 0.0 <= u[i, k] <= 1.0:
                mixed[i, k], slopes[i, k] = u[i, k], 1.0


@kernel
def move_points(first, low, high, ends, own, m, v, product):
    """v (sequences, m) <- images of points under the lines `own` (leaves, 2) of a row; product <- their slopes.

    Sequences go side by side: no point waits for another's way through the trees.
    """
    longest, n_halvings, most = 0, 0, most_leaves(first)
    while 1 << n_halvings < most:
        n_halvings += 1
    for j in range(ends.size - 1):
        longest = max(longest, ends[j + 1] - ends[j])
        for k in range(m):
            product[j, k] = 1.0
    for t in range(longest):
        for j in range(ends.size - 1):
            tree = ends[j] + t
            if tree >= ends[j + 1]:
                continue
            begin, last = first[tree], first[tree + 1] - 1
            if begin == last:
                continue
            for k in range(m):
                at = np.uint64(_leaf_at(v[j, k], high, begin, last, n_halvings))
                slope = own[at, 1]
                v[j, k] = min(max(own[at, 0] + v[j, k] * slope, _TINY), 1.0)
                product[j, k] *= slope


@kernel
def mix_ascending(first, low, ends, lines, rows, shares, u, mixed, slopes):
    """What `mix_points` gives for points that ascend at each row, faster if they are many.

    Points go through a tree a block at a time, in vector units: there are few leaves that a block has points in.
    """
    m = u.shape[1]
    n_blocks = (m + _BLOCK - 1) // _BLOCK
    v, product = np.empty(n_blocks * _BLOCK), np.empty(n_blocks * _BLOCK)
    image, steep = np.empty(_BLOCK), np.empty(_BLOCK)
    for i in range(u.shape[0]):
        own = lines[rows[i]]
        begin, end = 0, m
        while begin < m and not u[i, begin] >= 0.0:
            begin += 1
        while end > begin and not u[i, end - 1] <= 1.0:
            end -= 1
        for k in range(m):
            outside = k < begin or k >= end
            mixed[i, k], slopes[i, k] = u[i, k] if outside else 0.0, 1.0 if outside else 0.0
        n, used = np.uint64(end - begin), (end - begin + _BLOCK - 1) // _BLOCK * _BLOCK
        for j in range(ends.size - 1):
            product[:used] = 1.0
            for k in range(used):  # the last point fills up its block
                v[k] = max(u[i, begin + min(k, end - begin - 1)], _TINY)
            for tree in range(ends[j], ends[j + 1]):
                leaf, last = np.uint64(first[tree]), np.uint64(first[tree + 1] - 1)
                for at in range(np.uint64(0), np.uint64(used), np.uint64(_BLOCK)):
                    while leaf < last and v[at] > low[leaf + np.uint64(1)]:
                        leaf += np.uint64(1)
                    largest = v[at + np.uint64(_BLOCK - 1)]
                    if leaf == last or largest <= low[leaf + np.uint64(1)]:
                        rise, slope = own[leaf, 0], own[leaf, 1]
                        for r in range(np.uint64(_BLOCK)):
                            v[at + r] = min(max(rise + v[at + r] * slope, _TINY), 1.0)
                            product[at + r] *= slope
                        continue
                    _move_block(v, at, largest, leaf, last, low, own, image, steep)
                    for r in range(np.uint64(_BLOCK)):
                        v[at + r] = min(max(image[r], _TINY), 1.0)
                        product[at + r] *= steep[r]
            for k in range(n):
                mixed[i, np.uint64(begin) + k] += shares[i, j] * v[k]
                slopes[i, np.uint64(begin) + k] += shares[i, j] * product[k]


@inlined_kernel
def _move_block(v, at, largest, leaf, last, cut, line, image, steep):
    """image, steep (block,) <- images and slopes of points v[at:at + block], from the first leaf's to `largest`.

    Leaf t begins at cut[t] and is the line of value line[t, 0] at 0 and slope line[t, 1]. Three leaves at a time,
    without a branch on where a point is.
    """
    one, before = np.uint64(1), -1.0
    while True:
        second = min(leaf + one, last)
        third = min(second + one, last)
        slope1, slope2, slope3 = line[leaf, 1], line[second, 1], line[third, 1]
        rise1, rise2, rise3, cut2, cut3 = line[leaf, 0], line[second, 0], line[third, 0], cut[second], cut[third]
        for r in range(np.uint64(_BLOCK)):
            z = v[at + r]
            b = slope2 if z > cut2 else slope1
            a = rise2 if z > cut2 else rise1
            b = slope3 if z > cut3 else b
            a = rise3 if z > cut3 else a
            image[r] = a + z * b if z > before else image[r]
            steep[r] = b if z > before else steep[r]
        if third == last or largest <= cut[third + one]:
            return
        leaf = third + one
        before = cut[leaf]


@kernel
def unmix_points(first, low, ends, lines, numbers, u):
    """u (n, m) <- what sequence numbers[i, k] of trees has the image u[i, k] of, at the lines of row i.

    It is the inverse of one sequence of `mix_points`. Points outside the unit interval stay where they are.
    """
    m = u.shape[1]
    n_blocks, most = (m + _BLOCK - 1) // _BLOCK, most_leaves(first)
    place, v = np.empty(m, np.int64), np.empty(n_blocks * _BLOCK)
    image, steep = np.empty(_BLOCK), np.empty(_BLOCK)
    cut, line = np.empty(most), np.empty((most, 2))
    for i in range(u.shape[0]):
        own = lines[i]
        for j in range(ends.size - 1):
            count = 0
            for k in range(m):
                if numbers[i, k] == j and 0.0 <= u[i, k] <= 1.0:
                    place[count], v[count] = k, u[i, k]
                    count += 1
            used = (count + _BLOCK - 1) // _BLOCK * _BLOCK
            v[count:used] = 0.0
            for tree in range(ends[j + 1] - 1, ends[j] - 1, -1):
                start, last = first[tree], np.uint64(first[tree + 1] - 1 - first[tree])
                for leaf in range(last + np.uint64(1)):
                    at = np.uint64(start) + leaf
                    steepness = own[at, 1]
                    cut[leaf] = own[at, 0] + low[at] * steepness
                    line[leaf, 1] = 1.0 / steepness if steepness > 0.0 else 0.0
                    line[leaf, 0] = low[at] - cut[leaf] * line[leaf, 1]
                for at in range(np.uint64(0), np.uint64(used), np.uint64(_BLOCK)):
                    _move_block(v, at, np.inf, np.uint64(0), last, cut, line, image, steep)
                    for r in range(np.uint64(_BLOCK)):
                        v[at + r] = min(max(image[r], _TINY), 1.0)
            for a in range(count):
                u[i, place[a]] = v[a]
