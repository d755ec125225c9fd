"""Trees on binned covariates, grown from histograms of gradients; several roots and several outputs at once.

`binned_trees` says what a tree is and what codes are; `splits` finds the best split of a histogram.
"""

import numpy as np

from treecdf._kernels.binned_trees import goes_right
from treecdf._kernels.compiling import inlined_kernel, ordered_kernel
from treecdf._kernels.splits import begin_splits, improve_ragged

_TILE_SUMS = 2**16  # numbers of the histograms that are made at a time (512 kB), so that they stay in the cache
# Numbers of the histograms of a level that are kept for the next (32 MB), where one of two siblings is a difference.
_MOST_KEPT = 2**22
_NEARLY_ALL = 0.75  # share of the rows in one bin of a column from which on only the other rows are added up
_N_LOOKED_AT = 32  # rows that are looked at before a column is counted
_MAY_BE_NEARLY_ALL = 0.6  # share of these in one bin from which on it is
_TILE_COLUMNS = 32  # columns that are looked at together at least: each tile copies the rows' gradients


@ordered_kernel
def grow(
    codes, rows, place, gradient, hessian, weight, columns, n_bins, min_rows, ridge, column, cut, missing_left, leaf
):
    """Grow one tree at every root by Newton's method and fill its arrays; `place` ends as the leaf of each row.

    rows (m,): the rows to learn from; place (n,) their root at first. gradient, hessian (n, K) of the loss, weighted;
    weight (n,): how many rows each counts for in min_rows. columns: the covariates that may be split.
    column, cut, missing_left (roots, 2^D - 1), leaf (roots, 2^D, K).
    """
    n_roots, n_leaves, n_outputs = leaf.shape
    size = 2 * n_outputs + 1
    used, common, rare, begin_rare = _look_at_columns(codes, rows, columns, n_bins)
    n_bins_used = 0
    for c in range(len(columns)):
        n_bins_used += used[c]
    above, kept = np.zeros((0, 0, size)), np.zeros((0, 0, size))  # histograms of the last level and of this one
    level, width = np.int64(0), np.int64(1)  # its nodes in a tree; plain numbers would be compiled for as well
    while width < n_leaves:
        n_nodes = n_roots * width
        totals, best = np.zeros((n_nodes, size)), np.zeros((n_nodes, 2))
        learners, few, begin_few, light = rows, rare, begin_rare, np.zeros(n_nodes, np.int64)
        if len(above):
            learners, few, begin_few = _light_rows(rows, place, rare, begin_rare, light)
        keeps = 2 * width < n_leaves and n_nodes * n_bins_used * size <= _MOST_KEPT
        kept = np.empty((n_nodes, n_bins_used, size)) if keeps else above[:0]
        first, at = np.int64(0), np.int64(0)
        while first < len(columns):
            tile = _n_columns(used[first:], _TILE_SUMS // (n_nodes * size))
            some, begin = columns[first : first + tile], _begins(used[first : first + tile])
            sums = np.zeros((n_nodes, begin[-1], size))
            own = common[first : first + tile], few, begin_few[first:]
            _add_ragged(codes, learners, place, (gradient, hessian, weight), some, begin, own, sums)
            if len(above):
                _fill_heavy(sums, above, at, begin, own[0], np.int64(0), light)
            if first == 0:
                whole = sums[:, : begin[1]]
                if common[0] >= 0:
                    whole = _sums_of_nodes(rows, place, gradient, hessian, weight, n_nodes)
                begin_splits(whole, width, ridge, totals, best, column, cut, missing_left)
            _fill_common(sums, begin, own[0], totals)
            if len(above):
                _fill_heavy(sums, above, at, begin, own[0], np.int64(1), light)
            limits = n_bins, min_rows, ridge
            improve_ragged(sums, begin, width, some, limits, totals, best, column, cut, missing_left)
            if keeps:
                _keep(sums, at, kept)
            first, at = first + tile, at + begin[-1]
        send_down(codes, rows, place, level, column, cut, missing_left)
        above = kept
        width *= 2
        level += 1
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
def _keep(sums, at, kept):
    """Copy histograms of some columns to those of all, where they begin `at`."""
    for node in range(sums.shape[0]):
        for b in range(sums.shape[1]):
            for s in range(sums.shape[2]):
                kept[node, at + b, s] = sums[node, b, s]


@ordered_kernel
def _light_rows(rows, place, rare, begin_rare, light):
    """The rows of the lighter of two siblings each, in order; rows of the other one need not be added up.

    light (nodes,) becomes 1 for these nodes. The second and third result are `rare` and `begin_rare` of
    `_look_at_columns` for these rows.
    """
    count = np.zeros(len(light), np.int64)
    for i in rows:
        count[place[i]] += 1
    n_light = 0
    for node in range(0, len(light), 2):
        lighter = node if count[node] <= count[node + 1] else node + 1
        light[lighter] = 1
        n_light += count[lighter]
    chosen, number, m = np.empty(n_light, np.int64), np.empty(len(rows) if len(rare) else 0, np.int64), 0
    for r in range(len(rows)):
        is_light = light[place[rows[r]]] == 1
        if len(rare):
            number[r] = m if is_light else -1
        if is_light:
            chosen[m] = rows[r]
            m += 1
    few, begin, m = np.empty(len(rare), np.int64), np.zeros(len(begin_rare), np.int64), 0
    for c in range(len(begin_rare) - 1):
        for k in range(begin_rare[c], begin_rare[c + 1]):
            if number[rare[k]] >= 0:
                few[m] = number[rare[k]]
                m += 1
        begin[c + 1] = m
    return chosen, few[:m], begin


@ordered_kernel
def _fill_heavy(sums, above, at, begin, common, with_common, light):
    """Fill the histograms of the nodes that are not light: those of their parents less those of their siblings.

    above (parents, bins of all columns, 2 K + 1), where the columns of sums begin `at`; common (k,) as in
    `_look_at_columns`: columns with a common bin are filled if with_common is 1, the others if it is 0.
    """
    for c in range(len(common)):
        if (common[c] >= 0) != (with_common == 1):
            continue
        for node in range(len(light)):
            if light[node] == 1:
                continue
            parent, sibling = node // 2, node + 1 - 2 * (node % 2)
            for b in range(begin[c], begin[c + 1]):
                for s in range(sums.shape[2]):
                    sums[node, b, s] = above[parent, at + b, s] - sums[sibling, b, s]


@ordered_kernel
def _look_at_columns(codes, rows, columns, n_bins):
    """What the histograms of the columns (k,) need: how many bins are used, and where most rows have the same.

    used (k,): one more than the largest bin among the rows, at most n_bins; an indicator has 3, not 255. common (k,):
    the bin of most rows, -1 if it is not that of nearly all. rare, begin (k + 1,): the places, in `rows`, of the rows
    that are not in the common bin, column by column; none of columns without a common bin.
    """
    n_columns = len(columns)
    used, common = np.empty(n_columns, np.int64), np.empty(n_columns, np.int64)
    begin = np.zeros(n_columns + 1, np.int64)
    for c in range(n_columns):
        bins = codes[columns[c]]
        largest = np.int64(0)
        for i in rows:
            largest = max(largest, np.int64(bins[np.uint64(i)]))
            if largest == n_bins:
                break
        used[c], common[c] = largest + 1, -1
        most = _majority(bins, rows)
        if most >= 0:
            n_rare = 0
            for i in rows:
                n_rare += bins[i] != most
            if n_rare <= (1 - _NEARLY_ALL) * len(rows):
                common[c], begin[c + 1] = most, n_rare
        begin[c + 1] += begin[c]
    rare = np.empty(begin[n_columns], np.int64)
    for c in range(n_columns):
        if common[c] >= 0:
            bins, at = codes[columns[c]], begin[c]
            for r in range(len(rows)):
                if bins[rows[r]] != common[c]:
                    rare[at] = r
                    at += 1
    return used, common, rare, begin


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
def _sums_of_nodes(rows, place, gradient, hessian, weight, n_nodes):
    """Sums (node, 1, 2 K + 1) over the rows of each node."""
    size = 2 * gradient.shape[1] + 1
    sums = np.zeros((n_nodes, 1, size))
    values, node = _values_of_rows(rows, place, gradient, hessian, weight, size)
    for r in range(len(rows)):
        _add_values(sums.reshape(-1), np.uint64(node[r]), values, np.uint64(r * size), size)
    return sums


@ordered_kernel
def _fill_common(sums, begin, common, totals):
    """Fill the common bins of columns that have one: what the other bins lack to the totals (node, 2 K + 1)."""
    for node in range(sums.shape[0]):
        for c in range(len(common)):
            if common[c] < 0:
                continue
            for s in range(sums.shape[2]):
                rest = totals[node, s]
                for b in range(begin[c], begin[c + 1]):
                    rest -= sums[node, b, s]
                sums[node, begin[c] + common[c], s] = rest


@ordered_kernel
def _n_columns(used, most):
    """How many of the first columns have `most` bins together at most, but some at least; used (k,) bins of each."""
    n, bins = 0, 0
    while n < len(used) and (n < _TILE_COLUMNS or bins + used[n] <= most):
        bins += used[n]
        n += 1
    return n


@ordered_kernel
def _begins(used):
    """Where the bins of each column begin (k + 1,), if used (k,) bins of the columns stand in a row."""
    begin = np.zeros(len(used) + 1, np.int64)
    for c in range(len(used)):
        begin[c + 1] = begin[c] + used[c]
    return begin


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
def _add_ragged(codes, rows, place, parts, columns, begin, of_columns, sums):
    """As `add_histograms`, to sums (node, bins of all columns, 2 K + 1); the bins of column c begin at begin[c].

    parts: gradient, hessian and weight. of_columns: common, rare and begin of `_look_at_columns`; nothing is added to
    common bins.
    """
    size = sums.shape[2]
    flat = sums.reshape(-1)
    common, rare, begin_rare = of_columns
    values, node = _values_of_rows(rows, place, parts[0], parts[1], parts[2], sums.shape[1] * size)
    for c in range(len(columns)):
        bins, first = codes[columns[c]], begin[c] * size
        if common[c] < 0:
            _add_column(bins, rows, node, values, first, size, flat)
        else:
            _add_rare(bins, rows, rare[begin_rare[c] : begin_rare[c + 1]], node, values, first, size, flat)


@ordered_kernel
def _add_column(bins, rows, node, values, first, size, flat):
    """Add the values (m, size) of all rows to the histograms of a column, which begin `first` behind those of nodes."""
    for r in range(len(rows)):
        at = node[r] + first + np.int64(bins[np.uint64(rows[r])]) * size  # bytes overflow uncompiled
        _add_values(flat, np.uint64(at), values, np.uint64(r * size), size)


@ordered_kernel
def _add_rare(bins, rows, rare, node, values, first, size, flat):
    """As `_add_column`, of some places in `rows`."""
    for r in rare:
        at = node[r] + first + np.int64(bins[np.uint64(rows[r])]) * size
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
