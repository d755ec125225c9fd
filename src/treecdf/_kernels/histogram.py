"""A tree on binned covariates, grown from histograms of gradients; several outputs share its splits.

`binned_trees` says what a tree is and what codes are; `splits` finds the best split of a histogram. The rows of a node
stand together, in their first order, and nodes are split depth first, so that a histogram is used while it is in the
cache: of two children the one with fewer rows is added up, and the other one's histogram, which is the parent's less
that, takes the parent's place.
"""

import numpy as np

from treecdf._kernels.compiling import inlined_kernel, ordered_kernel
from treecdf._kernels.splits import best_of_columns

_NEARLY_ALL = 0.75  # share of the rows in one bin of a column from which on only the other rows are added up
_N_LOOKED_AT = 32  # rows that are looked at before a column is counted
_MAY_BE_NEARLY_ALL = 0.6  # share of these in one bin from which on it is
_PAIR = 2  # numbers of a bin if weights are the Hessians of a single output: gradient and weight
_LANES = 4  # other bins have a multiple of so many numbers, which suits vector units
_TILE_VALUES = 2**14  # numbers of rows that are added to all columns before the next ones (128 kB)
_SURELY = 1 - 1e-9  # times a weight: less than it whatever the rounding


@ordered_kernel
def grow(codes, rows, gradient, hessian, weight, columns, n_bins, min_rows, ridge, column, cut, missing_left, leaf):
    """Grow one tree by Newton's method and fill its arrays.

    rows (m,): the rows to learn from. gradient, hessian (m, K) of the loss at these, weighted; weight (m,): how many
    rows each counts for in min_rows. columns: the covariates that may be split. column, cut, missing_left
    (2^D - 1,), leaf (2^D, K).
    """
    depth = np.int64(0)
    while 1 << depth < len(leaf):
        depth += 1
    values, size, heaviest = _values_of_rows(rows, gradient, hessian, weight, codes.shape[1])
    look = _look_at_columns(codes, rows, columns, n_bins)
    begin, n_outputs = look[0], gradient.shape[1]
    order, moved, room = rows.astype(np.uint32), np.empty(len(rows), np.uint32), _room(size)
    sums, totals = np.empty((depth, begin[-1] * size)), np.empty((depth, size))
    limits, score = (n_bins, min_rows, ridge), np.empty(n_bins + 1)
    _plant(column, cut, missing_left, leaf, ridge)
    if depth == 0:
        _fill_leaf(order, values, size, ridge, leaf[0])
        return
    nodes, n = np.zeros((depth + 1, 5), np.int64), 1  # that are still to come: level, place in it, rows, histogram
    nodes[0, 3] = len(rows)
    _fill_sums(codes, order, values, size, columns, look, room, sums[0], totals[0])
    while n > 0:
        n -= 1
        level, k, first, last, slot = nodes[n, 0], nodes[n, 1], nodes[n, 2], nodes[n, 3], nodes[n, 4]
        c, b, side = best_of_columns(sums[slot], begin, size, n_outputs, limits, totals[slot], score)
        if c < 0:
            _fill_leaf(order[first:last], values, size, ridge, leaf[k << (depth - level)])
            continue
        at = (1 << level) - 1 + k
        column[at], cut[at], missing_left[at] = columns[c], b, side
        middle = first + _move_rows(codes[columns[c]], b, side, order[first:last], moved)
        level, k = level + 1, 2 * k
        n_light = min(middle - first, last - middle)
        if level == depth or (last - first - n_light) * heaviest < 2 * min_rows * _SURELY:
            _fill_leaf(order[first:middle], values, size, ridge, leaf[k << (depth - level)])
            _fill_leaf(order[middle:last], values, size, ridge, leaf[(k + 1) << (depth - level)])
            continue
        left, right = (k, first, middle), (k + 1, middle, last)
        light, heavy = (left, right) if middle - first == n_light else (right, left)
        few = order[light[1] : light[2]]
        _fill_sums(codes, few, values, size, columns, look, room, sums[level], totals[level])
        _take_away(sums[slot], sums[level])
        _fill_totals(order[heavy[1] : heavy[2]], values, look, sums[slot], totals[slot])
        _push(nodes, n, level, heavy, slot)
        _push(nodes, n + 1, level, light, level)
        n += 2


