"""The best splits of nodes, from histograms of gradients of binned covariates; trees are arrays of `binned_trees`."""

import numpy as np

from treecdf._kernels.compiling import ordered_kernel


@ordered_kernel
def best_of_columns(sums, begin, size, n_outputs, limits, total, score):
    """Column (as a place), bin and side of the missing rows of a node's best split; the column is -1 if there is none.

    sums: bins of all columns, flat, `size` numbers each: gradients and Hessians, output by output, then the weight, or
    gradient and Hessian of one output, whose Hessian is the weight; total (size,) their sums. begin (k + 1,): where the
    bins of each column begin. limits: the bins a column may have, the smallest weight of a child, and the ridge. score
    (bins + 1,): room.
    """
    n_bins, min_rows, ridge = limits
    where = min(2 * n_outputs, size - 1)  # of the weight
    found = -1, -1, 1
    if total[where] < 2 * min_rows:
        return found
    layout, to_beat = (size, n_outputs, where), np.zeros(2)
    _fill_to_beat(total, n_outputs, ridge, to_beat)
    for c in range(len(begin) - 1):
        last = min(begin[c + 1] - begin[c], n_bins) + 1
        cut, side = _best_cut(sums, begin[c] * size, last, layout, min_rows, ridge, total, to_beat, score)
        if cut >= 0:
            found = c, cut, side
    return found


@ordered_kernel
def _fill_to_beat(total, n_outputs, ridge, to_beat):
    """to_beat (2,) <- the score of no split, and the margin by which a split has to be better."""
    to_beat[0] = 0.0
    for o in range(n_outputs):
        to_beat[0] += total[2 * o] * total[2 * o] / (total[2 * o + 1] + ridge)
    to_beat[1] = 1e-10 * (1.0 + to_beat[0])  # among equals the first wins, whatever the rounding


@ordered_kernel
def best_splits(sums, width, columns, min_rows, ridge, column, cut, missing_left):
    """Split every node of a level, `width` of them in each tree, by its histogram (node, column, bin, 2 K + 1)."""
    n_nodes, n_columns, n_bins, size = sums.shape
    flat, total, to_beat, score = sums.reshape(-1), np.empty(size), np.empty(2), np.empty(n_bins)
    layout = size, size // 2, size - 1
    for node in range(n_nodes):
        root, k = node // width, width - 1 + node % width
        column[root, k], cut[root, k], missing_left[root, k] = -1, 255, 1
        for s in range(size):
            total[s] = 0.0
        for b in range(n_bins):
            for s in range(size):
                total[s] += sums[node, 0, b, s]
        if total[size - 1] < 2 * min_rows:
            continue
        _fill_to_beat(total, size // 2, ridge, to_beat)
        for c in range(n_columns):
            at = (node * n_columns + c) * n_bins * size
            found = _best_cut(flat, at, n_bins, layout, min_rows, ridge, total, to_beat, score)
            if found[0] >= 0:
                column[root, k], cut[root, k], missing_left[root, k] = columns[c], found[0], found[1]


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
def _best_cut(flat, at, n_bins, layout, min_rows, ridge, total, to_beat, score):
    """Bin, below n_bins - 1, and side of the missing rows of the best cut of a column; its histogram is at flat[at].

    The bin is -1 if no cut beats the score and the margin `to_beat`, where the best score is left. layout: how many
    numbers a bin has, how many outputs, and where the weight is among the numbers. score: room for the cuts' scores.
    """
    size, n_outputs, where = layout
    best_cut, best_side = -1, 1
    best, margin = to_beat
    sides = 2 if flat[at + where] > 0 else 1
    for side in range(sides):  # 0: missing rows to the right, 1: to the left
        _score_cuts(flat, at, n_bins, size, n_outputs, side, total, ridge, score)
        weight = side * flat[at + where]
        for b in range(1, n_bins - 1):
            weight += flat[np.uint64(at + b * size + where)]
            if total[where] - weight < min_rows:
                break
            if weight >= min_rows and score[b] > best + margin:
                best, best_cut, best_side = score[b], b, side
    to_beat[0] = best
    return best_cut, best_side


@ordered_kernel
def _score_cuts(flat, at, n_bins, size, n_outputs, side, total, ridge, score):
    """score[b] <- twice the decrease of the loss by Newton steps on both sides of a cut after bin b.

    The histogram of the column begins at flat[at]; total are the sums of its node.
    """
    for b in range(1, n_bins - 1):
        score[b] = 0.0
    for o in range(n_outputs):
        all_gradient, all_hessian = total[2 * o], total[2 * o + 1]
        gradient, hessian = side * flat[at + 2 * o], side * flat[at + 2 * o + 1]
        for b in range(1, n_bins - 1):
            here = np.uint64(at + b * size + 2 * o)
            gradient += flat[here]
            hessian += flat[here + np.uint64(1)]
            rest, left, right = all_gradient - gradient, hessian + ridge, all_hessian - hessian + ridge
            score[b] += (gradient * gradient * right + rest * rest * left) / (left * right)  # one division, not two
