"""Passes over the rows of one shard: sums for the split search, and sorting rows into nodes.

Rows of a node are contiguous in `order`: those of node k are order[start[k]:start[k + 1]].
"""

import numpy as np

from treecdf._kernels.compiling import inlined_kernel, kernel

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


@inlined_kernel
def feature(value, knot, power):
    """max(value, knot) ** power, for powers of at least 1."""
    factor = max(value, knot)
    result = factor
    for _ in range(1, power):
        result *= factor
    return result


@kernel
def expand(x, source, knot, power, features):
    """Fill features (n, p) of covariates x (n, q): feature i is that of covariate source[i]."""
    for row in range(x.shape[0]):
        for i in range(source.size):
            features[row, i] = feature(x[row, source[i]], knot[i], power[i])


@kernel
def search_sums(x, u, weight, order, start, source, knot, power, cuts, count, total, moment):
    """Everything the score test needs of a level, in one pass.

    x (m, q), u (m, d), weight (m,); search feature i of a row is that of covariate source[i].
    Adds to count (k, d, s + 1), total (k, d, s + 1, p) and the lower triangle of moment (k, p + 1, p + 1),
    the second moments of (features, 1).
    """
    n_nodes, n_axes, n_cuts = cuts.shape
    p = source.size
    block = np.empty((BLOCK, p + 1))
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
                        block[b, i] = 0.0  # a short last block is filled with rows of no weight
                    continue
                row = order[position]
                for i in range(p):
                    block[b, i] = feature(x[row, source[i]], knot[i], power[i])
                block[b, p] = 1.0
                for axis in range(n_axes):
                    cell = find_bin(u[row, axis], cuts[node, axis], inverse_step[axis])
                    count[node, axis, cell] += weight[row]
                    for i in range(p):
                        total[node, axis, cell, i] += weight[row] * block[b, i]
                root = np.sqrt(weight[row])
                for i in range(p + 1):
                    block[b, i] *= root
            for i in range(p + 1):
                f0, f1, f2, f3 = block[0, i], block[1, i], block[2, i], block[3, i]
                for j in range(i + 1):
                    moment[node, i, j] += f0 * block[0, j] + f1 * block[1, j] + f2 * block[2, j] + f3 * block[3, j]


@kernel
def screening_sums(x, u, weight, order, start, source, knot, power, cuts, count, total, square):
    """What tells apart the search features of a level one by one, without their products.

    Adds to count (k, d, s + 1) and total (k, d, s + 1, p) as `search_sums` does, and to square (k, p).
    """
    n_nodes, n_axes, n_cuts = cuts.shape
    p = source.size
    values = np.empty(p)
    for node in range(n_nodes):
        for position in range(start[node], start[node + 1]):
            row = order[position]
            own = weight[row]
            for i in range(p):
                values[i] = feature(x[row, source[i]], knot[i], power[i])
            for i in range(p):
                square[node, i] += own * values[i] * values[i]
            for axis in range(n_axes):
                first, last = cuts[node, axis, 0], cuts[node, axis, n_cuts - 1]
                inverse_step = (n_cuts - 1) / (last - first) if n_cuts > 1 else 0.0
                cell = find_bin(u[row, axis], cuts[node, axis], inverse_step)
                count[node, axis, cell] += own
                for i in range(p):
                    total[node, axis, cell, i] += own * values[i]


@inlined_kernel
def is_left(u, row, axis, cut):
    """Whether a row is in the left child: the one place that says so when trees are grown."""
    return u[row, axis] <= cut


@kernel
def arrange(x, order, start, source, knot, power, sorted_x):
    """Copy the features of a level's rows into node order: fills sorted_x (p, m)."""
    for i in range(source.size):
        for position in range(start[start.size - 1]):
            sorted_x[i, position] = feature(x[order[position], source[i]], knot[i], power[i])


@kernel
def label(u, weight, order, start, axis, cut, sorted_weight, left):
    """Fill sorted_weight (m,) and left (m,), 1.0 where u[axis] <= cut, of a level's rows in node order."""
    for node in range(axis.size):
        for position in range(start[node], start[node + 1]):
            row = order[position]
            sorted_weight[position] = weight[row]
            left[position] = 1.0 if is_left(u, row, axis[node], cut[node]) else 0.0


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
            side = 0 if is_left(u, order[position], axis[node], cut[node]) else 1
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
            side = 0 if is_left(u, row, axis[node], cut[node]) else 1
            target = child[node, side]
            if target >= 0:
                next_order[fill[target]] = row
                fill[target] += 1
