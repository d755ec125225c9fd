"""The tree-CDF itself: every tree of a sequence applied to rows, forward (data to uniform) and inverse."""

import numpy as np

from treecdf._kernels.compiling import kernel, ordered_kernel
from treecdf._kernels.losses import exp_tile

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

# Points go through a tree together, a tile at a time and level by level, without a branch on where each of them goes:
# the processor cannot guess it. So `side` is 0.0 on the left and 1.0 on the right, and enters as a number. Whole arrays are indexed instead of rows taken from them, because a row is an object
# and making one costs more than the arithmetic of a node; by unsigned numbers, because signed ones may count from the end.

_TILE = 128
_TINY = 1e-300  # the cube is open at zero
_SAFE = 1e150  # slopes are multiplied up to here before their logarithm is taken


@ordered_kernel
def dot(theta, i, offset, x, row, n):
    """theta[i, offset:offset + n] @ x[row, :n], in four sums: for a few terms faster than vector units are."""
    s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
    j = 0
    while j + 4 <= n:
        s0 += theta[i, offset + j] * x[row, j]
        s1 += theta[i, offset + j + 1] * x[row, j + 1]
        s2 += theta[i, offset + j + 2] * x[row, j + 2]
        s3 += theta[i, offset + j + 3] * x[row, j + 3]
        j += 4
    while j < n:
        s0 += theta[i, offset + j] * x[row, j]
        j += 1
    return (s0 + s1) + (s2 + s3)


@kernel
def network_logit(theta, i, hidden, x, row, value):
    """Log-odds of node i's network at covariates x[row]; value (layers, units) is work space."""
    offset, n_in = 0, x.shape[1]
    for layer in range(hidden.size):
        n_out = hidden[layer]
        for o in range(n_out):
            if layer == 0:
                z = dot(theta, i, offset + o * n_in, x, row, n_in)
            else:
                z = dot(theta, i, offset + o * n_in, value, layer - 1, n_in)
            value[layer, o] = max(z + theta[i, offset + n_out * n_in + o], 0.0)
        offset += n_out * (n_in + 1)
        n_in = n_out
    return dot(theta, i, offset, value, hidden.size - 1, n_in) + theta[i, offset + n_in]


@ordered_kernel
def left_logit(theta, i, hidden, x, row, value):
    """Log-odds of node i's left child at covariates x[row].

    `hidden` is None for logistic nodes: the compiler then makes a kernel of its own, without the network.
    """
    if hidden is None:
        return theta[i, 0] + dot(theta, i, 1, x, row, theta.shape[1] - 1)
    return network_logit(theta, i, hidden, x, row, value)


@kernel
def network_space(hidden):
    """Work space (layers, units) of network_logit."""
    if hidden is None:
        return np.empty((0, 0))
    return np.empty((hidden.size, hidden.max()))


@kernel
def tree_sizes(nodes, roots):
    """Most nodes and most levels of a tree."""
    largest, deepest = 1, 0
    for tree in range(roots.size - 1):
        largest = max(largest, roots[tree + 1] - roots[tree])
    for i in range(nodes.size):
        deepest = max(deepest, nodes[i].depth)
    return largest, deepest + 1


@kernel
def left_probs(at, point, count, root, theta, hidden, x, row, share_row, known, value, prob, bits):
    """prob[:count] <- left_prob of the nodes at[:count] at the covariates of their points.

    Point t belongs to row `row + t`, or all to `row` if share_row; then known[i - root] keeps the log-odds of the
    nodes that were met (NaN if not yet).
    """
    for a in range(count):
        i = at[a]
        if share_row:
            if np.isnan(known[i - root]):
                known[i - root] = left_logit(theta, i, hidden, x, row, value)
            prob[a] = -known[i - root]
        else:
            prob[a] = -left_logit(theta, i, hidden, x, row + point[a], value)
    exp_tile(prob[:count], bits[:count])
    for a in range(count):
        prob[a] = 1.0 / (1.0 + prob[a])


