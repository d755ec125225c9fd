"""The tree-CDF itself: every tree of a sequence applied to rows, forward (data to uniform) and inverse."""

import numpy as np

from treecdf._kernels.compiling import kernel

NODE = np.dtype(
    [
        ("axis", "i4"),  # j, the outcome that is split
        ("left", "i4"),  # A_l: its row in this table, -1 for a leaf
        ("right", "i4"),  # A_r
        ("depth", "i4"),
        ("cut", "f8"),  # s_j
        ("lower", "f8"),  # a_j
        ("upper", "f8"),  # b_j
        ("left_share", "f8"),  # mu(A_l) / mu(A)
        ("rate", "f8"),  # c(A)
        ("gain", "f8"),  # log-likelihood won by the split
        ("covariate_gain", "f8"),  # the part of it that depends on x
    ]
)

_BLOCK = 128  # rows that pass through a tree together, while its nodes are in the fastest memory
_TINY = 1e-300  # the cube is open at zero


@kernel
def left_prob(theta, hidden, x, value):
    """Probability of the left child at covariates x (q,): logistic if there is no hidden layer, else the network."""
    if hidden.size == 0:
        z = theta[0]
        for j in range(theta.size - 1):
            z += theta[1 + j] * x[j]
        return 1.0 / (1.0 + np.exp(-z))
    offset, n_in, below, unit = 0, x.size, 0, 0
    for layer in range(hidden.size):
        n_out = hidden[layer]
        for o in range(n_out):
            z = theta[offset + n_out * n_in + o]
            for i in range(n_in):
                z += theta[offset + o * n_in + i] * (x[i] if layer == 0 else value[below + i])
            value[unit + o] = max(z, 0.0)
        offset += n_out * (n_in + 1)
        n_in, below = n_out, unit
        unit += n_out
    z = theta[offset + n_in]
    for i in range(n_in):
        z += theta[offset + i] * value[below + i]
    return 1.0 / (1.0 + np.exp(-z))


@kernel
def cached_left_prob(i, first_node, theta, hidden, x, value, known):
    """left_prob of node i, computed once per row however many outcomes are asked at its x."""
    if known[i - first_node] < 0.0:
        known[i - first_node] = left_prob(theta[i], hidden, x, value)
    return known[i - first_node]


@kernel
def _sizes(nodes, roots, hidden):
    largest, deepest, width = 1, 0, 0
    for tree in range(roots.size - 1):
        largest = max(largest, roots[tree + 1] - roots[tree])
    for i in range(nodes.size):
        deepest = max(deepest, nodes[i].depth)
    for layer in range(hidden.size):
        width += hidden[layer]
    return largest, deepest + 1, width


@kernel
def forward(nodes, theta, roots, hidden, x, u, log_det):
    """u (n, m, d) <- G_T o ... o G_1 (u) at covariates x (n, q); add the log-determinant to log_det (n, m).

    Tree t has the nodes roots[t]:roots[t + 1], its root first; theta (nodes, P) are their classifiers'
    parameters.
    """
    n, m, _ = u.shape
    largest, deepest, width = _sizes(nodes, roots, hidden)
    path = np.empty(deepest, np.int64)
    slope = np.empty(deepest)
    known = np.empty(largest)
    value = np.empty(width)
    for begin in range(0, n, _BLOCK):
        for tree in range(roots.size - 1):
            root = roots[tree] if roots[tree] < roots[tree + 1] else -1
            for row in range(begin, min(begin + _BLOCK, n)):
                known[: roots[tree + 1] - roots[tree]] = -1.0
                for k in range(m):
                    point = u[row, k]
                    length = 0
                    ratio = 1.0
                    i = root
                    while i >= 0:
                        node = nodes[i]
                        p = cached_left_prob(i, roots[tree], theta, hidden, x[row], value, known)
                        if point[node.axis] <= node.cut:
                            slope[length] = 1.0 + node.rate * (p / node.left_share - 1.0)
                            path[length] = i
                            i = node.left
                        else:
                            slope[length] = 1.0 + node.rate * ((1.0 - p) / (1.0 - node.left_share) - 1.0)
                            path[length] = ~i
                            i = node.right
                        ratio *= slope[length]
                        length += 1
                    log_det[row, k] += np.log(ratio)
                    for step in range(length - 1, -1, -1):
                        i = path[step]
                        node = nodes[i if i >= 0 else ~i]
                        fixed = node.lower if i >= 0 else node.upper
                        moved = fixed + slope[step] * (point[node.axis] - fixed)
                        point[node.axis] = min(max(moved, _TINY), 1.0)


@kernel
def inverse(nodes, theta, roots, hidden, x, u):
    """u (n, m, d) <- the inverse of `forward` at covariates x (n, q)."""
    n, m, _ = u.shape
    largest, _, width = _sizes(nodes, roots, hidden)
    known = np.empty(largest)
    value = np.empty(width)
    for begin in range(0, n, _BLOCK):
        for tree in range(roots.size - 2, -1, -1):
            root = roots[tree] if roots[tree] < roots[tree + 1] else -1
            for row in range(begin, min(begin + _BLOCK, n)):
                known[: roots[tree + 1] - roots[tree]] = -1.0
                for k in range(m):
                    point = u[row, k]
                    i = root
                    while i >= 0:
                        node = nodes[i]
                        p = cached_left_prob(i, roots[tree], theta, hidden, x[row], value, known)
                        left_mass = node.rate * p + (1.0 - node.rate) * node.left_share
                        z = (point[node.axis] - node.lower) / (node.upper - node.lower)
                        if z <= left_mass:
                            moved = node.lower + (node.cut - node.lower) * (z / left_mass)
                            point[node.axis] = min(max(moved, _TINY), node.cut)
                            i = node.left
                        else:
                            share = (1.0 - z) / (1.0 - left_mass)
                            moved = node.upper - (node.upper - node.cut) * share
                            # a rounded result must not fall back onto the left side of the cut
                            point[node.axis] = max(min(moved, node.upper), np.nextafter(node.cut, 1.0))
                            i = node.right
