"""Small trees on binned covariates, grown from histograms of gradients; several roots and several outputs at once.

codes (q, n) uint8: the bin of each covariate, 0 for a missing value. A tree of depth D is three arrays of 2^D - 1 inner
nodes, level by level (the children of node k of a level are nodes 2k and 2k + 1 of the next), and 2^D leaves:
column -1 means "no split, all rows go left"; a row goes left if its bin is at most `cut`, a missing one if
`missing_left`.
"""

import numpy as np

from treecdf._kernels.compiling import ordered_kernel


@ordered_kernel
def grow(codes, rows, place, gradient, hessian, columns, n_bins, min_rows, ridge, column, cut, missing_left, leaf):
    """Grow one tree at every root by Newton's method and fill its arrays; `place` ends as the leaf of each row.

    rows (m,): the rows to learn from; place (n,) their root at first. gradient, hessian (n, K) of the loss.
    columns: the covariates that may be split. column, cut, missing_left (roots, 2^D - 1), leaf (roots, 2^D, K).
    """
    n_roots, n_leaves, n_outputs = leaf.shape
    first = 0  # inner node of a tree that its level begins with
    width = 1  # nodes of a tree on the level
    statistics = _statistics(rows, gradient, hessian)
    while width < n_leaves:
        sums = _histograms(codes, rows, place, statistics, columns, n_roots * width, n_bins)
        for root in range(n_roots):
            for k in range(width):
                here = sums[root * width + k]
                best = _best_split(here, min_rows, ridge, n_outputs)
                at = first + k
                column[root, at] = -1 if best[0] < 0 else columns[best[0]]
                cut[root, at] = best[1]
                missing_left[root, at] = best[2]
        for i in rows:
            root, k = place[i] // width, place[i] % width
            place[i] = 2 * place[i] + _goes_right(
                codes, i, column[root, first + k], cut[root, first + k], missing_left[root, first + k]
            )
        first += width
        width *= 2
    totals = np.zeros((n_roots * n_leaves, n_outputs, 2))
    for i in rows:
        for o in range(n_outputs):
            totals[place[i], o, 0] += gradient[i, o]
            totals[place[i], o, 1] += hessian[i, o]
    for root in range(n_roots):
        for k in range(n_leaves):
            for o in range(n_outputs):
                total = totals[root * n_leaves + k, o]
                leaf[root, k, o] = -total[0] / (total[1] + ridge)


@ordered_kernel
def _statistics(rows, gradient, hessian):
    """Gradient and Hessian of each output in turn, then 1, of the rows: (m, 2 K + 1)."""
    n_outputs = gradient.shape[1]
    statistics = np.ones((len(rows), 2 * n_outputs + 1))
    for r in range(len(rows)):
        for o in range(n_outputs):
            statistics[r, 2 * o] = gradient[rows[r], o]
            statistics[r, 2 * o + 1] = hessian[rows[r], o]
    return statistics


@ordered_kernel
def _histograms(codes, rows, place, statistics, columns, n_nodes, n_bins):
    """Sums (node, column, bin, 2 K + 1) of the rows' statistics."""
    size = statistics.shape[1]
    sums = np.zeros((n_nodes, len(columns), n_bins + 1, size))
    flat, added = sums.reshape(-1), statistics.reshape(-1)  # several indices are slow in the middle of a loop
    of_column, of_node = (n_bins + 1) * size, len(columns) * (n_bins + 1) * size
    for c in range(len(columns)):
        bins = codes[columns[c]]
        for r in range(len(rows)):
            i = rows[r]
            at = np.uint64(place[i] * of_node + c * of_column + bins[i] * size)
            source = np.uint64(r * size)
            if size == 3:
                flat[at] += added[source]
                flat[at + np.uint64(1)] += added[source + np.uint64(1)]
                flat[at + np.uint64(2)] += 1.0
            else:
                for s in range(np.uint64(size)):
                    flat[at + s] += added[source + s]
    return sums


@ordered_kernel
def _best_split(sums, min_rows, ridge, n_outputs):
    """Column (as a place in the histogram, -1 for none), bin and side of the missing rows of a node's best split."""
    n_columns, n_bins = sums.shape[0], sums.shape[1]
    size = 2 * n_outputs + 1
    total = np.zeros(size)
    for b in range(n_bins):
        total += sums[0, b]
    uncut = _score(total, ridge, n_outputs)
    best_gain, best_column, best_cut, best_side = 1e-12 * (1.0 + abs(uncut)), -1, 255, 1
    left = np.empty(size)
    for c in range(n_columns):
        sides = 2 if sums[c, 0, size - 1] > 0 else 1
        for side in range(sides):  # 0: missing rows to the right, 1: to the left
            left[:] = 0.0
            if side == 1:
                left += sums[c, 0]
            for b in range(1, n_bins - 1):
                if sums[c, b, size - 1] == 0:
                    continue
                for s in range(size):
                    left[s] += sums[c, b, s]
                if left[size - 1] < min_rows:
                    continue
                if total[size - 1] - left[size - 1] < min_rows:
                    break
                gain = -uncut
                for o in range(n_outputs):  # as _score, of both sides at once and without a copy
                    g, h = left[2 * o], left[2 * o + 1]
                    rest_g, rest_h = total[2 * o] - g, total[2 * o + 1] - h
                    gain += g * g / (h + ridge) + rest_g * rest_g / (rest_h + ridge)
                if gain > best_gain:
                    best_gain, best_column, best_cut, best_side = gain, c, b, side
    return best_column, best_cut, best_side


@ordered_kernel
def _score(sums, ridge, n_outputs):
    """Twice the decrease of the loss that one Newton step in every output gives."""
    score = 0.0
    for o in range(n_outputs):
        score += sums[2 * o] ** 2 / (sums[2 * o + 1] + ridge)
    return score


@ordered_kernel
def _goes_right(codes, i, column, cut, missing_left):
    if column < 0:
        return 0
    b = codes[column, i]
    if b == 0:
        return 1 - missing_left
    return 1 if b > cut else 0


@ordered_kernel
def add_leaves(codes, root_of, column, cut, missing_left, leaf, rate, scores):
    """Add `rate` times the leaf of every row's tree to its scores (n, K); root_of (n,), -1 for rows to leave out."""
    n_leaves, n_outputs = leaf.shape[1], leaf.shape[2]
    for i in range(len(root_of)):
        root = root_of[i]
        if root < 0:
            continue
        first, width, k = 0, 1, 0
        while width < n_leaves:
            at = first + k
            k = 2 * k + _goes_right(codes, i, column[root, at], cut[root, at], missing_left[root, at])
            first += width
            width *= 2
        for o in range(n_outputs):
            scores[i, o] += rate * leaf[root, k, o]


@ordered_kernel
def add_trees(codes, column, cut, missing_left, leaf, rate, scores):
    """Add `rate` times the leaves of all trees to the scores (n, K) of every row: trees on the first axis."""
    n_trees, n_leaves, n_outputs = leaf.shape
    for t in range(n_trees):
        for i in range(len(scores)):
            first, width, k = 0, 1, 0
            while width < n_leaves:
                at = first + k
                k = 2 * k + _goes_right(codes, i, column[t, at], cut[t, at], missing_left[t, at])
                first += width
                width *= 2
            for o in range(n_outputs):
                scores[i, o] += rate * leaf[t, k, o]