@kernel
def forward(nodes, theta, roots, hidden, x, u, log_det):
    """u (n, m, d) <- G_T o ... o G_1 (u) at covariates x (n, q); add the log-determinant to log_det (n, m).

    Tree t has the nodes roots[t]:roots[t + 1], its root first; theta (nodes, P) are their classifiers'
    parameters.
    """
    n, m, d = u.shape
    share_row = m > 1
    largest, deepest = tree_sizes(nodes, roots)
    known, value = np.empty(largest), network_space(hidden)
    at, prob, bits = np.empty(_TILE, np.int64), np.empty(_TILE), np.empty(_TILE, np.int64)
    product = np.empty(_TILE)
    # What was done on each level, to be replayed from the deepest to the root.
    count = np.empty(deepest + 1, np.int64)
    point = np.empty((deepest + 1, _TILE), np.int64)
    axis = np.empty((deepest, _TILE), np.int64)
    fixed, slope = np.empty((deepest, _TILE)), np.empty((deepest, _TILE))
    for row in range(0, n, 1 if share_row else _TILE):
        for column in range(0, m, _TILE):
            size = min(m - column if share_row else n - row, _TILE)
            first = row * m + column
            flat = u.reshape(n * m, d)[first : first + size]
            product[:] = 1.0
            for tree in range(roots.size - 1):
                root = roots[tree]
                if root == roots[tree + 1]:
                    continue
                known[:] = np.nan
                for t in range(size):
                    point[0, t], at[t] = t, root
                count[0] = size
                level = 0
                while count[level] > 0:
                    left_probs(
                        at, point[level], count[level], root, theta, hidden, x, row, share_row, known, value, prob, bits
                    )
                    staying = 0
                    for a in range(count[level]):
                        i, t, p = np.uint64(at[a]), np.uint64(point[level, a]), prob[a]
                        share, left, right = nodes[i].left_share, nodes[i].left, nodes[i].right
                        lower, upper, j = nodes[i].lower, nodes[i].upper, nodes[i].axis
                        is_left = flat[t, j] <= nodes[i].cut
                        side = 0.0 if is_left else 1.0
                        density = abs(side - p) / abs(side - share)
                        slope[level, a] = 1.0 + nodes[i].rate * (density - 1.0)
                        fixed[level, a] = (1.0 - side) * lower + side * upper
                        axis[level, a] = j
                        product[t] *= slope[level, a]
                        child = left + (0 if is_left else 1) * (right - left)
                        at[staying], point[level + 1, staying] = child, t
                        staying += 1 if child >= 0 else 0
                    level += 1
                    count[level] = staying
                for back in range(level - 1, -1, -1):
                    for a in range(count[back]):
                        t, j, f = point[back, a], axis[back, a], fixed[back, a]
                        flat[t, j] = f + slope[back, a] * (flat[t, j] - f)
                for t in range(size):
                    for j in range(d):
                        flat[t, j] = min(max(flat[t, j], _TINY), 1.0)
                    if not (1.0 / _SAFE < product[t] < _SAFE):
                        log_det[row + (0 if share_row else t), column + (t if share_row else 0)] += np.log(product[t])
                        product[t] = 1.0
            for t in range(size):
                log_det[row + (0 if share_row else t), column + (t if share_row else 0)] += np.log(product[t])


@kernel
def inverse(nodes, theta, roots, hidden, x, u):
    """u (n, m, d) <- the inverse of `forward` at covariates x (n, q)."""
    n, m, d = u.shape
    share_row = m > 1
    largest, _ = tree_sizes(nodes, roots)
    known, value = np.empty(largest), network_space(hidden)
    at, prob, bits = np.empty(_TILE, np.int64), np.empty(_TILE), np.empty(_TILE, np.int64)
    point = np.empty(_TILE, np.int64)
    for row in range(0, n, 1 if share_row else _TILE):
        for column in range(0, m, _TILE):
            size = min(m - column if share_row else n - row, _TILE)
            first = row * m + column
            flat = u.reshape(n * m, d)[first : first + size]
            for tree in range(roots.size - 2, -1, -1):
                root = roots[tree]
                if root == roots[tree + 1]:
                    continue
                known[:] = np.nan
                for t in range(size):
                    point[t], at[t] = t, root
                count = size
                while count > 0:
                    left_probs(at, point, count, root, theta, hidden, x, row, share_row, known, value, prob, bits)
                    staying = 0
                    for a in range(count):
                        i, t = np.uint64(at[a]), np.uint64(point[a])
                        lower, upper, cut, j = nodes[i].lower, nodes[i].upper, nodes[i].cut, nodes[i].axis
                        left, right = nodes[i].left, nodes[i].right
                        left_mass = nodes[i].rate * prob[a] + (1.0 - nodes[i].rate) * nodes[i].left_share
                        z = (flat[t, j] - lower) / (upper - lower)
                        is_left = z <= left_mass
                        side = 0.0 if is_left else 1.0
                        fixed = (1.0 - side) * lower + side * upper
                        moved = fixed + (cut - fixed) * (abs(side - z) / abs(side - left_mass))
                        # A rounded result must not fall onto the other side of the cut.
                        low = (1.0 - side) * _TINY + side * (cut + 1.2e-16)
                        flat[t, j] = min(max(moved, low), (1.0 - side) * cut + side * upper)
                        child = left + (0 if is_left else 1) * (right - left)
                        at[staying], point[staying] = child, t
                        staying += 1 if child >= 0 else 0
                    count = staying
