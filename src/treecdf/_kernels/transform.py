"""The tree-CDF itself: every tree of a sequence applied to rows, forward (data to uniform) and inverse."""

import numpy as np

from treecdf._kernels.compiling import inlined_kernel, kernel
from treecdf._kernels.losses import exp_tile

NODE = np.dtype(
    [
        ("axis", "i4"),  # j, the outcome that is split
        ("left", "i4"),  # A_l: its row in this table, -1 for a leaf
        ("right", "i4"),  # A_r
        ("depth", "i4"),  # level in its tree, 0 for the root
        ("cut", "f8"),  # s_j
        ("lower", "f8"),  # a_j
        ("upper", "f8"),  # b_j
        ("left_share", "f8"),  # mu(A_l) / mu(A)
        ("rate", "f8"),  # c(A)
    ]
)

# Kinds of node classifiers, the first entry of `kind`; the others say how to read the parameters theta of a node.
LINEAR = 0  # (LINEAR, basis): intercept, slopes on the features that x then holds
NETWORK = 1  # (NETWORK, units of every hidden layer): layer by layer weights (out, in), biases (out)
TREES = 2  # (TREES, rounds, depth): score to start with, then tree by tree (column, threshold, missing_left) of its
# 2^depth - 1 inner nodes, level by level, and 2^depth leaves
PYTHON = 3  # (PYTHON,): objects, which no kernel can ask

# Points go through a tree together, a tile at a time and level by level, without a branch on where each of them goes:
# the processor cannot guess it. So `side` is 0.0 on the left and 1.0 on the right, and enters as a number. Whole
# arrays are indexed instead of rows taken from them, because a row is an object and making one costs more than the
# arithmetic of a node; and by unsigned numbers, because signed ones may count from the end, which has to be checked.

_TILE = 128
_TINY = 1e-300  # the cube is open at zero
_SAFE = 1e150  # slopes are multiplied up to here before their logarithm is taken


@inlined_kernel
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
def network_logit(theta, i, kind, x, row, value):
    """Log-odds of node i's network at covariates x[row]; value (layers, units) is work space."""
    offset, n_in, last = 0, x.shape[1], kind.size - 1
    for j in range(n_in):
        value[0, j] = x[row, j]
    for layer in range(last + 1):
        n_out = kind[1 + layer] if layer < last else 1
        for o in range(n_out):
            z = theta[i, offset + n_out * n_in + o] + dot(theta, i, offset + o * n_in, value, layer, n_in)
            if layer == last:
                return z
            value[layer + 1, o] = max(z, 0.0)
        offset += n_out * (n_in + 1)
        n_in = n_out


@inlined_kernel
def trees_logit(theta, i, kind, x, row):
    """Log-odds of node i's boosted trees at covariates x[row]; NaN goes where missing values went in training."""
    n_inner = np.uint64((1 << kind[2]) - 1)
    i, row, one, three = np.uint64(i), np.uint64(row), np.uint64(1), np.uint64(3)
    score, offset = theta[i, 0], one
    for _ in range(kind[1]):
        k = np.uint64(0)
        while k < n_inner:
            at = offset + three * k
            value = x[row, np.uint64(np.int64(theta[i, at]))]
            # No branch: the processor cannot guess where a row goes.
            goes_right = (value > theta[i, at + one]) | (np.isnan(value) & (theta[i, at + one + one] == 0.0))
            k = k + k + one + np.uint64(goes_right)
        offset += three * n_inner
        score += theta[i, offset + k - n_inner]
        offset += n_inner + one
    return score


@kernel
def left_logit(theta, i, kind, x, row, value):
    """Log-odds of node i's left child at covariates x[row]."""
    if kind[0] == NETWORK:
        return network_logit(theta, i, kind, x, row, value)
    if kind[0] == TREES:
        return trees_logit(theta, i, kind, x, row)
    return theta[i, 0] + dot(theta, i, np.int64(1), x, row, theta.shape[1] - 1)


@kernel
def work_sizes(nodes, roots, kind, q):
    """Most nodes of a tree, most levels of a tree, most units of a layer of the networks, covariates included."""
    largest, deepest, width = 1, 0, q
    for tree in range(roots.size - 1):
        largest = max(largest, roots[tree + 1] - roots[tree])
    for i in range(nodes.size):
        deepest = max(deepest, nodes[i].depth + 1)
    if kind[0] == NETWORK:
        for layer in range(1, kind.size):
            width = max(width, kind[layer])
    return largest, deepest, width


@kernel
def left_probs(at, point, count, root, theta, kind, x, row, share_row, known, value, prob, bits):
    """prob[:count] <- left_prob of the nodes at[:count] at the covariates of their points.

    Point t belongs to row `row + t`, or all to `row` if share_row; then known[i - root] keeps what was found at the
    nodes that were met (NaN if not yet).
    """
    if share_row:
        for a in range(count):
            i = at[a] - root
            if np.isnan(known[i]):
                prob[a] = -left_logit(theta, at[a], kind, x, row, value)
                exp_tile(prob[a : a + 1], np.int64(1), bits)
                known[i] = 1.0 / (1.0 + prob[a])
            prob[a] = known[i]
        return
    if kind[0] == NETWORK:
        for a in range(count):
            prob[a] = -network_logit(theta, at[a], kind, x, row + point[a], value)
    elif kind[0] == TREES:
        for a in range(count):
            prob[a] = -trees_logit(theta, at[a], kind, x, row + point[a])
    else:
        for a in range(count):
            i = at[a]
            prob[a] = -theta[i, 0] - dot(theta, i, np.int64(1), x, row + point[a], theta.shape[1] - 1)
    exp_tile(prob, count, bits)
    for a in range(count):
        prob[a] = 1.0 / (1.0 + prob[a])


