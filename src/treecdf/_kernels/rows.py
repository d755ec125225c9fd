"""Passes over the rows of one shard: sums for the split search, and sorting rows into nodes.

Rows of a node are contiguous in `order`: those of node k are order[start[k]:start[k + 1]].
"""

import numpy as np

from treecdf._kernels.compiling import kernel

BLOCK = 4


@kernel
def find_bin(value, cuts, inverse_step):
    """Bin of `value` among ascending `cuts`: bin b holds (cuts[b - 1], cuts[b]]."""
    guess = int((value - cuts[0]) * inverse_step)
    b = min(max(guess, 0), cuts.size)
    # The division may land one bin off by rounding; the cuts themselves decide.
    while b < cuts.size and value > cuts[b]:
        b += 1
    while b > 0 and value <= cuts[b - 1]:
        b -= 1
    return b


@kernel
def search_sums(x, u, weight, order, start, source, knot, cuts, count, total, moment):
    """Everything the score test needs of a level, in one pass.

    x (m, q), u (m, d), weight (m,); search feature i of a row is max(x[source[i]], knot[i]).
    Adds to count (k, d, s + 1), total (k, d, s + 1, p) and the lower triangle of moment (k, p + 1, p + 1),
    the second moments of (features, 1).
    """
    n_nodes, n_axes, n_cuts = cuts.shape
    p = source.size
    feature = np.empty((BLOCK, p + 1))
    inverse_step = np.zeros(n_axes)
    for node in range(n_nodes):
        for axis in range(n_axes):
            if n_cuts > 1:
                inverse_step[axis] = (n_cuts - 1) / (cuts[node, axis, n_cuts - 1] - cuts[node, axis, 0])
        for first in range(start[node], start[node + 1], BLOCK):
            for b in range(BLOCK):
                position = first + b
                if position >= start[node + 1]:
                    for i in range(p + 1):
                        feature[b, i] = 0.0  # a short last block is filled with rows of no weight
                    continue
                row = order[position]
                for i in range(p):
                    feature[b, i] = max(x[row, source[i]], knot[i])
                feature[b, p] = 1.0
                for axis in range(n_axes):
                    cell = find_bin(u[row, axis], cuts[node, axis], inverse_step[axis])
                    count[node, axis, cell] += weight[row]
                    for i in range(p):
                        total[node, axis, cell, i] += weight[row] * feature[b, i]
                root = np.sqrt(weight[row])
                for i in range(p + 1):
                    feature[b, i] *= root
            for i in range(p + 1):
                f0, f1, f2, f3 = feature[0, i], feature[1, i], feature[2, i], feature[3, i]
                for j in range(i + 1):
                    moment[node, i, j] += (
                        f0 * feature[0, j] + f1 * feature[1, j] + f2 * feature[2, j] + f3 * feature[3, j]
                    )


@kernel
def arrange(x, u, weight, order, start, axis, cut, sorted_x, sorted_weight, left):
    """Copy the rows of a level into node order, covariate by covariate, with their left/right labels.

    Fills sorted_x (q, m), sorted_weight (m,) and left (m,), 1.0 where u[axis] <= cut.
    """
    for node in range(axis.size):
        for position in range(start[node], start[node + 1]):
            row = order[position]
            sorted_weight[position] = weight[row]
            left[position] = 1.0 if u[row, axis[node]] <= cut[node] else 0.0
    for j in range(x.shape[1]):
        for position in range(start[axis.size]):
            sorted_x[j, position] = x[order[position], j]


@kernel
def descend(u, order, start, axis, cut, child, next_order, next_start):
    """Sort the rows of a level into the nodes of the next one.

    child (k, 2) is the next level's node of the left and right child, -1 where the child is a leaf, whose rows
    are dropped. Fills next_order and next_start; rows keep their order within a node.
    """
    for node in range(next_start.size):
        next_start[node] = 0
    for node in range(axis.size):
        for position in range(start[node], start[node + 1]):
            side = 0 if u[order[position], axis[node]] <= cut[node] else 1
            if child[node, side] >= 0:
                next_start[child[node, side] + 1] += 1
    for node in range(1, next_start.size):
        next_start[node] += next_start[node - 1]
    fill = np.empty(next_start.size, np.int64)
    for node in range(next_start.size):
        fill[node] = next_start[node]
    for node in range(axis.size):
        for position in range(start[node], start[node + 1]):
            row = order[position]
            side = 0 if u[row, axis[node]] <= cut[node] else 1
            target = child[node, side]
            if target >= 0:
                next_order[fill[target]] = row
                fill[target] += 1
