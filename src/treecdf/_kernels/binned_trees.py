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
_BITS = 64  # rows that go through a tree as the bits of a number
_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)  # a single bit times this says in six bits which one it is
_NUMBER_OF_BIT = np.zeros(64, np.int64)
_NUMBER_OF_BIT[[(0x03F79D71B4CB0A89 << i & (1 << 64) - 1) >> 58 for i in range(64)]] = np.arange(64)
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
    looks = n_trees > 1 and together == deepest  # one tree takes as long as the look
    for begin in range(0, n, _TILE_ROWS):
        size = min(_TILE_ROWS, n - begin)
        if size < _FEW_ROWS:
            _walk_rows(codes, begin, column, first, last, leaf, rate, scores)
            break
        place, right = places[:size], rights[:size]
        if looks and _changes_rarely(codes, begin, deepest, column, first, last, place, right):
            _add_to_neighbours(codes, begin, begin + size, column, first, last, leaf, rate, scores)
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
def _add_to_neighbours(codes, begin, end, column, first, last, leaf, rate, scores):
    """What `add_trees` does for rows begin:end if they mostly reach the leaf of the row before them.

    64 rows go through a tree together, as the bits of one number, and of the leaves only the changes from row to row
    are added up.
    """
    n_trees, n_leaves, n_outputs = leaf.shape
    rises = np.empty((_BITS, n_outputs))
    up_to = np.empty((len(codes), 257), np.uint64)  # of each column, the rows whose bin is below
    nodes, sets = np.empty(n_leaves, np.int64), np.empty(n_leaves, np.uint64)  # that are still to come
    zero, one = np.uint64(0), np.uint64(1)
    for start in range(begin, end, _BITS):
        size = min(_BITS, end - start)
        _fill_up_to(codes, start, size, up_to)
        for i in range(size):
            for o in range(n_outputs):
                rises[i, o] = 0.0
        for t in range(n_trees):
            nodes[0], sets[0], n = 0, ~zero >> np.uint64(_BITS - size), 1
            while n > 0:
                n -= 1
                node, rows = nodes[n], sets[n]
                while node < n_leaves - 1:
                    own = up_to[column[t, node]]
                    left = rows & own[np.int64(last[t, node]) + 1] & ~own[first[t, node]]
                    if left == rows:
                        node = 2 * node + 1
                    elif left == zero:
                        node = 2 * node + 2
                    else:
                        nodes[n], sets[n] = 2 * node + 2, rows & ~left
                        node, rows, n = 2 * node + 1, left, n + 1
                changes = rows ^ (rows << one)
                sign = 1.0  # the first change is to this leaf, the second from it, and so on
                while changes != zero:
                    i = _NUMBER_OF_BIT[((changes & (~changes + one)) * _DE_BRUIJN) >> np.uint64(58)]
                    for o in range(n_outputs):
                        rises[i, o] += sign * leaf[t, node - n_leaves + 1, o]
                    sign = -sign
                    changes &= changes - one
        for o in range(n_outputs):
            total = 0.0
            for i in range(size):
                total += rises[i, o]
                scores[start + i, o] += rate * total


@ordered_kernel
def _fill_up_to(codes, start, size, up_to):
    """up_to[j, b] <- rows, as bits, of start:start + size whose bin in column j is below b."""
    for j in range(len(codes)):
        for b in range(up_to.shape[1]):
            up_to[j, b] = np.uint64(0)
        for i in range(size):
            up_to[j, np.int64(codes[j, start + i]) + 1] |= np.uint64(1) << np.uint64(i)
        for b in range(1, up_to.shape[1]):
            up_to[j, b] |= up_to[j, b - 1]


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