@ordered_kernel
def _room(size):
    """Room for the values of a tile of rows."""
    return np.empty(max(_TILE_VALUES // size, 1) * size)


@ordered_kernel
def _push(nodes, n, level, node, slot):
    """Let a node be the n-th that is still to come."""
    nodes[n, 0], nodes[n, 1], nodes[n, 2], nodes[n, 3], nodes[n, 4] = level, node[0], node[1], node[2], slot


@ordered_kernel
def _plant(column, cut, missing_left, leaf, ridge):
    """A tree without splits and rows."""
    for at in range(len(column)):
        column[at], cut[at], missing_left[at] = -1, 255, 1
    for k in range(leaf.shape[0]):
        for o in range(leaf.shape[1]):
            leaf[k, o] = -0.0 / ridge


@ordered_kernel
def _values_of_rows(rows, gradient, hessian, weight, n):
    """What rows (m,) add to a bin: numbers of each row of the table (n, size, flat), how many, and the largest weight.

    Gradients and Hessians output by output, weights, and zeros up to a multiple of lanes; or gradients and weights.
    """
    n_outputs = gradient.shape[1]
    is_pair = n_outputs == 1
    for r in range(len(rows)):
        if not is_pair:
            break
        is_pair = hessian[r, 0] == weight[r]
    size = _PAIR if is_pair else (2 * n_outputs + _LANES) // _LANES * _LANES
    values, heaviest = np.empty(n * size), 0.0
    for r in range(len(rows)):
        at, heaviest = rows[r] * size, max(heaviest, weight[r])
        for o in range(n_outputs):
            values[at + 2 * o] = gradient[r, o]
            values[at + 2 * o + 1] = hessian[r, o]
        for s in range(2 * n_outputs, size):
            values[at + s] = weight[r] if s == 2 * n_outputs else 0.0
    return values, size, heaviest


@ordered_kernel
def _look_at_columns(codes, rows, columns, n_bins):
    """What histograms of the columns (k,) need: where bins begin, and where nearly all rows have the same.

    begin (k + 1,): where the bins of each column begin; it has one more than the largest among the rows, at most
    n_bins: an indicator has 3, not 255. common (k,): the bin of nearly all rows, -1 if there is none. full: the columns
    without. start (n + 1,), rare: the bins that row i of the table has in the other columns and that are not common
    are rare[start[i]:start[i + 1]], counted from the first bin of all.
    """
    n_columns, most = len(columns), np.int64((1 - _NEARLY_ALL) * len(rows))
    common, begin = np.empty(n_columns, np.int64), np.zeros(n_columns + 1, np.int64)
    full, n_full = np.empty(n_columns, np.int64), 0
    others = np.empty((n_columns, most + 1), np.int64)  # rows outside of the common bin; mostly it is never touched
    n_others = np.zeros(n_columns, np.int64)
    start = np.zeros(codes.shape[1] + 2, np.int64)  # one more, to count in
    for c in range(n_columns):
        bins = codes[columns[c]]
        common[c] = _majority(bins, rows)
        if common[c] >= 0:
            n_others[c] = _fill_others(bins, rows, common[c], others[c])
        if common[c] < 0 or n_others[c] > most:
            common[c], n_others[c], full[n_full] = -1, 0, c
            n_full += 1
        few = others[c, : n_others[c]]
        largest = max(_largest(bins, rows if common[c] < 0 else few, n_bins), common[c])
        begin[c + 1] = begin[c] + min(largest, n_bins) + 1
        for i in few:
            start[i + 2] += 1
    if n_full == n_columns:
        return begin, common, full, start[:1], start[:0]
    for i in range(1, len(start)):
        start[i] += start[i - 1]
    rare = np.empty(start[-1], np.int64)
    for c in range(n_columns):
        for i in others[c, : n_others[c]]:
            rare[start[i + 1]] = begin[c] + np.int64(codes[columns[c], i])
            start[i + 1] += 1
    return begin, common, full[:n_full], start, rare


@ordered_kernel
def _largest(bins, rows, n_bins):
    """The largest bin among the rows; it ends with the first that is n_bins."""
    largest = np.int64(0)
    for i in rows:
        largest = max(largest, np.int64(bins[np.uint64(i)]))
        if largest >= n_bins:
            break
    return largest


@ordered_kernel
def _majority(bins, rows):
    """The bin that may be that of nearly all rows, by a look at a few of them; -1 if none can be."""
    step = max(len(rows) // _N_LOOKED_AT, 1)
    most, lead = -1, 0  # the only bin that more than half of what was looked at can have
    for k in range(0, len(rows), step):
        b = np.int64(bins[rows[k]])
        if lead == 0:
            most = b
        lead += 1 if b == most else -1
    found, looked_at = 0, 0
    for k in range(0, len(rows), step):
        found += bins[rows[k]] == most
        looked_at += 1
    return most if found >= _MAY_BE_NEARLY_ALL * looked_at else -1


@ordered_kernel
def _fill_others(bins, rows, common, others):
    """Fill the rows that are not in the common bin, until `others` is full; returns how many."""
    n, most = np.uint64(0), np.uint64(len(others))
    for i in rows:
        if n == most:
            break
        others[n] = i
        n += np.uint64(bins[np.uint64(i)] != common)
    return np.int64(n)


@ordered_kernel
def _fill_sums(codes, rows, values, size, columns, look, own, sums, total):
    """Fill the histograms (bins of all columns, size, flat) of a node's rows and its totals (size,)."""
    begin, common, full, start, rare = look
    for s in range(len(sums)):
        sums[s] = 0.0
    tile = len(own) // size
    for at in range(0, len(rows), tile):
        some = rows[at : at + tile]
        for r in range(len(some)):  # the rows' values one after the other, for all columns
            _set_values(own, np.uint64(r * size), values, np.uint64(some[r] * size), size)
        if size == _PAIR:
            _add_pairs(codes, some, own, columns, begin, full, sums)
        else:
            _add_columns(codes, some, own, size, columns, begin, full, sums)
        if len(full) < len(columns):
            for r in range(len(some)):
                for k in range(start[some[r]], start[some[r] + 1]):
                    _add_values(sums, np.uint64(rare[k] * size), own, np.uint64(r * size), size)
    _fill_totals(rows, values, look, sums, total)
    for c in range(len(columns)):
        if common[c] >= 0:  # the common bin is what the others lack to the totals
            for s in range(size):
                rest = total[s]
                for b in range(begin[c], begin[c + 1]):
                    rest -= sums[b * size + s]
                sums[(begin[c] + common[c]) * size + s] = rest


@ordered_kernel
def _add_pairs(codes, rows, own, columns, begin, full, sums):
    """Add the values (m, 2) of rows to the histograms of the columns `full`, two columns at a time."""
    flat, n, one = codes.reshape(-1), np.uint64(codes.shape[1]), np.uint64(1)
    for c in range(0, len(full), 2):
        first, second = full[c], full[min(c + 1, len(full) - 1)]
        here, there = np.uint64(columns[first]) * n, np.uint64(columns[second]) * n
        of_first, of_second = np.uint64(begin[first]), np.uint64(begin[second])
        for r in range(len(rows)):
            i, at = np.uint64(rows[r]), np.uint64(r) << one
            gradient, weight = own[at], own[at + one]
            _add_pair(sums, (of_first + np.uint64(flat[here + i])) << one, gradient, weight)
            if first != second:
                _add_pair(sums, (of_second + np.uint64(flat[there + i])) << one, gradient, weight)


@inlined_kernel
def _add_pair(sums, at, gradient, weight):
    """sums[at:at + 2] += gradient, weight."""
    sums[at] += gradient
    sums[at + np.uint64(1)] += weight


@ordered_kernel
def _add_columns(codes, rows, own, size, columns, begin, full, sums):
    """As `_add_pairs`, of values (m, size)."""
    for c in full:
        bins, first = codes[columns[c]], begin[c]
        for r in range(len(rows)):
            at = (first + np.int64(bins[np.uint64(rows[r])])) * size  # bytes overflow uncompiled
            _add_values(sums, np.uint64(at), own, np.uint64(r * size), size)


@inlined_kernel
def _add_values(flat, at, values, first, size):
    """flat[at:at + size] += values[first:first + size]."""
    for s in range(size):
        flat[at + np.uint64(s)] += values[first + np.uint64(s)]


@inlined_kernel
def _set_values(flat, at, values, first, size):
    """flat[at:at + size] <- values[first:first + size]."""
    for s in range(size):
        flat[at + np.uint64(s)] = values[first + np.uint64(s)]


@ordered_kernel
def _fill_totals(rows, values, look, sums, total):
    """Fill the sums of a node from the histogram of the first column, or from its rows if that lacks a bin."""
    begin, common, size = look[0], look[1], len(total)
    for s in range(size):
        total[s] = 0.0
    if len(common) > 0 and common[0] < 0:
        for b in range(begin[1]):
            _add_values(total, np.uint64(0), sums, np.uint64(b * size), size)
    else:
        for i in rows:
            _add_values(total, np.uint64(0), values, np.uint64(i * size), size)


@ordered_kernel
def _take_away(sums, others):
    """sums -= others."""
    for s in range(len(sums)):
        sums[s] -= others[s]


@ordered_kernel
def _move_rows(bins, cut, missing_left, order, room):
    """Put the rows that go left before those that go right, each in their order; returns how many go left."""
    first, last = np.uint8(1 - missing_left), np.uint8(cut)  # the bins that go left
    left, right = np.uint64(0), np.uint64(0)
    for r in range(len(order)):
        i = order[r]
        b = bins[np.uint64(i)]
        goes_right = np.uint64((b > last) | (b < first))
        order[left] = i
        room[right] = i
        left += np.uint64(1) - goes_right
        right += goes_right
    for r in range(len(order) - np.int64(left)):
        order[left + np.uint64(r)] = room[r]
    return np.int64(left)


@ordered_kernel
def _fill_leaf(rows, values, size, ridge, leaf):
    """Fill the leaf (K,) that rows reach by Newton's step."""
    total = np.zeros(size)
    if size == _PAIR:
        gradient, weight = 0.0, 0.0
        for i in rows:
            at = np.uint64(i) << np.uint64(1)
            gradient += values[at]
            weight += values[at + np.uint64(1)]
        total[0], total[1] = gradient, weight
    else:
        for i in rows:
            _add_values(total, np.uint64(0), values, np.uint64(i * size), size)
    for o in range(len(leaf)):
        leaf[o] = -total[2 * o] / (total[2 * o + 1] + ridge)
