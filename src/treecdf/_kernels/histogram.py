"""Small trees on binned covariates, grown from histograms of gradients; several roots and several outputs at once.

codes (q, n) uint8: the bin of each covariate, 0 for a missing value. A tree of depth D is three arrays of 2^D - 1 inner
nodes, level by level (the children of node k of a level are nodes 2k and 2k + 1 of the next), and 2^D leaves:
column -1 means "no split, all rows go left"; a row goes left if its bin is at most `cut`, a missing one if
`missing_left`.
"""

import numpy as np

from treecdf._kernels.compiling import inlined_kernel, ordered_kernel

_TILE_SUMS = 2**16  # numbers of the histograms that are made at a time (512 kB), so that they stay in the cache
# Numbers of the histograms of a level that are kept for the next (32 MB), where one of two siblings is a difference.
_MOST_KEPT = 2**22
_TILE_ROWS = 512  # rows that go through a tree together when it predicts
# Levels of a tree whose nodes are compared with all rows of a tile, in vector units: cheaper than to walk down row by
# row as long as a level has few nodes
_LEVELS_TOGETHER = 5
_FEW_ROWS = 32  # fewer rows walk down by themselves
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
    n_sums = size * used.sum()
    above, kept = np.zeros((0, 0, size)), np.zeros((0, 0, size))  # histograms of the last level and of this one
    level, width = np.int64(0), np.int64(1)  # its nodes in a tree; plain numbers would be compiled for as well
    while width < n_leaves:
        n_nodes = n_roots * width
        totals, best = np.zeros((n_nodes, size)), np.zeros((n_nodes, 2))
        learners, few, begin_few, light = rows, rare, begin_rare, np.zeros(n_nodes, np.bool_)
        if len(above):
            learners, few, begin_few = _light_rows(rows, place, rare, begin_rare, light)
        keeps = 2 * width < n_leaves and n_nodes * n_sums <= _MOST_KEPT
        kept = np.empty((n_nodes, n_sums // size, size)) if keeps else above[:0]
        first, at = 0, 0
        while first < len(columns):
            tile = _n_columns(used[first:], _TILE_SUMS // (n_nodes * size))
            some, begin = columns[first : first + tile], _begins(used[first : first + tile])
            sums = np.zeros((n_nodes, begin[-1], size))
            own = common[first : first + tile], few, begin_few[first:]
            _add_ragged(codes, learners, place, (gradient, hessian, weight), some, begin, own, sums)
            if len(above):
                _fill_heavy(sums, above, at, begin, own[0] < 0, light)
            if first == 0:
                whole = sums[:, : begin[1]]
                if common[0] >= 0:
                    whole = _sums_of_nodes(rows, place, gradient, hessian, weight, n_nodes)
                _begin_splits(whole, width, ridge, totals, best, column, cut, missing_left)
            _fill_common(sums, begin, own[0], totals)
            if len(above):
                _fill_heavy(sums, above, at, begin, own[0] >= 0, light)
            limits = n_bins, min_rows, ridge
            _improve_ragged(sums, begin, width, some, limits, totals, best, column, cut, missing_left)
            if keeps:
                kept[:, at : at + begin[-1]] = sums
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
def _light_rows(rows, place, rare, begin_rare, light):
    """The rows of the lighter of two siblings each, in order; rows of the other one need not be added up.

    light (nodes,) becomes True for these nodes. The second and third result are `rare` and `begin_rare` of
    `_look_at_columns` for these rows.
    """
    count = np.zeros(len(light), np.int64)
    for i in rows:
        count[place[i]] += 1
    n_light = 0
    for node in range(0, len(light), 2):
        lighter = node if count[node] <= count[node + 1] else node + 1
        light[lighter] = True
        n_light += count[lighter]
    chosen, number, m = np.empty(n_light, rows.dtype), np.full(len(rows) if len(rare) else 0, -1), 0
    for r in range(len(rows)):
        if light[place[rows[r]]]:
            chosen[m] = rows[r]
            if len(rare):
                number[r] = m
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
def _fill_heavy(sums, above, at, begin, chosen, light):
    """Fill the histograms of the nodes that are not light: those of their parents less those of their siblings.

    above (parents, bins of all columns, 2 K + 1), where the columns of sums begin `at`; chosen (k,): which of these.
    """
    for c in range(len(chosen)):
        if not chosen[c]:
            continue
        for node in range(len(light)):
            if light[node]:
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
    used, common, begin = np.ones(n_columns, np.int64), np.full(n_columns, -1), np.zeros(n_columns + 1, np.int64)
    for c in range(n_columns):
        bins = codes[columns[c]]
        largest = np.int64(0)
        for i in rows:
            largest = max(largest, np.int64(bins[np.uint64(i)]))
            if largest == n_bins:
                break
        used[c] += largest
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
def _improve_ragged(sums, begin, width, columns, limits, totals, best, column, cut, missing_left):
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
    _begin_splits(sums[:, 0], width, ridge, totals, best, column, cut, missing_left)
    _improve_splits(sums, width, columns, min_rows, ridge, totals, best, column, cut, missing_left)


@ordered_kernel
def _begin_splits(sums, width, ridge, totals, best, column, cut, missing_left):
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
def send_down(codes, rows, place, level, column, cut, missing_left):
    """Move rows from their nodes of a level to those of the next."""
    width = 1 << level
    for i in rows:
        root, at = place[i] >> level, width - 1 + (place[i] & (width - 1))
        place[i] = 2 * place[i] + _goes_right(codes, i, column[root, at], cut[root, at], missing_left[root, at])


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


@ordered_kernel
def _goes_right(codes, i, column, cut, missing_left):
    if column < 0:
        return 0
    b = codes[column, i]
    if b == 0:
        return 1 - missing_left
    return 1 if b > cut else 0


@inlined_kernel
def leaf_of(codes, i, tree, column, cut, missing_left, n_leaves):
    """The leaf, counted from the left, that row i reaches in a tree."""
    first, width, k = 0, 1, 0
    while width < n_leaves:
        at = first + k
        k = 2 * k + _goes_right(codes, i, column[tree, at], cut[tree, at], missing_left[tree, at])
        first += width
        width *= 2
    return k


@ordered_kernel
def fill_codes(x, edges, columns, codes):
    """Fill the rows `columns` of codes (q, n): 1 + the number of edges (q, bins - 1) below x (n, q); 0 for NaN."""
    for i in range(len(x)):
        for j in columns:
            value = x[i, j]
            if np.isnan(value):
                codes[j, i] = 0
                continue
            low, high = 0, edges.shape[1]
            while low < high:
                middle = (low + high) // 2
                if edges[j, middle] < value:
                    low = middle + 1
                else:
                    high = middle
            codes[j, i] = 1 + low


@ordered_kernel
def add_leaves(codes, root_of, column, cut, missing_left, leaf, rate, scores):
    """Add `rate` times the leaf of every row's tree to its scores (n, K); root_of (n,), -1 for rows to leave out."""
    n_leaves, n_outputs = leaf.shape[1], leaf.shape[2]
    for i in range(len(root_of)):
        root = root_of[i]
        if root < 0:
            continue
        k = leaf_of(codes, i, root, column, cut, missing_left, n_leaves)
        for o in range(n_outputs):
            scores[i, o] += rate * leaf[root, k, o]


@ordered_kernel
def add_trees(codes, column, first, last, leaf, rate, scores):
    """Add `rate` times the leaves of all trees to the scores (n, K) of every row, whose bins are codes (q, n).

    column, first, last (trees, 2^D - 1): a row goes left at an inner node if its bin is at least `first`, which is 1
    where missing rows go right, and at most `last`, which is 255 where there is no split.
    """
    n_trees, n_leaves, n_outputs = leaf.shape
    n = codes.shape[1]
    deepest = 0
    while 1 << deepest < n_leaves:
        deepest += 1
    places, rights = np.empty(_TILE_ROWS, np.uint8), np.empty(_TILE_ROWS, np.uint8)
    at = np.empty(_TILE_ROWS, np.uint64)
    together = min(deepest, _LEVELS_TOGETHER)
    for begin in range(0, n, _TILE_ROWS):
        size = min(_TILE_ROWS, n - begin)
        if size < _FEW_ROWS:
            _walk_rows(codes, begin, column, first, last, leaf, rate, scores)
            break
        place, right = places[:size], rights[:size]
        for t in range(n_trees):
            place[:] = 0
            for level in range(together):
                right[:] = 0
                for k in range(1 << level):
                    node = (1 << level) - 1 + k
                    if last[t, node] < 255 or first[t, node] > 0:
                        bins = codes[column[t, node]][begin : begin + size]
                        _mark_right(bins, first[t, node], last[t, node], np.uint8(k), place, right)
                for i in range(size):
                    place[i] = np.uint8(2 * place[i] + right[i])
            for i in range(size):
                at[i] = place[i]
            for level in range(together, deepest):
                _walk_level(codes, begin, size, t, level, column, first, last, at)
            _add_leaf_values(leaf, t, at, begin, size, rate, n_outputs, scores)


@ordered_kernel
def _walk_rows(codes, begin, column, first, last, leaf, rate, scores):
    """What `add_trees` does for the few rows from `begin` on, one after the other."""
    n_trees, n_leaves, n_outputs = leaf.shape
    n, n_inner = np.uint64(codes.shape[1]), np.uint64(n_leaves - 1)
    bins, columns, firsts, lasts = codes.reshape(-1), column.reshape(-1), first.reshape(-1), last.reshape(-1)
    for i in range(begin, codes.shape[1]):
        row = np.uint64(i)
        for t in range(n_trees):
            root, k = np.uint64(t) * n_inner, np.uint64(0)
            while k < n_inner:
                node = root + k
                code = bins[np.uint64(columns[node]) * n + row]
                k = k + k + np.uint64(1) + np.uint64((code > lasts[node]) | (code < firsts[node]))
            for o in range(n_outputs):
                scores[row, np.uint64(o)] += rate * leaf[np.uint64(t), k - n_inner, np.uint64(o)]


@inlined_kernel
def _mark_right(bins, first, last, k, place, right):
    """right[i] <- 1 for the rows that are at node k of a level and go right; bytes, many rows at a time."""
    for i in range(bins.size):
        right[i] |= np.uint8(((bins[i] > last) | (bins[i] < first)) & (place[i] == k))


@inlined_kernel
def _walk_level(codes, begin, size, t, level, column, first, last, at):
    """Move rows from their nodes of a level to those of the next, each row by itself."""
    flat, n, before = codes.reshape(-1), np.uint64(codes.shape[1]), np.uint64((1 << level) - 1)
    t = np.uint64(t)
    for i in range(size):
        k = at[np.uint64(i)]
        node = before + k
        code = flat[np.uint64(column[t, node]) * n + np.uint64(begin + i)]
        at[np.uint64(i)] = k + k + np.uint64((code > last[t, node]) | (code < first[t, node]))


@inlined_kernel
def _add_leaf_values(leaf, t, at, begin, size, rate, n_outputs, scores):
    """Add `rate` times the leaves `at` of tree t to the scores of the rows of a tile."""
    if n_outputs == 1:  # the usual case, written out so that nothing but the leaf depends on the row
        values, sums = leaf[t].reshape(-1), scores[begin : begin + size].reshape(-1)
        for i in range(size):
            sums[i] += rate * values[at[np.uint64(i)]]
    else:
        for i in range(size):
            for o in range(n_outputs):
                scores[np.uint64(begin + i), np.uint64(o)] += rate * leaf[np.uint64(t), at[np.uint64(i)], np.uint64(o)]
