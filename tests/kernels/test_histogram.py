"""Small trees on binned covariates against a naive twin."""

import numpy as np
import pytest

import treecdf._kernels.histogram
from treecdf._kernels.binned_trees import add_trees
from treecdf._kernels.histogram import grow
from treecdf._kernels.node_trees import add_histograms, send_down
from treecdf._kernels.splits import best_splits, sums_of_children
from treecdf.bases.learners.boosting import packed_nodes

N_BINS, DEPTH = 7, 3


def problem(seed, n=120, q=3, n_outputs=1, n_roots=1, missing=True):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0 if missing else 1, N_BINS + 1, (q, n)).astype(np.uint8)
    gradient = rng.normal(size=(n, n_outputs)) + (codes[:1].T > 3)
    return codes, rng.integers(0, n_roots, n), gradient, rng.uniform(0.5, 1.5, (n, n_outputs))


def fit(codes, gradient, hessian, rows=None, columns=None, min_rows=4.0, ridge=0.7, weight=None, depth=DEPTH):
    """A tree learnt from some rows of the table, of which gradient and Hessian are given in full."""
    column, cut, missing_left = (np.zeros((1, 2**depth - 1), np.int64) for _ in range(3))
    leaf = np.zeros((1, 2**depth, gradient.shape[1]))
    rows = np.arange(codes.shape[1]) if rows is None else rows
    columns = np.arange(len(codes)) if columns is None else columns
    weight = np.ones(codes.shape[1]) if weight is None else weight
    tree = (column, cut, missing_left, leaf)
    own = gradient[rows], hessian[rows], weight[rows]
    grow(codes, rows, *own, columns, N_BINS, min_rows, ridge, *(part[0] for part in tree))
    return tree


def naive(codes, rows, gradient, hessian, columns, depth, min_rows=4.0, ridge=0.7, weight=None):
    """Leaf values of the rows, by trying every split of every node."""

    def score(some):
        return float((gradient[some].sum(axis=0) ** 2 / (hessian[some].sum(axis=0) + ridge)).sum())

    weight = np.ones(codes.shape[1]) if weight is None else weight
    best, best_gain = None, 1e-9
    for column in columns if depth else []:
        for side in (0, 1):
            for cut in range(1, N_BINS):
                bins = codes[column, rows]
                left = np.where(bins == 0, side == 1, bins <= cut)
                if min(weight[rows[left]].sum(), weight[rows[~left]].sum()) < min_rows:
                    continue
                gain = score(rows[left]) + score(rows[~left]) - score(rows)
                if gain > best_gain + 1e-9:
                    best, best_gain = left, gain
    if best is None:
        value = -gradient[rows].sum(axis=0) / (hessian[rows].sum(axis=0) + ridge)
        return {int(i): value for i in rows}
    parts = (rows[best], rows[~best])
    given = columns, depth - 1, min_rows, ridge, weight
    return {k: v for part in parts for k, v in naive(codes, part, gradient, hessian, *given).items()}


def leaves(codes, tree, rate=1.0):
    scores = np.zeros((codes.shape[1], tree[3].shape[2]))
    add_trees(codes, *packed_nodes(*tree[:3]), tree[3], rate, scores)
    return scores


def assert_is_twin(codes, tree, gradient, hessian, **options):
    """Compare the leaves of all rows with those of `naive`."""
    found = leaves(codes, tree)
    expected = naive(codes, np.arange(codes.shape[1]), gradient, hessian, range(len(codes)), **options)
    assert len(expected) == codes.shape[1]
    for i, value in expected.items():
        np.testing.assert_allclose(found[i], value, atol=1e-9)


@pytest.mark.parametrize("n_outputs", [1, 2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_trees_are_the_twins(seed, n_outputs):
    codes, _, gradient, hessian = problem(seed, n_outputs=n_outputs)
    tree = fit(codes, gradient, hessian)
    assert (tree[0] >= 0).sum() > 3
    assert_is_twin(codes, tree, gradient, hessian, depth=DEPTH)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("q", [1, 2, 3, 4])
def test_bins_of_two_numbers_are_the_twins(q, weighted):
    """Where Hessians are the weights, as under squared error; columns are added up in pairs."""
    codes, _, gradient, _ = problem(q, q=q)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, 120) if weighted else np.ones(120)
    tree = fit(codes, gradient, weight[:, None], weight=weight)
    assert (tree[0] >= 0).sum() > 3
    assert_is_twin(codes, tree, gradient, weight[:, None], depth=DEPTH, weight=weight)


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("common", [0, 1, 2, N_BINS])
@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0]])
@pytest.mark.parametrize("pairs", [False, True])
def test_columns_in_which_most_rows_have_the_same_bin_are_the_twins(pairs, order, common, n_outputs):
    """Only the other rows are added up: indicators, constants, and columns that are mostly missing."""
    codes, _, gradient, hessian = problem(common, q=4, n_outputs=n_outputs)
    hessian = np.ones_like(hessian) if pairs else hessian
    rng = np.random.default_rng(common)
    codes[0] = np.where(rng.random(120) < 0.15, codes[0], common)
    codes[1] = np.where(rng.random(120) < 0.2, 2, 1)
    codes[3] = 1
    gradient += (common != codes[:1].T) + 0.5 * (codes[1:2].T == 2)
    codes = np.ascontiguousarray(codes[order])
    tree = fit(codes, gradient, hessian)
    assert {order.index(0), order.index(1)} & set(tree[0].ravel())
    assert_is_twin(codes, tree, gradient, hessian, depth=DEPTH)


