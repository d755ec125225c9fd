"""Newton boosting of small trees on binned covariates, all nodes of a level of the flow's tree at once.

Passes over the rows of one shard: a round is `begin_round`, then `next_level` or `next_level_of_one_side` for each
further level of its tree; after the last round comes `reached`. codes (q, m), place (m,) is a row's node in the tree of
the round, state (3, m, 1) its gradient, Hessian and log-odds. Rows of a node of the flow's tree are
order[start[node]:start[node + 1]], left if u[axis] <= cut; those of nodes that learn nothing are left alone.
"""

import numpy as np

from treecdf._kernels.binned_trees import goes_right
from treecdf._kernels.compiling import inlined_kernel, ordered_kernel
from treecdf._kernels.rows import is_left


@ordered_kernel
def begin_round(
    codes,
    u,
    weight,
    order,
    start,
    state,
    place,
    axis,
    cut,
    learns,
    log_odds,
    level,
    column,
    split,
    missing_left,
    leaf,
    sums,
):
    """Add the leaves (k * leaves,) of the last round, whose last level is given, or begin with log-odds (k,).

    Adds to sums (k, q, bins, 3), the histograms of the roots.
    """
    gradient, hessian, score = state[0], state[1], state[2]
    rows = _learning(order, start, learns)
    if leaf.size > 0:
        send_down(codes, rows, place, level, column, split, missing_left)
    for node in range(learns.size):
        for position in range(start[node], start[node + 1]):
            i = order[position]
            if leaf.size == 0:
                score[i, 0] = log_odds[node]
            if not learns[node]:
                continue
            if leaf.size > 0:
                score[i, 0] += leaf[place[i]]
            left = 1.0 if is_left(u, i, axis[node], cut[node]) else 0.0
            p = 1.0 / (1.0 + np.exp(-score[i, 0]))
            gradient[i, 0] = weight[i] * (p - left)
            hessian[i, 0] = weight[i] * p * (1.0 - p)
            place[i] = node
    add_histograms(codes, rows, place, gradient, hessian, weight, np.arange(codes.shape[0]), sums)


@ordered_kernel
def next_level(codes, u, weight, order, start, state, place, learns, level, column, split, missing_left, sums):
    """Send the rows down from a level of the round's trees; histograms (k * nodes, q, bins, 3) of the next."""
    rows = _learning(order, start, learns)
    send_down(codes, rows, place, level, column, split, missing_left)
    add_histograms(codes, rows, place, state[0], state[1], weight, np.arange(codes.shape[0]), sums)


@ordered_kernel
def next_level_of_one_side(
    codes, u, weight, order, start, state, place, learns, level, column, split, missing_left, side, sums
):
    """As `next_level`, with the histogram of one child of each node only, (k * nodes of the level, q, bins, 3).

    side (k * nodes of the level,): 0 for the left child, 1 for the right one.
    """
    rows = _learning(order, start, learns)
    send_down(codes, rows, place, level, column, split, missing_left)
    chosen, parent = np.empty(rows.size, np.int64), np.empty(place.size, np.int64)
    n = 0
    for i in rows:
        parent[i] = place[i] >> 1
        if place[i] & 1 == side[parent[i]]:
            chosen[n] = i
            n += 1
    add_histograms(codes, chosen[:n], parent, state[0], state[1], weight, np.arange(codes.shape[0]), sums)


@ordered_kernel
def reached(  # its arguments are those of begin_round: kernels take arrays only, and passes share a view of the rows
    codes,
    u,
    weight,
    order,
    start,
    state,
    place,
    axis,
    cut,
    learns,
    level,
    column,
    split,
    missing_left,
    leaf,
    log_lik,
):
    """Add the leaves of the last round, whose last level is given; add to log_lik (k,) what all rows reach."""
    send_down(codes, _learning(order, start, learns), place, level, column, split, missing_left)
    for node in range(learns.size):
        for position in range(start[node], start[node + 1]):
            i = order[position]
            score = state[2, i, 0]
            if learns[node]:
                score += leaf[place[i]]
            sign = 1.0 if is_left(u, i, axis[node], cut[node]) else -1.0
            log_lik[node] -= weight[i] * (max(-sign * score, 0.0) + np.log1p(np.exp(-abs(score))))


@ordered_kernel
def _learning(order, start, learns):
    """The rows of nodes that have something to learn, node by node."""
    if learns.all():
        return order[: start[learns.size]]
    rows = np.empty(start[learns.size], np.int64)
    n = 0
    for node in range(learns.size):
        if learns[node]:
            for position in range(start[node], start[node + 1]):
                rows[n] = order[position]
                n += 1
    return rows[:n]


@ordered_kernel
def send_down(codes, rows, place, level, column, cut, missing_left):
    """Move rows from their nodes of a level to those of the next."""
    width = 1 << level
    for i in rows:
        root, at = place[i] >> level, width - 1 + (place[i] & (width - 1))
        place[i] = 2 * place[i] + goes_right(codes, i, column[root, at], cut[root, at], missing_left[root, at])


@ordered_kernel
def add_histograms(codes, rows, place, gradient, hessian, weight, columns, sums):
    """Add to sums (node, column, bin, 2 K + 1) of gradients and Hessians, output by output, and of weights."""
    size = 2 * gradient.shape[1] + 1
    flat = sums.reshape(-1)  # views and several indices are slow in the middle of a loop
    of_column = sums.shape[2] * size
    values, node = _values_of_rows(rows, place, gradient, hessian, weight, len(columns) * of_column)
    for c in range(len(columns)):
        bins = codes[columns[c]]
        for r in range(len(rows)):
            at = node[r] + c * of_column + np.int64(bins[np.uint64(rows[r])]) * size  # bytes overflow uncompiled
            _add_values(flat, np.uint64(at), values, np.uint64(r * size), size)


@ordered_kernel
def _values_of_rows(rows, place, gradient, hessian, weight, of_node):
    """What each row adds to a histogram (m, 2 K + 1, flat), and where that of its node begins (m,)."""
    n_outputs = gradient.shape[1]
    size = 2 * n_outputs + 1
    values, node = np.empty(len(rows) * size), np.empty(len(rows), np.int64)
    for r in range(len(rows)):
        i = rows[r]
        node[r] = place[i] * of_node
        for o in range(n_outputs):
            values[r * size + 2 * o] = gradient[i, o]
            values[r * size + 2 * o + 1] = hessian[i, o]
        values[r * size + 2 * n_outputs] = weight[i]
    return values, node


@inlined_kernel
def _add_values(flat, at, values, first, size):
    """flat[at:at + size] += values[first:first + size]; one output is written out because it is the usual case."""
    if size == 3:
        flat[at] += values[first]
        flat[at + np.uint64(1)] += values[first + np.uint64(1)]
        flat[at + np.uint64(2)] += values[first + np.uint64(2)]
    else:
        for s in range(size):
            flat[at + np.uint64(s)] += values[first + np.uint64(s)]
