"""The best splits of nodes, from histograms of gradients of binned covariates; trees are arrays of `binned_trees`."""

import numpy as np

from treecdf._kernels.compiling import ordered_kernel


@ordered_kernel
def improve_ragged(sums, begin, width, columns, limits, totals, best, column, cut, missing_left):
    """Replace the nodes' splits, whose scores are best (node, 2), by better ones on these columns.

    sums (node, bins of all columns, 2 K + 1); begin (k + 1,): where the bins of each column begin. limits: the bins a
    column may have, the smallest weight of a child, and the ridge.
    """
    n_bins, min_rows, ridge = limits
    flat, size = sums.reshape(-1), sums.shape[2]
    score = np.empty(n_bins + 1)
    for node in range(sums.shape[0]):
        if totals[node, size - 1] < 2 * min_rows:
            continue
        root, at = node // width, width - 1 + node % width
        total, to_beat = totals[node], best[node]
        for c in range(len(columns)):
            last = min(begin[c + 1] - begin[c], n_bins) + 1
            where = (node * sums.shape[1] + begin[c]) * size
            found = _best_cut(flat, where, last, min_rows, ridge, total, to_beat, score)
            if found[0] >= 0:
                column[root, at], cut[root, at], missing_left[root, at] = columns[c], found[0], found[1]


@ordered_kernel
def best_splits(sums, width, columns, min_rows, ridge, column, cut, missing_left):
    """Split every node of a level, `width` of them in each tree, by its histogram (node, column, bin, 2 K + 1)."""
    totals, best = np.zeros((sums.shape[0], sums.shape[3])), np.zeros((sums.shape[0], 2))
    begin_splits(sums[:, 0], width, ridge, totals, best, column, cut, missing_left)
    _improve_splits(sums, width, columns, min_rows, ridge, totals, best, column, cut, missing_left)


@ordered_kernel
def begin_splits(sums, width, ridge, totals, best, column, cut, missing_left):
    """Leave the nodes of a level without splits; fill their totals (node, 2 K + 1) from one column's histogram.

    best (node, 2) are the score of no split and the margin by which a split has to be better.
    """
    n_bins, size = sums.shape[1], sums.shape[2]
    for node in range(sums.shape[0]):
        for b in range(n_bins):
            for s in range(size):
                totals[node, s] += sums[node, b, s]
        for o in range(size // 2):
            best[node, 0] += totals[node, 2 * o] * totals[node, 2 * o] / (totals[node, 2 * o + 1] + ridge)
        best[node, 1] = 1e-10 * (1.0 + best[node, 0])  # among equals the first wins, whatever the rounding
        root, at = node // width, width - 1 + node % width
        column[root, at], cut[root, at], missing_left[root, at] = -1, 255, 1


@ordered_kernel
def _improve_splits(sums, width, columns, min_rows, ridge, totals, best, column, cut, missing_left):
    """Replace the nodes' splits, whose scores are best (node, 2), by better ones on these columns."""
    for node in range(sums.shape[0]):
        if totals[node, sums.shape[3] - 1] < 2 * min_rows:
            continue
        found = _best_split(sums, node, min_rows, ridge, totals[node], best[node])
        if found[0] >= 0:
            root, at = node // width, width - 1 + node % width
            column[root, at], cut[root, at], missing_left[root, at] = columns[found[0]], found[1], found[2]


@ordered_kernel
def sums_of_children(sums, column, cut, missing_left):
    """Sums (children, 2 K + 1) over the rows left and right of the splits of the last level, by its histograms.

    All covariates may be split: their places in the histograms are their numbers.
    """
    n_bins, size = sums.shape[2], sums.shape[3]
    n_roots, first = column.shape[0], column.shape[1] // 2
    children = np.zeros((2 * sums.shape[0], size))
    for root in range(n_roots):
        for k in range(first, column.shape[1]):
            node = root * (first + 1) + k - first
            c = max(column[root, k], 0)
            for b in range(n_bins):
                goes_right = column[root, k] >= 0 and (b > cut[root, k] if b > 0 else missing_left[root, k] == 0)
                child = 2 * node + (1 if goes_right else 0)
                for s in range(size):
                    children[child, s] += sums[node, c, b, s]
    return children


@ordered_kernel
def _best_split(sums, node, min_rows, ridge, total, to_beat):
    """Column (as a place in the histogram), bin and side of the missing rows of a node's best split.

    The column is -1 if no split beats the score and the margin `to_beat`, where the best score is left.
    """
    n_columns, n_bins, size = sums.shape[1], sums.shape[2], sums.shape[3]
    flat, at = sums.reshape(-1), node * n_columns * n_bins * size
    score = np.empty(n_bins)
    best_column, best_cut, best_side = -1, 255, 1
    for c in range(n_columns):
        found = _best_cut(flat, at, n_bins, min_rows, ridge, total, to_beat, score)
        if found[0] >= 0:
            best_column, best_cut, best_side = c, found[0], found[1]
        at += n_bins * size
    return best_column, best_cut, best_side


@ordered_kernel
def _best_cut(flat, at, n_bins, min_rows, ridge, total, to_beat, score):
    """Bin, below n_bins - 1, and side of the missing rows of the best cut of a column; its histogram is at flat[at].

    The bin is -1 if no cut beats the score and the margin `to_beat`, where the best score is left. score: room for the
    cuts' scores.
    """
    size = total.size
    best_cut, best_side = -1, 1
    best, margin = to_beat
    sides = 2 if flat[at + size - 1] > 0 else 1
    for side in range(sides):  # 0: missing rows to the right, 1: to the left
        _score_cuts(flat, at, n_bins, side, total, ridge, score)
        weight = side * flat[at + size - 1]
        for b in range(1, n_bins - 1):
            weight += flat[np.uint64(at + b * size + size - 1)]
            if total[size - 1] - weight < min_rows:
                break
            if weight >= min_rows and score[b] > best + margin:
                best, best_cut, best_side = score[b], b, side
    to_beat[0] = best
    return best_cut, best_side


@ordered_kernel
def _score_cuts(flat, at, n_bins, side, total, ridge, score):
    """score[b] <- twice the decrease of the loss by Newton steps on both sides of a cut after bin b.

    The histogram of the column begins at flat[at]; total are the sums of its node.
    """
    size = total.size
    for b in range(1, n_bins - 1):
        score[b] = 0.0
    for o in range(size // 2):
        all_gradient, all_hessian = total[2 * o], total[2 * o + 1]
        gradient, hessian = side * flat[at + 2 * o], side * flat[at + 2 * o + 1]
        for b in range(1, n_bins - 1):
            here = np.uint64(at + b * size + 2 * o)
            gradient += flat[here]
            hessian += flat[here + np.uint64(1)]
            rest, left, right = all_gradient - gradient, hessian + ridge, all_hessian - hessian + ridge
            score[b] += (gradient * gradient * right + rest * rest * left) / (left * right)  # one division, not two
