"""Mixtures of sequences of trees of one outcome, at rows where the masses of all nodes are known.

Classifiers are asked once for each row and node. After that a tree is a piecewise linear function of one number, and
many points go through it for the price of looking up where they are.
"""

import numpy as np

from treecdf._kernels.compiling import kernel
from treecdf._kernels.losses import exp_tile
from treecdf._kernels.transform import NETWORK, TREES, dot, network_logit, trees_logit, work_sizes

_TINY = 1e-300  # the cube is open at zero
_NEXT = 1.2e-16  # right of a cut there is nothing nearer


@kernel
def fill_masses(nodes, theta, roots, kind, x, first, masses):
    """masses[:, first:first + nodes] <- share of each node's mass that its left child has, at the rows of x (n, q)."""
    n = nodes.size
    value = np.empty((kind.size, work_sizes(nodes, roots, kind, x.shape[1])[2]))
    odds, bits = np.empty(n), np.empty(n, np.int64)
    for i in range(x.shape[0]):
        if kind[0] == NETWORK:
            for k in range(n):
                odds[k] = -network_logit(theta, k, kind, x, i, value)
        elif kind[0] == TREES:
            for k in range(n):
                odds[k] = -trees_logit(theta, k, kind, x, i)
        else:
            for k in range(n):
                odds[k] = -theta[k, 0] - dot(theta, k, np.int64(1), x, i, theta.shape[1] - 1)
        exp_tile(odds, n, bits)
        for k in range(n):
            rate = nodes[k].rate
            masses[i, first + k] = rate / (1.0 + odds[k]) + (1.0 - rate) * nodes[k].left_share


@kernel
def fill_leaves(left, right, roots, first, low, high, masses, lines):
    """lines (n, leaves, 2) <- mass left of each leaf of its tree, and slope of the CDF in it, from masses (n, nodes).

    left, right (nodes,): a node's children, nodes of larger number, or -1 - leaf. Tree t has the nodes
    roots[t]:roots[t + 1] and, from left to right, the leaves first[t]:first[t + 1], which extend from low to high.
    """
    whole = np.empty(left.size)
    for i in range(masses.shape[0]):
        for tree in range(roots.size - 1):
            if roots[tree] == roots[tree + 1]:  # a tree without nodes: one leaf
                lines[i, first[tree], 1] = 1.0
            for k in range(roots[tree], roots[tree + 1]):
                if k == roots[tree]:
                    whole[k] = 1.0
                part = whole[k] * masses[i, k]
                if left[k] >= 0:
                    whole[left[k]] = part
                else:
                    lines[i, -1 - left[k], 1] = part
                if right[k] >= 0:
                    whole[right[k]] = whole[k] - part
                else:
                    lines[i, -1 - right[k], 1] = whole[k] - part
            below = 0.0
            for leaf in range(first[tree], first[tree + 1]):
                mass = lines[i, leaf, 1]
                lines[i, leaf, 0] = below
                lines[i, leaf, 1] = mass / (high[leaf] - low[leaf])
                below += mass


@kernel
def mix_points(first, low, high, ends, lines, rows, shares, u, mixed, slopes):
    """mixed, slopes (n, m) <- means over sequences of trees of the images of points u (n, m), and of their slopes.

    Row i of u belongs to row rows[i] of the lines, where sequence j, the trees ends[j]:ends[j + 1], has the share
    shares[i, j]. Points outside the unit interval stay where they are.
    """
    m = u.shape[1]
    v, product = np.empty(m), np.empty(m)
    for i in range(u.shape[0]):
        own = lines[rows[i]]
        for k in range(m):
            mixed[i, k], slopes[i, k] = 0.0, 0.0
        for j in range(ends.size - 1):
            for k in range(m):
                v[k], product[k] = min(max(u[i, k], _TINY), 1.0), 1.0
            for tree in range(ends[j], ends[j + 1]):
                begin, last = first[tree], first[tree + 1] - 1
                for k in range(m):  # points side by side: none waits for another's way through the trees
                    # No branch: the processor cannot guess where a point is.
                    at = begin
                    for leaf in range(begin, last):
                        at += 1 if v[k] > high[leaf] else 0
                    slope = own[at, 1]
                    v[k] = min(max(own[at, 0] + (v[k] - low[at]) * slope, _TINY), 1.0)
                    product[k] *= slope
            for k in range(m):
                mixed[i, k] += shares[i, j] * v[k]
                slopes[i, k] += shares[i, j] * product[k]
        for k in range(m):
            if not 0.0 <= u[i, k] <= 1.0:
                mixed[i, k], slopes[i, k] = u[i, k], 1.0


@kernel
def mix_ascending(first, low, high, ends, lines, rows, shares, u, mixed, slopes):
    """What `mix_points` gives for points that ascend at each row, faster if they are many.

    The points of a leaf are neighbours: one pass from left to right finds and moves them.
    """
    m = u.shape[1]
    v, product = np.empty(m), np.empty(m)
    for i in range(u.shape[0]):
        below, steep = lines[rows[i], :, 0], lines[rows[i], :, 1]
        begin, end = 0, m
        while begin < m and not u[i, begin] >= 0.0:
            begin += 1
        while end > begin and not u[i, end - 1] <= 1.0:
            end -= 1
        for k in range(m):
            outside = k < begin or k >= end
            mixed[i, k], slopes[i, k] = u[i, k] if outside else 0.0, 1.0 if outside else 0.0
        n = np.uint64(end - begin)
        for j in range(ends.size - 1):
            for k in range(n):
                v[k], product[k] = max(u[i, begin + k], _TINY), 1.0
            for tree in range(ends[j], ends[j + 1]):
                last, k = np.uint64(first[tree + 1] - 1), np.uint64(0)
                for leaf in range(np.uint64(first[tree]), last):
                    left, right, rise, slope = low[leaf], high[leaf], below[leaf], steep[leaf]
                    while k < n and v[k] <= right:
                        v[k] = min(max(rise + (v[k] - left) * slope, _TINY), 1.0)
                        product[k] *= slope
                        k += np.uint64(1)
                left, rise, slope = low[last], below[last], steep[last]
                for a in range(k, n):
                    v[a] = min(max(rise + (v[a] - left) * slope, _TINY), 1.0)
                    product[a] *= slope
            for k in range(n):
                mixed[i, begin + k] += shares[i, j] * v[k]
                slopes[i, begin + k] += shares[i, j] * product[k]


@kernel
def unmix_points(first, low, high, ends, lines, numbers, u):
    """u (n, m) <- what sequence numbers[i, k] of trees has the image u[i, k] of, at the lines of row i.

    It is the inverse of one sequence of `mix_points`. Points outside the unit interval stay where they are.
    """
    m = u.shape[1]
    own = np.empty(m, np.int64)
    for i in range(u.shape[0]):
        for j in range(ends.size - 1):
            count = 0
            for k in range(m):
                if numbers[i, k] == j and 0.0 <= u[i, k] <= 1.0:
                    own[count] = k
                    count += 1
            for tree in range(ends[j + 1] - 1, ends[j] - 1, -1):
                begin, end = first[tree], first[tree + 1]
                for a in range(count):
                    v, at = u[i, own[a]], begin
                    for leaf in range(begin + 1, end):
                        at += 1 if v > lines[i, leaf, 0] else 0
                    steep = lines[i, at, 1]
                    v = low[at] + (v - lines[i, at, 0]) / steep if steep > 0.0 else high[at]
                    # A rounded result must not fall onto the other side of a cut.
                    u[i, own[a]] = min(max(v, low[at] + _NEXT if at > begin else _TINY), high[at])