@pytest.mark.parametrize("n_outputs", [1, 2])
def test_trees_are_the_twins_where_rows_are_added_up_in_many_tiles(n_outputs, monkeypatch):
    codes, _, gradient, hessian = problem(8, n=400, q=5, n_outputs=n_outputs)
    codes[3] = np.where(np.random.default_rng(0).random(400) < 0.1, codes[3], 1)
    monkeypatch.setattr(treecdf._kernels.histogram, "_TILE_VALUES", 56)
    column, cut, missing_left = np.zeros((3, 1, 2**DEPTH - 1), np.int64)
    tree = column, cut, missing_left, np.zeros((1, 2**DEPTH, n_outputs))
    given = codes, np.arange(400), gradient, hessian, np.ones(400), np.arange(5), N_BINS, 4.0, 0.7
    getattr(grow, "py_func", grow)(*given, *(part[0] for part in tree))
    assert (column >= 0).sum() > 4
    assert_is_twin(codes, tree, gradient, hessian, depth=DEPTH)


def test_only_given_rows_and_columns_count():
    codes, _, gradient, hessian = problem(5)
    rows, columns = np.arange(0, 120, 2), np.array([2])
    tree = fit(codes, gradient, hessian, rows, columns)
    other = np.ascontiguousarray(codes)
    other[:, 1::2] = 1
    again = fit(other, gradient, hessian, rows, columns)
    alone = fit(np.ascontiguousarray(codes[:, rows]), gradient[rows], hessian[rows], None, columns)
    assert all(np.array_equal(*pair) for pair in zip(tree, again, strict=True))
    assert all(np.array_equal(*pair) for pair in zip(tree, alone, strict=True))
    assert set(tree[0].ravel()) == {-1, 2}


def test_a_node_that_cannot_be_split_is_a_leaf():
    codes, _, gradient, hessian = problem(6)
    tree = fit(codes, gradient, hessian, min_rows=61.0)
    assert (tree[0] == -1).all()
    np.testing.assert_allclose(leaves(codes, tree)[:, 0], -gradient.sum() / (hessian.sum() + 0.7), rtol=1e-12)


def test_small_nodes_of_deep_trees_are_the_twins():
    """Nodes of too few rows to be split have no histograms."""
    codes, _, gradient, hessian = problem(9, n=80)
    tree = fit(codes, gradient, hessian, min_rows=3.0, depth=6)
    assert (tree[0] == -1).any()
    assert (tree[0][:, 15:] >= 0).any()
    assert_is_twin(codes, tree, gradient, hessian, depth=6, min_rows=3.0)


def test_no_rows_and_no_columns_are_a_leaf():
    codes, _, gradient, hessian = problem(6)
    nothing = np.empty(0, np.int64)
    assert (fit(codes, gradient, hessian, rows=nothing)[3] == 0).all()
    np.testing.assert_allclose(
        leaves(codes, fit(codes, gradient, hessian, columns=nothing))[:, 0], -gradient.sum() / (hessian.sum() + 0.7)
    )


def test_a_tree_of_depth_0_is_a_leaf():
    codes, _, gradient, hessian = problem(6)
    tree = fit(codes, gradient, hessian, depth=0)
    np.testing.assert_allclose(leaves(codes, tree)[:, 0], -gradient.sum() / (hessian.sum() + 0.7))


def test_the_rate_scales():
    codes, _, gradient, hessian = problem(7)
    tree = fit(codes, gradient, hessian)
    whole, half = leaves(codes, tree), leaves(codes, tree, 0.5)
    np.testing.assert_allclose(half, whole / 2)
    assert (whole != 0).all()


@pytest.mark.parametrize("seed", range(4))
def test_sums_of_children_are_those_of_their_rows(seed):
    """With missing values, and nodes that are too small to be split."""
    codes, root, gradient, hessian = problem(seed, n=60, n_roots=3)
    rows, weight, columns = np.arange(60), np.ones(60), np.arange(3)
    tree = np.zeros((3, 3, 3), np.int64)
    place = root.copy()
    for level in range(2):
        sums = np.zeros((3 * 2**level, 3, N_BINS + 1, 3))
        add_histograms(codes, rows, place, gradient, hessian, weight, columns, sums)
        best_splits(sums, 2**level, columns, 8.0, 0.7, *tree)
        send_down(codes, rows, place, level, *tree)
    children = sums_of_children(sums, *tree)
    assert (tree[0] < 0).any()
    for k in range(12):
        of_rows = [gradient[place == k].sum(), hessian[place == k].sum(), (place == k).sum()]
        assert children[k] == pytest.approx(of_rows, abs=1e-12)
