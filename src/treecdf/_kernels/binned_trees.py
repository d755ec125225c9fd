"""Small trees on binned covariates: which leaf a row reaches, and what it adds to the row's scores.

codes (q, n) uint8: the bin of each covariate, 0 for a missing value. A tree of depth D is three arrays of 2^D - 1 inner
nodes, level by level (the children of node k of a level are nodes 2k and 2k + 1 of the next), and 2^D leaves:
column -1 means "no split, all rows go left"; a row goes left if its bin is at most `cut`, a missing one if
`missing_left`.
"""

import numpy as np

from treecdf._kernels.compiling import inlined_kernel, ordered_kernel

_TILE_ROWS = 512  # rows that go through a tree together when it predicts
# Levels of a tree whose nodes are compared with all rows of a tile, in vector units: cheaper than to walk down row by
# row as long as a level has few nodes
_LEVELS_TOGETHER = 5
_FEW_ROWS = 32  # fewer rows walk down by themselves
_BLOCK = 64  # rows of a tile whose number is known when the loop over them is compiled
_TREES_LOOKED_AT = 8  # to see whether rows beside each other reach the same leaves
_RARELY = 4  # rows beside each other do if at most every fourth row changes the leaf, on average


@ordered_kernel
def goes_right(codes, i, column, cut, missing_left):
    """1 if row i goes to the right child of a node, else 0."""
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
        k = 2 * k + goes_right(codes, i, column[tree, at], cut[tree, at], missing_left[tree, at])
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
        if together == deepest and _changes_rarely(codes, begin, deepest, column, first, last, place, right):
            _add_to_neighbours(codes, begin, begin + size, deepest, column, first, last, leaf, rate, scores)
            continue
        for t in range(n_trees):
            _walk_together(codes, begin, t, together, column, first, last, place, right)
            for i in range(size):
                at[i] = place[i]
            for level in range(together, deepest):
                _walk_level(codes, begin, size, t, level, column, first, last, at)
            _add_leaf_values(leaf, t, at, begin, size, rate, n_outputs, scores)


