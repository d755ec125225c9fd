"""Small trees on binned covariates against a naive twin."""

import numpy as np
import pytest

import treecdf._kernels.histogram
from treecdf._kernels.binned_trees import add_leaves
from treecdf._kernels.histogram import add_histograms, grow, send_down
from treecdf._kernels.splits import best_splits, sums_of_children

N_BINS, DEPTH = 7, 3


def problem(seed, n=120, q=3, n_outputs=1, n_roots=1, missing=True):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0 if missing else 1, N_BINS + 1, (q, n)).astype(np.uint8)
    gradient = rng.normal(size=(n, n_outputs)) + (codes[:1].T > 3)
    return codes, rng.integers(0, n_roots, n), gradient, rng.uniform(0.5, 1.5, (n, n_outputs))


def fit(codes, root, gradient, hessian, rows=None, columns=None, min_rows=4.0, ridge=0.7):
    n_roots, n_outputs = int(root.max()) + 1, gradient.shape[1]
    column, cut, missing_left = (np.zeros((n_roots, 2**DEPTH - 1), np.int64) for _ in range(3))
    leaf = np.zeros((n_roots, 2**DEPTH, n_outputs))
    rows = np.arange(len(root)) if rows is None else rows
    columns = np.arange(len(codes)) if columns is None else columns
    tree = (column, cut, missing_left, leaf)
    grow(codes, rows, root.copy(), gradient, hessian, np.ones(len(root)), columns, N_BINS, min_rows, ridge, *tree)
    return tree


def naive(codes, rows, gradient, hessian, columns, depth, min_rows=4.0, ridge=0.7):
    """Leaf values of the rows, by trying every split of every node."""

    def score(some):
        return float((gradient[some].sum(axis=0) ** 2 / (hessian[some].sum(axis=0) + ridge)).sum())

    best, best_gain = None, 1e-9
    for column in columns if depth else []:
        for side in (0, 1):
            for cut in range(1, N_BINS):
                bins = codes[column, rows]
                left = np.where(bins == 0, side == 1, bins <= cut)
                if min(left.sum(), (~left).sum()) < min_rows:
                    continue
                gain = score(rows[left]) + score(rows[~left]) - score(rows)
                if gain > best_gain + 1e-9:
                    best, best_gain = left, gain
    if best is None:
        value = -gradient[rows].sum(axis=0) / (hessian[rows].sum(axis=0) + ridge)
        return {int(i): value for i in rows}
    parts = (rows[best], rows[~best])
    return {k: v for part in parts for k, v in naive(codes, part, gradient, hessian, columns, depth - 1).items()}


def leaves(codes, root, tree, n_outputs, rate=1.0):
    scores = np.zeros((len(root), n_outputs))
    add_leaves(codes, root, *tree, rate, scores)
    return scores


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("n_roots", [1, 4])
@pytest.mark.parametrize("seed", range(4))
def test_trees_are_the_twins(seed, n_roots, n_outputs):
    codes, root, gradient, hessian = problem(seed, n_outputs=n_outputs, n_roots=n_roots)
    found = leaves(codes, root, fit(codes, root, gradient, hessian), n_outputs)
    for k in range(n_roots):
        expected = naive(codes, np.flatnonzero(root == k), gradient, hessian, range(3), DEPTH)
        assert len(expected) > 10
        for i, value in expected.items():
            np.testing.assert_allclose(found[i], value, atol=1e-9)


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("common", [0, 1, 2, N_BINS])
@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0]])
def test_columns_in_which_most_rows_have_the_same_bin_are_the_twins(order, common, n_outputs):
    """Only the other rows are added up: indicators, constants, and columns that are mostly missing."""
    codes, root, gradient, hessian = problem(common, q=4, n_outputs=n_outputs, n_roots=2)
    rng = np.random.default_rng(common)
    codes[0] = np.where(rng.random(120) < 0.15, codes[0], common)
    codes[1] = np.where(rng.random(120) < 0.2, 2, 1)
    codes[3] = 1
    gradient += (common != codes[:1].T) + 0.5 * (codes[1:2].T == 2)
    codes = np.ascontiguousarray(codes[order])
    tree = fit(codes, root, gradient, hessian)
    assert {order.index(0), order.index(1)} & set(tree[0].ravel())
    found = leaves(codes, root, tree, n_outputs)
    for k in range(2):
        expected = naive(codes, np.flatnonzero(root == k), gradient, hessian, range(4), DEPTH)
        for i, value in expected.items():
            np.testing.assert_allclose(found[i], value, atol=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
def test_siblings_by_subtraction_are_those_that_are_added_up(weighted, monkeypatch):
    """Where histograms of a level are too many to be kept, rows of both siblings are added up; splits are the same."""
    rng = np.random.default_rng(0)
    codes, root, gradient, hessian = problem(8, n=400, q=5, n_roots=2)
    codes[3] = np.where(rng.random(400) < 0.1, codes[3], 1)
    weight = rng.uniform(0.1, 2.0, 400) if weighted else np.ones(400)
    given = weight[:, None] * gradient, weight[:, None] * hessian, weight, np.arange(5), N_BINS, 4.0, 0.7
    trees = []
    for most in (None, 0):
        if most is not None:
            monkeypatch.setattr(treecdf._kernels.histogram, "_MOST_KEPT", most)
        tree = [np.zeros((2, 2**DEPTH - 1), np.int64) for _ in range(3)] + [np.zeros((2, 2**DEPTH, 1))]
        getattr(grow, "py_func", grow)(codes, np.arange(400), root.copy(), *given, *tree)
        trees.append(tree)
    assert (trees[0][0] >= 0).sum() > 8
    for one, other in zip(*trees, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_only_given_rows_and_columns_count():
    codes, root, gradient, hessian = problem(5)
    rows, columns = np.arange(0, 120, 2), np.array([2])
    tree = fit(codes, root, gradient, hessian, rows, columns)
    other = gradient.copy()
    other[1::2] = 1e6
    again = fit(codes, root, other, hessian, rows, columns)
    assert all(np.array_equal(*pair) for pair in zip(tree, again, strict=True))
    assert set(tree[0].ravel()) <= {-1, 2}


def test_a_node_that_cannot_be_split_is_a_leaf():
    codes, root, gradient, hessian = problem(6)
    tree = fit(codes, root, gradient, hessian, min_rows=61.0)
    assert (tree[0] == -1).all()
    np.testing.assert_allclose(leaves(codes, root, tree, 1)[:, 0], -gradient.sum() / (hessian.sum() + 0.7), rtol=1e-12)


def test_rows_without_root_are_left_out_and_the_rate_scales():
    codes, root, gradient, hessian = problem(7)
    tree = fit(codes, root, gradient, hessian)
    whole, half = leaves(codes, root, tree, 1), leaves(codes, np.where(np.arange(120) < 60, 0, -1), tree, 1, 0.5)
    np.testing.assert_allclose(half[:60], whole[:60] / 2)
    assert (half[60:] == 0).all()
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