@kernel
def put_at_root(at, point, known, size, root, end):
    """Put all points of a tile at the root of the tree with the nodes root:end, of which nothing is known yet."""
    for i in range(end - root):
        known[i] = np.nan
    for t in range(size):
        point[t], at[t] = t, root


@kernel
def move_up(tile, n_levels, count, point, axis, fixed, slope):
    """Move the points of a tile by what was noted on each level of a tree, from the deepest level to the root."""
    for level in range(n_levels - 1, -1, -1):
        for a in range(count[level]):
            t, j, f = np.uint64(point[level, a]), np.uint64(axis[level, a]), fixed[level, a]
            tile[t, j] = f + slope[level, a] * (tile[t, j] - f)


@kernel
def settle(tile, first, product, log_det):
    """Hold the points of a tile inside the cube; turn products of slopes into logs before they leave float64."""
    for t in range(tile.shape[0]):
        for j in range(tile.shape[1]):
            tile[t, j] = min(max(tile[t, j], _TINY), 1.0)
        if not (1.0 / _SAFE < product[t] < _SAFE):
            log_det[first + t] += np.log(product[t])
            product[t] = 1.0


@kernel
def forward(nodes, theta, roots, kind, x, m, u, log_det):
    """u (n * m, d) <- G_T o ... o G_1 (u), m points at each row of x (n, q); add the log-determinants to log_det.

    Tree t has the nodes roots[t]:roots[t + 1], its root first; theta (nodes, P) are the parameters of their
    classifiers, all of one kind.
    """
    n = u.shape[0]
    share_row = m > 1
    largest, deepest, width = work_sizes(nodes, roots, kind, x.shape[1])
    known, value = np.empty(largest), np.empty((kind.size, width))
    at, prob, bits = np.empty(_TILE, np.int64), np.empty(_TILE), np.empty(_TILE, np.int64)
    product = np.empty(_TILE)
    # What was done on each level, to be replayed from the deepest to the root.
    count = np.empty(deepest + 1, np.int64)
    point = np.empty((deepest + 1, _TILE), np.int64)
    axis = np.empty((deepest, _TILE), np.int64)
    fixed, slope = np.empty((deepest, _TILE)), np.empty((deepest, _TILE))
    first = np.int64(0)  # a plain number would be compiled for as well
    while first < n:
        # A tile is a run of rows, or of points of one row.
        row = first // m
        size = min(_TILE, (row + 1) * m - first if share_row else n - first)
        tile = u[first : first + size]
        for t in range(size):
            product[t] = 1.0
        for tree in range(roots.size - 1):
            root = roots[tree]
            if root == roots[tree + 1]:
                continue
            put_at_root(at, point[0], known, size, root, roots[tree + 1])
            count[0] = size
            level = 0
            while count[level] > 0:
                left_probs(
                    at, point[level], count[level], root, theta, kind, x, row, share_row, known, value, prob, bits
                )
                staying = 0
                for a in range(count[level]):
                    i, t, p = np.uint64(at[a]), np.uint64(point[level, a]), prob[a]
                    share, left, right = nodes[i].left_share, nodes[i].left, nodes[i].right
                    lower, upper, j = nodes[i].lower, nodes[i].upper, nodes[i].axis
                    is_left = tile[t, j] <= nodes[i].cut
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
            move_up(tile, level, count, point, axis, fixed, slope)
            settle(tile, first, product, log_det)
        for t in range(size):
            log_det[first + t] += np.log(product[t])
        first += size


@kernel
def inverse(nodes, theta, roots, kind, x, m, u):
    """u (n * m, d) <- the inverse of `forward`, m points at each row of x (n, q)."""
    n = u.shape[0]
    share_row = m > 1
    largest, _, width = work_sizes(nodes, roots, kind, x.shape[1])
    known, value = np.empty(largest), np.empty((kind.size, width))
    at, prob, bits = np.empty(_TILE, np.int64), np.empty(_TILE), np.empty(_TILE, np.int64)
    point = np.empty(_TILE, np.int64)
    first = 0
    while first < n:
        row = first // m
        size = min(_TILE, (row + 1) * m - first if share_row else n - first)
        tile = u[first : first + size]
        for tree in range(roots.size - 2, -1, -1):
            root = roots[tree]
            if root == roots[tree + 1]:
                continue
            put_at_root(at, point, known, size, root, roots[tree + 1])
            count = size
            while count > 0:
                left_probs(at, point, count, root, theta, kind, x, row, share_row, known, value, prob, bits)
                staying = 0
                for a in range(count):
                    i, t = np.uint64(at[a]), np.uint64(point[a])
                    lower, upper, cut, j = nodes[i].lower, nodes[i].upper, nodes[i].cut, nodes[i].axis
                    left, right = nodes[i].left, nodes[i].right
                    left_mass = nodes[i].rate * prob[a] + (1.0 - nodes[i].rate) * nodes[i].left_share
                    z = (tile[t, j] - lower) / (upper - lower)
                    is_left = z <= left_mass
                    side = 0.0 if is_left else 1.0
                    fixed = (1.0 - side) * lower + side * upper
                    moved = fixed + (cut - fixed) * (abs(side - z) / abs(side - left_mass))
                    # A rounded result must not fall onto the other side of the cut.
                    low = (1.0 - side) * _TINY + side * (cut + 1.2e-16)
                    tile[t, j] = min(max(moved, low), (1.0 - side) * cut + side * upper)
                    child = left + (0 if is_left else 1) * (right - left)
                    at[staying], point[staying] = child, t
                    staying += 1 if child >= 0 else 0
                count = staying
        first += size