@ordered_kernel
def _changes_rarely(codes, begin, deepest, column, first, last, place, right):
    """Whether the rows of a tile mostly reach the leaf of the row before them: points of one row of x, in order, do."""
    n_trees, n_changes, n_seen = len(column), 0, 0
    for t in range(0, n_trees, max(1, n_trees // _TREES_LOOKED_AT)):
        _walk_together(codes, begin, t, deepest, column, first, last, place, right)
        for i in range(1, place.size):
            n_changes += place[i] != place[i - 1]
        n_seen += place.size
    return n_changes * _RARELY <= n_seen


@ordered_kernel
def _add_to_neighbours(codes, begin, end, deepest, column, first, last, leaf, rate, scores):
    """What `add_trees` does for rows begin:end if they mostly reach the leaf of the row before them.

    Rows go through the trees run by run: nodes that send a whole run the same way cost next to nothing, and of the
    leaves only the changes from row to row are added up.
    """
    n_trees, n_outputs = len(leaf), leaf.shape[2]
    lowest, highest = np.empty(len(codes), np.uint8), np.empty(len(codes), np.uint8)
    bins = np.empty((len(codes), _TILE_ROWS), np.uint8)
    place, right = np.empty(_TILE_ROWS, np.uint8), np.empty(_TILE_ROWS, np.uint8)
    words, rises = np.empty(_TILE_ROWS // 8, np.uint64), np.empty((_TILE_ROWS, n_outputs))
    flat, changed = bins.reshape(-1), words.view(np.uint8)
    for stop in _ends_of_runs(codes, begin, end):
        n_blocks = (stop - begin + _BLOCK - 1) // _BLOCK
        for i in range(stop - begin):
            for o in range(n_outputs):
                rises[i, o] = 0.0
        _copy_run(codes, begin, stop, n_blocks * _BLOCK, bins, lowest, highest)
        for t in range(n_trees):
            level, k = 0, 0  # of the first node at which the rows part, or of a leaf
            while level < deepest:
                node = (1 << level) - 1 + k
                low, high = lowest[column[t, node]], highest[column[t, node]]
                if low >= first[t, node] and high <= last[t, node]:
                    k = 2 * k
                elif low > last[t, node] or high < first[t, node]:
                    k = 2 * k + 1
                else:
                    break
                level += 1
            if level == deepest:
                for o in range(n_outputs):
                    rises[0, o] += leaf[t, k, o]
                continue
            _fill(place, n_blocks * _BLOCK, np.uint8(k))
            for d in range(level, deepest):
                _fill(right, n_blocks * _BLOCK, np.uint8(0))
                for c in range(k << (d - level), (k + 1) << (d - level)):
                    node, own = (1 << d) - 1 + c, np.uint8(c)
                    j, lower, upper = column[t, node], first[t, node], last[t, node]
                    if lowest[j] >= lower and highest[j] <= upper:
                        continue
                    for at in range(0, n_blocks * _BLOCK, _BLOCK):
                        here, own_bins = np.uint64(at), np.uint64(j * _TILE_ROWS + at)
                        for i in range(_BLOCK):
                            code = flat[own_bins + np.uint64(i)]
                            is_right = ((code > upper) | (code < lower)) & (place[here + np.uint64(i)] == own)
                            right[here + np.uint64(i)] |= np.uint8(is_right)
                for at in range(0, n_blocks * _BLOCK, _BLOCK):
                    here = np.uint64(at)
                    for i in range(_BLOCK):
                        r = here + np.uint64(i)
                        place[r] = np.uint8(2 * place[r] + right[r])
            changed[0] = 0
            for i in range(np.uint64(1), np.uint64(n_blocks * _BLOCK)):
                changed[i] = place[i] ^ place[i - np.uint64(1)]
            for o in range(n_outputs):
                rises[0, o] += leaf[t, place[0], o]
            for w in range(n_blocks * _BLOCK // 8):
                if words[w] == 0:
                    continue
                for i in range(8 * w, 8 * w + 8):
                    if changed[i] != 0:
                        for o in range(n_outputs):
                            rises[i, o] += leaf[t, place[i], o] - leaf[t, place[i - 1], o]
        for o in range(n_outputs):
            total = 0.0
            for i in range(stop - begin):
                total += rises[i, o]
                scores[begin + i, o] += rate * total
        begin = stop


@ordered_kernel
def _ends_of_runs(codes, begin, end):
    """Ends of runs of the rows begin:end: where many columns change at once, not one here and one there."""
    changes = np.zeros(end - begin, np.int64)
    for j in range(len(codes)):
        for i in range(begin + 1, end):
            changes[i - begin] += codes[j, i] != codes[j, i - 1]
    most, total = 0, 0
    for i in range(end - begin):
        most = max(most, changes[i])
        total += changes[i]
    many = 0.5 * most + 0.5 * total / changes.size
    ends, n_ends, last = np.empty(end - begin, np.int64), 0, begin
    for i in range(begin + 1, end):
        if changes[i - begin] > many and i - last >= _FEW_ROWS:
            ends[n_ends], last = i, i
            n_ends += 1
    ends[n_ends] = end
    return ends[: n_ends + 1]


@ordered_kernel
def _copy_run(codes, begin, stop, size, bins, lowest, highest):
    """bins (q, :size) of rows begin:stop, the last of them repeated to the end, and the ends of their ranges (q,)."""
    for j in range(len(codes)):
        low, high = np.uint8(255), np.uint8(0)
        for i in range(size):
            code = codes[j, min(begin + i, stop - 1)]
            bins[j, i] = code
            low, high = min(low, code), max(high, code)
        lowest[j], highest[j] = low, high


@ordered_kernel
def _walk_together(codes, begin, t, n_levels, column, first, last, place, right):
    """place <- nodes that the rows of a tile reach after some levels of tree t, counted from the left."""
    size = place.size
    _fill(place, size, np.uint8(0))
    for level in range(n_levels):
        _fill(right, size, np.uint8(0))
        for k in range(1 << level):
            node = (1 << level) - 1 + k
            if last[t, node] < 255 or first[t, node] > 0:
                bins = codes[column[t, node]][begin : begin + size]
                _mark_right(bins, first[t, node], last[t, node], np.uint8(k), place, right)
        for i in range(size):
            place[i] = np.uint8(2 * place[i] + right[i])


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
def _fill(values, n, value):
    """values[:n] <- value; it is compiled in less time than the same with a slice."""
    for i in range(np.uint64(n)):
        values[i] = value


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
