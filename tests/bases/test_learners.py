"""Learners of the mean: each against a slow twin, left-out predictions above all."""

import doctest
import tracemalloc
from dataclasses import dataclass
from itertools import combinations_with_replacement
from math import comb

import numpy as np
import pytest
from scipy import special
from scipy.optimize import approx_fprime
from scipy.stats import multivariate_normal
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import Matern
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.svm import SVR
from sklearn.tree import DecisionTreeRegressor

from treecdf._kernels.binned_trees import _changes_rarely, add_trees
from treecdf._kernels.processes import add_process
from treecdf.bases.learners import (
    AnyRegressor,
    BoostedMean,
    GaussianProcess,
    Neighbours,
    Network,
    Polynomial,
    as_learner,
    boosting,
    neighbours,
    network,
    polynomial,
    process,
)
from treecdf.bases.learners.boosting import BoostingSettings, boost_scores, packed_nodes
from treecdf.bases.learners.protocol import AlwaysTried
from treecdf.bases.mean import Mean, TrainingRows
from treecdf.training.defaults import default_learners, default_scales

N, Q, N_FOLDS = 100, 3, 4


def table(seed, n=N, q=Q, noise=0.1):
    """Covariates, outcomes that bend with two of them, weights, folds."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, q))
    y = np.sin(2 * x[:, 0]) + 0.5 * x[:, 1 % q] * x[:, 0] + noise * rng.normal(size=n)
    return x, y, rng.uniform(0.5, 2.0, n), rng.permutation(n) % N_FOLDS


X, Y, WEIGHT, FOLD = table(0)
X_NEW = 2 * table(1)[0]
PARAMETERS = np.log([1.0, 1.5, 3.0, 1.2, 0.2, 0.4])  # of the process: length scales, signal, noise, slope


def cross_fit(learner, x=X, y=Y, weight=WEIGHT, fold=FOLD, seed=0, **settings):
    return learner.cross_fit(x, y, weight, fold, np.random.default_rng(seed), **settings)


def error(prediction, y):
    return np.sqrt(np.mean((prediction - y) ** 2))


@dataclass(frozen=True)
class FixedProcess:
    """A process whose kernel is not tuned."""

    log_params: np.ndarray

    def cross_fit(self, x, y, weight, fold, rng):
        return process._fit(x, y, weight, self.log_params, x, fold)


LEARNERS = {
    "linear": Polynomial(1),
    "quadratic": Polynomial(2),
    "cubic": Polynomial(3),
    "process": GaussianProcess(n_tuning=50, n_inducing=60, max_iter=10),
    "exact process": GaussianProcess(max_iter=10),
    "trees": BoostedMean(3, rate=0.2, max_rounds=6),
    "network": Network((8, 8), max_steps=50, batch=32),
    "neighbours": Neighbours(),
    "scikit-learn": AnyRegressor(DecisionTreeRegressor(max_depth=4)),
}
every_learner = pytest.mark.parametrize("name", LEARNERS)


# All learners


@pytest.mark.parametrize("name", [name for name in LEARNERS if "process" not in name] + ["process with a fixed kernel"])
def test_outcomes_of_a_fold_do_not_touch_its_left_out_predictions(name, monkeypatch):
    """Ridge, noise and number of rounds are chosen by all rows, so there is only one choice here."""
    monkeypatch.setattr(polynomial, "_RIDGES", np.array([0.1]))
    monkeypatch.setattr(process, "_NOISE_FACTORS", (1.0,))
    learner = LEARNERS.get(name, FixedProcess(PARAMETERS))
    here = FOLD == 2
    other = np.where(here, 3 * Y + 1, Y)
    (model, left_out), (model_of_other, left_out_of_other) = cross_fit(learner), cross_fit(learner, y=other)
    if name == "trees":
        assert len(model.scores.leaf) == len(model_of_other.scores.leaf) == 6 * N_FOLDS
    np.testing.assert_allclose(left_out_of_other[here], left_out[here], rtol=1e-9, atol=1e-9)
    for f in (0, 1, 3):
        assert np.abs(left_out_of_other - left_out)[f == FOLD].max() > 0.1
    assert np.abs(model_of_other(X) - model(X)).max() > 0.1


@every_learner
def test_left_out_predictions_are_worse_than_those_of_seen_rows_and_better_than_none(name):
    """A line cannot fit this table, all others can."""
    model, left_out = cross_fit(LEARNERS[name])
    assert error(model(X), Y) < error(left_out, Y) < (1.1 if name == "linear" else 0.95) * Y.std()


@every_learner
def test_the_same_seed_gives_the_same_predictions(name):
    (first, left_out), (second, again) = cross_fit(LEARNERS[name], seed=3), cross_fit(LEARNERS[name], seed=3)
    assert np.array_equal(left_out, again)
    assert np.array_equal(first(X_NEW), second(X_NEW))


@every_learner
@pytest.mark.parametrize("kind", ["constant", "duplicated", "only constant", "two values", "few rows"])
def test_degenerate_covariates_are_finite(name, kind):
    x, y, weight, fold = X, Y, WEIGHT, FOLD
    if kind == "constant":
        x = np.column_stack([X[:, :2], np.zeros(N)])
    elif kind == "duplicated":
        x = X[:, [0, 0, 1]]
    elif kind == "only constant":
        x = np.zeros((N, 2))
    elif kind == "two values":
        x = np.sign(X)
    else:
        x, y, weight, fold = X[:5], Y[:5], WEIGHT[:5], np.arange(5) % 2
    model, left_out = cross_fit(LEARNERS[name], x, y, weight, fold)
    assert np.isfinite(left_out).all()
    assert np.isfinite(model(X_NEW[:, : x.shape[1]])).all()
    if kind == "only constant":
        assert np.ptp(model(x)) < 1e-6
        assert error(left_out, Y) < (1.3 if name == "neighbours" else 1.1) * Y.std()  # the mean of three rows


@every_learner
def test_predictions_do_not_depend_on_the_rows_beside_them(name):
    model, _ = cross_fit(LEARNERS[name])
    alone = np.concatenate([model(row[None]) for row in X_NEW[:5]])
    np.testing.assert_allclose(model(X_NEW)[:5], alone, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["linear", "cubic", "exact process", "scikit-learn"])
def test_a_row_of_weight_two_equals_the_row_twice(name):
    times = np.random.default_rng(5).integers(1, 4, N)
    learner = FixedProcess(PARAMETERS) if name == "exact process" else LEARNERS[name]
    model, left_out = cross_fit(learner, weight=times.astype(float))
    rows = np.repeat(np.arange(N), times)
    repeated, again = cross_fit(learner, X[rows], Y[rows], np.ones(len(rows)), FOLD[rows])
    np.testing.assert_allclose(again, left_out[rows], atol=1e-6)
    np.testing.assert_allclose(repeated(X_NEW), model(X_NEW), atol=1e-6)
    unweighted, _ = cross_fit(learner, weight=np.ones(N))
    assert np.abs(unweighted(X_NEW) - model(X_NEW)).max() > 1e-3


# Polynomials


def products(x, degree):
    """All products of one to `degree` covariates."""
    chosen = [c for k in range(1, degree + 1) for c in combinations_with_replacement(range(x.shape[1]), k)]
    return np.column_stack([np.prod([x[:, j] for j in columns], axis=0) for columns in chosen])


def naive_ridge(features, y, weight, ridge, at):
    """Ridge regression with a free offset, by its normal equations."""
    mean, offset = np.average(features, axis=0, weights=weight), np.average(y, weights=weight)
    centered = features - mean
    gram = centered.T @ (weight[:, None] * centered) + ridge * np.eye(features.shape[1])
    return offset + (at - mean) @ np.linalg.solve(gram, centered.T @ (weight * (y - offset)))


def naive_polynomial(x, y, weight, fold, degree, at):
    """Left-out predictions, and predictions at new rows, of the ridge with the smallest left-out error."""
    raw = products(x, degree)
    mean = np.average(raw, axis=0, weights=weight)
    scale = np.sqrt(np.average((raw - mean) ** 2, axis=0, weights=weight))
    features = (raw - mean) / scale
    best = None
    for ridge in 10.0 ** np.arange(-3, 4.5, 0.5):
        left_out = np.empty(len(x))
        for f in range(fold.max() + 1):
            here = fold == f
            left_out[here] = naive_ridge(features[~here], y[~here], weight[~here], ridge, features[here])
        loss = np.average((left_out - y) ** 2, weights=weight)
        if best is None or loss < best[0]:
            best = loss, ridge, left_out
    inside = at if degree == 1 else np.clip(at, x.min(axis=0), x.max(axis=0))
    new = naive_ridge(features, y, weight, best[1], (products(inside, degree) - mean) / scale)
    return best[2], new, best[1]


@pytest.mark.parametrize(("degree", "q", "noise"), [(1, 3, 0.1), (2, 3, 0.1), (3, 3, 3.0), (3, 6, 0.1), (2, 1, 0.1)])
def test_polynomials_are_the_twins(degree, q, noise):
    """With six covariates there are more products than rows of three folds."""
    x, y, weight, fold = table(7, q=q, noise=noise)
    model, left_out = cross_fit(Polynomial(degree), x, y, weight, fold)
    at = 2 * table(8, q=q)[0]
    expected, new, _ = naive_polynomial(x, y, weight, fold, degree, at)
    np.testing.assert_allclose(left_out, expected, atol=1e-6)
    np.testing.assert_allclose(model(at), new, atol=1e-6)


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_sums_over_pieces_of_many_rows_give_the_same_polynomial(degree, monkeypatch):
    """Some products are constants, or the same as others."""
    x, y, weight, fold = table(7, q=4, noise=0.3)
    x[:, 2], x[:, 3] = x[:, 0], 1.5
    at = 2 * table(8, q=4)[0]
    found = []
    for many in (10**6, 0):
        monkeypatch.setattr(polynomial, "_MANY_ROWS", many)
        monkeypatch.setattr(polynomial, "_PIECE_ROWS", 7)
        model, left_out = cross_fit(Polynomial(degree), x, y, weight, fold)
        found.append((left_out, model(at)))
    np.testing.assert_allclose(found[1][0], found[0][0], atol=1e-8)
    np.testing.assert_allclose(found[1][1], found[0][1], atol=1e-8)


def test_noise_asks_for_more_ridge():
    chosen = [naive_polynomial(*table(7, noise=noise), 3, X)[2] for noise in (0.01, 3.0)]
    assert chosen[1] > 10 * chosen[0]


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_without_ridge_it_is_least_squares_on_products(degree, monkeypatch):
    monkeypatch.setattr(polynomial, "_RIDGES", np.array([1e-9]))
    model, _ = cross_fit(Polynomial(degree))
    root = np.sqrt(WEIGHT)[:, None]
    design = np.column_stack([np.ones(N), products(X, degree)])
    coefficients = np.linalg.lstsq(root * design, root[:, 0] * Y, rcond=None)[0]
    np.testing.assert_allclose(model(X), design @ coefficients, atol=1e-7)


@pytest.mark.parametrize("degree", [2, 3])
def test_curves_are_held_at_the_ends_of_the_training_range(degree):
    model, _ = cross_fit(Polynomial(degree))
    far = np.array([[1e6, 0.0, 0.0], [0.0, -1e6, 1e6], [-50.0, 0.5, 0.1]])
    np.testing.assert_allclose(model(far), model(np.clip(far, X.min(axis=0), X.max(axis=0))), rtol=1e-12)
    assert model(far[:1]) != pytest.approx(model(np.zeros((1, Q))), abs=1e-3)


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("q", [1, 2, 7])
def test_products_are_counted(q, degree):
    assert Polynomial(degree).n_features(q) == products(np.ones((1, q)), degree).shape[1]


def test_products_are_counted_without_listing_them():
    """A thousand covariates have more than 1e8 products of three."""
    tracemalloc.start()
    assert Polynomial(3).n_features(100) == comb(103, 3) - 1
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1e6


# The Gaussian process


def kernel(x, z, log_params):
    smooth = Matern(np.exp(log_params[:-3]), nu=2.5)(x, z) * np.exp(2 * log_params[-3])
    return smooth + np.exp(2 * log_params[-1]) * x @ z.T


def posterior_mean(x, y, weight, at, noise):
    covariance = kernel(x, x, PARAMETERS) + noise * np.diag(1 / weight)
    return kernel(at, x, PARAMETERS) @ np.linalg.solve(covariance, y)


def test_with_all_rows_inducing_it_is_the_exact_process():
    model, left_out = cross_fit(FixedProcess(PARAMETERS))
    found = []
    for factor in (0.5, 1.0, 2.0, 4.0):
        noise = factor * np.exp(2 * PARAMETERS[-2])
        expected = np.empty(N)
        for f in range(N_FOLDS):
            here = f == FOLD
            expected[here] = posterior_mean(X[~here], Y[~here], WEIGHT[~here], X[here], noise)
        found.append((np.average((expected - Y) ** 2, weights=WEIGHT), noise, expected))
    _, noise, expected = min(found, key=lambda choice: choice[0])
    np.testing.assert_allclose(left_out, expected, atol=1e-5)
    np.testing.assert_allclose(model(X_NEW), posterior_mean(X, Y, WEIGHT, X_NEW, noise), atol=1e-5)


def test_pieces_of_many_rows_give_the_same_process(monkeypatch):
    found = []
    for many in (10**6, 0):
        monkeypatch.setattr(process, "_MANY_ROWS", many)
        monkeypatch.setattr(process, "_PIECE_ROWS", 7)
        monkeypatch.setattr(process, "_ROWS_OF_PRODUCT", 11)
        model, left_out = cross_fit(GaussianProcess(n_tuning=50, n_inducing=30))
        found.append((left_out, model(X_NEW)))
    np.testing.assert_allclose(found[1][0], found[0][0], atol=1e-6)
    np.testing.assert_allclose(found[1][1], found[0][1], atol=1e-6)


def captured_loss(monkeypatch, x, y, weight):
    """The loss that the kernel's parameters minimise, and what was asked of the minimiser."""
    seen = {}

    def capture(loss, start, **options):
        seen.update(loss=loss, start=start, **options)
        return type("Result", (), {"x": start, "fun": 0.0})

    monkeypatch.setattr(process, "minimize", capture)
    process._tune(x, y, weight, 60)
    return seen


@pytest.mark.parametrize("seed", range(3))
def test_the_gradient_of_the_marginal_likelihood_is_right(seed, monkeypatch):
    x, y, weight, _ = table(seed, n=25)
    seen = captured_loss(monkeypatch, x, y, weight)
    rng = np.random.default_rng(seed)
    for _ in range(3):
        at = seen["start"] + 0.7 * rng.normal(size=len(seen["start"]))
        slopes = approx_fprime(at, lambda p: seen["loss"](p)[0], 1e-6)
        np.testing.assert_allclose(seen["loss"](at)[1], slopes, rtol=1e-4, atol=1e-3)


def test_the_loss_is_the_marginal_likelihood_and_weak_priors(monkeypatch):
    x, y, weight, _ = table(3, n=25)
    seen = captured_loss(monkeypatch, x, y, weight)

    def unexplained(log_params):
        covariance = kernel(x, x, log_params) + np.exp(2 * log_params[-2]) * np.diag(1 / weight)
        return seen["loss"](log_params)[0] + multivariate_normal.logpdf(y, cov=covariance)

    start = seen["start"]
    for k in range(len(start)):  # what is left is a parabola around the start, steepest for the length scales
        away = np.eye(len(start))[k]
        rise = [unexplained(start + step * away) - unexplained(start) for step in (-1.0, 1.0, 2.0)]
        assert rise[0] == pytest.approx(rise[1], abs=1e-5)
        assert rise[2] == pytest.approx(4 * rise[1], abs=1e-4)
        assert 0 < rise[1] < 1
    for at, (low, high) in zip(start, seen["bounds"], strict=True):
        assert low < at < high


def test_a_kernel_that_cannot_be_decomposed_is_a_warning_and_stays_its_prior(monkeypatch):
    def singular(*args, **kwargs):
        raise np.linalg.LinAlgError

    start = captured_loss(monkeypatch, X, Y, WEIGHT)["start"]
    monkeypatch.undo()
    monkeypatch.setattr(process, "cho_factor", singular)
    with pytest.warns(ConvergenceWarning, match="could not be tuned"):
        assert np.array_equal(process._tune(X, Y, WEIGHT, 60), start)


def test_tuning_that_ends_at_its_limit_is_no_warning():
    shortest, longest = (process._tune(X, Y, WEIGHT, max_iter) for max_iter in (1, 60))
    assert not np.array_equal(shortest, longest)


def test_tuning_finds_what_matters_and_how_noisy_it_is():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(150, 2))
    y = np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=150)
    log_params = process._tune(x, y, np.ones(150), 60)
    assert log_params[1] > log_params[0] + 1
    assert np.exp(log_params[-2]) == pytest.approx(0.1, rel=0.3)


@pytest.mark.parametrize("learner", [GaussianProcess(), GaussianProcess(n_tuning=100, n_inducing=80)])
def test_it_follows_a_smooth_function_much_better_than_a_line(learner):
    x, y, weight, fold = table(0, n=200, q=2, noise=0.02)
    x_new, y_new, _, _ = table(1, n=200, q=2, noise=0.0)
    inside = (np.abs(x_new) < 1.5).all(axis=1)
    model, left_out = cross_fit(learner, x, y, weight, fold)
    line, left_out_of_line = cross_fit(Polynomial(1), x, y, weight, fold)
    assert error(left_out, y) < 0.4 * error(left_out_of_line, y)
    assert error(model(x_new), y_new) < 0.4 * error(line(x_new), y_new)
    assert error(model(x_new[inside]), y_new[inside]) < 0.1


@pytest.mark.parametrize("n_inducing", [1, 255, 300])
def test_a_process_predicts_what_its_kernel_matrix_does(n_inducing):
    """The kernel adds up tiles of inducing rows; the plain twin has one matrix."""
    rng = np.random.default_rng(n_inducing)
    x, inducing, weights = rng.normal(size=(7, 3)), rng.normal(size=(n_inducing, 3)), rng.normal(size=n_inducing)
    mean = np.arange(7.0)
    add_process(x, np.ascontiguousarray(inducing.T), weights, mean)
    distance = np.sqrt(5) * np.linalg.norm(x[:, None] - inducing, axis=2)
    expected = np.arange(7.0) + (1 + distance + distance**2 / 3) * np.exp(-distance) @ weights
    np.testing.assert_allclose(mean, expected, rtol=1e-12, atol=1e-12)


# Boosted trees


def walk(tree, codes, row):
    """The leaf of a row, by a walk from the root; nodes are numbered level by level."""
    column, cut, missing_left, leaf = tree
    node = 0
    while node < len(column):
        code = codes[column[node], row]
        left = True if column[node] < 0 else bool(missing_left[node]) if code == 0 else code <= cut[node]
        node = 2 * node + (1 if left else 2)
    return leaf[node - len(column)]


@pytest.mark.parametrize(
    ("depth", "n_outputs", "n"), [(1, 1, 40), (3, 1, 40), (4, 3, 40), (4, 1, 3), (7, 2, 40), (9, 1, 40), (2, 1, 530)]
)
def test_added_trees_are_those_of_a_plain_walk(depth, n_outputs, n):
    """Few rows and deep levels go row by row, more rows many at a time, in tiles."""
    rng = np.random.default_rng(depth)
    codes = rng.integers(0, 8, (3, n)).astype(np.uint8)
    inner = (6, 2**depth - 1)
    column, cut, missing_left = rng.integers(-1, 3, inner), rng.integers(1, 8, inner), rng.integers(0, 2, inner)
    leaf = rng.normal(size=(6, 2**depth, n_outputs))
    start = rng.normal(size=(n, n_outputs))
    scores = start.copy()
    add_trees(codes, *packed_nodes(column, cut, missing_left), leaf, 0.3, scores)
    trees = list(zip(column, cut, missing_left, leaf, strict=True))
    expected = [start[i] + 0.3 * np.sum([walk(tree, codes, i) for tree in trees], axis=0) for i in range(n)]
    np.testing.assert_allclose(scores, expected, rtol=1e-12)


@pytest.mark.filterwarnings("ignore:overflow encountered in scalar:RuntimeWarning")  # of kernels that are not compiled
@pytest.mark.parametrize(("depth", "n_outputs", "n_varying"), [(1, 1, 1), (3, 1, 1), (3, 10, 3), (5, 2, 1), (6, 2, 1)])
def test_points_of_one_row_share_their_way_through_trees(depth, n_outputs, n_varying):
    """Rows of x, each with 70 points that ascend in the last columns; some values are missing."""
    rng = np.random.default_rng(depth + n_outputs)
    n, m, n_trees = 11, 70, 60
    codes = np.repeat(rng.integers(0, 40, (6 + n_varying, n)), m, axis=1).astype(np.uint8)
    codes[6:] = np.sort(rng.integers(1, 41, (n_varying, n, m)), axis=2).reshape(n_varying, -1)
    inner = (n_trees, 2**depth - 1)
    column, cut = rng.integers(-1, 6 + n_varying, inner), rng.integers(1, 40, inner)
    nodes = packed_nodes(column, cut, rng.integers(0, 2, inner))
    leaf = rng.normal(size=(n_trees, 2**depth, n_outputs))
    start = rng.normal(size=(n * m, n_outputs))
    work = np.empty(n * m, np.uint8), np.empty(n * m, np.uint8)
    if depth < 6:
        assert _changes_rarely(codes, 0, depth, *nodes, *work)
        assert depth == 1 or not _changes_rarely(codes[:, rng.permutation(n * m)], 0, depth, *nodes, *work)
    found, alone = start.copy(), start.copy()
    add_trees(codes, *nodes, leaf, 0.3, found)
    for i in range(n * m):
        add_trees(codes[:, i : i + 1].copy(), *nodes, leaf, 0.3, alone[i : i + 1])
    np.testing.assert_allclose(found, alone, rtol=0, atol=1e-12)


def test_no_trees_add_nothing():
    codes, scores = np.zeros((2, 100), np.uint8), np.zeros((100, 1))
    nodes = packed_nodes(*np.zeros((3, 0, 7), np.int64))
    add_trees(codes, *nodes, np.zeros((0, 8, 1)), 0.3, scores)
    assert not scores.any()


def models_of_folds(scores, x, rate):
    """Predictions (folds, n, K) by the trees of each fold alone."""
    codes = scores.bins.codes(x)
    trees = list(zip(scores.column, scores.cut, scores.missing_left, scores.leaf, strict=True))
    assert len(trees) % N_FOLDS == 0
    return np.array(
        [
            [scores.start + rate * np.sum([walk(tree, codes, i) for tree in own], axis=0) for i in range(len(x))]
            for own in (trees[f::N_FOLDS] for f in range(N_FOLDS))
        ]
    )


def test_left_out_rows_get_their_folds_model_and_new_rows_the_mean_of_all():
    model, left_out = cross_fit(LEARNERS["trees"])
    each = models_of_folds(model.scores, X, 0.2)[..., 0]
    np.testing.assert_allclose(left_out, each[FOLD, np.arange(N)], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(model(X), each.mean(axis=0), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(model(X_NEW), models_of_folds(model.scores, X_NEW, 0.2)[..., 0].mean(axis=0), rtol=1e-9)
    assert np.ptp(each, axis=0).min() > 0


def squared_error(y):
    def loss(scores, rows):
        residual = scores - y[rows, None]
        return residual[:, 0] ** 2 / 2, residual, np.ones_like(residual)

    return loss


@pytest.mark.parametrize("noise", [0.1, 3.0])
def test_no_other_number_of_rounds_is_better_for_left_out_rows(noise):
    x, y, weight, fold = table(4, noise=noise)

    def run(max_rounds):
        settings = BoostingSettings(3, 0.3, max_rounds)
        scores, left_out = boost_scores(
            squared_error(y), x, weight, np.zeros(1), fold, settings, np.random.default_rng(0)
        )
        return len(scores.leaf) // N_FOLDS, weight @ (left_out[:, 0] - y) ** 2

    losses = [weight @ y**2] + [run(k)[1] for k in range(1, 31)]
    rounds, loss = run(30)
    assert loss == min(losses)
    assert rounds == int(np.argmin(losses))
    assert (np.diff(losses) <= 0).all()  # stopping later never keeps a worse one


def test_pure_noise_grows_few_trees_or_none():
    rng = np.random.default_rng(0)
    y = rng.normal(size=N)
    model, left_out = cross_fit(BoostedMean(3, rate=0.3), y=y)
    assert error(left_out, y) <= error(0.0, y) + 1e-12
    assert len(model.scores.leaf) <= 5 * N_FOLDS


def count_rounds(monkeypatch, **settings):
    grown = []
    grow = boosting._grow

    def counted(*args):
        grown.append(1)
        return grow(*args)

    monkeypatch.setattr(boosting, "_grow", counted)
    _, left_out = cross_fit(BoostedMean(2, rate=0.5, max_rounds=30), **settings)
    return len(grown) / N_FOLDS, left_out


def test_it_gives_up_when_it_is_far_behind(monkeypatch):
    line = X[:, 0] + 0.5 * X[:, 1]  # trees go on learning a line for long
    whole, left_out = count_rounds(monkeypatch, y=line)
    assert whole == 30
    reached = error(left_out, line)
    assert count_rounds(monkeypatch, y=line, best=reached / 10)[0] == 20  # ten rounds of full rate
    assert count_rounds(monkeypatch, y=line, best=reached)[0] == 30


def test_missing_values_go_the_way_they_learnt():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(N, 2))
    missing = np.arange(N) % 3 == 0
    y = np.where(missing, 3.0, np.sign(x[:, 0]))
    x[missing, 0] = np.nan
    model, left_out = cross_fit(BoostedMean(3, rate=0.3, max_rounds=60), x, y)
    assert np.isfinite(left_out).all()
    at = np.array([[np.nan, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    np.testing.assert_allclose(model(at), [3.0, 1.0, -1.0], atol=0.3)
    nothing_known = np.full((1, 2), np.nan)
    assert np.isfinite(model(nothing_known)).all()


def test_rows_of_new_missing_values_are_finite():
    model, _ = cross_fit(LEARNERS["trees"])
    assert np.isfinite(model(np.full((2, Q), np.nan))).all()


def test_trees_are_not_tried_again_when_a_smooth_learner_beat_them():
    trees = BoostedMean(5)
    assert trees.is_worth_trying({"polynomial": 0.1})
    assert trees.is_worth_trying({"process": 0.1})
    assert trees.is_worth_trying({"process": 0.5, "trees": 0.5})
    assert not trees.is_worth_trying({"process": 0.5, "trees": 0.7})


# Networks


def loss_of_network(layers, x, y, weight):
    """Half the weighted mean squared error of every fold's network."""
    active = x
    for matrix, bias in layers[:-1]:
        z = np.einsum("fbi,fio->fbo", active, matrix) + bias
        active = z * special.expit(z)
    output = np.einsum("fbi,fio->fbo", active, layers[-1][0]) + layers[-1][1]
    return (weight * (output[..., 0] - y) ** 2).mean(axis=1) / 2


def test_the_gradient_of_the_network_is_right():
    rng = np.random.default_rng(0)
    sizes = [(3, 5), (5, 4), (4, 1)]
    layers = [(rng.normal(size=(2, a, b)), rng.normal(size=(2, 1, b))) for a, b in sizes]
    x, y, weight = rng.normal(size=(2, 7, 3)), rng.normal(size=(2, 7)), rng.uniform(0.5, 2, (2, 7))
    slope = lambda output: (output - y[..., None]) * weight[..., None]  # noqa: E731
    gradients = network._gradients(layers, x, slope)
    for layer, gradient in zip(layers, gradients, strict=True):
        for part, slope in zip(layer, gradient, strict=True):
            assert slope.shape == part.shape
            for at in np.ndindex(part.shape):
                kept = part[at]
                ends = []
                for sign in (1, -1):
                    part[at] = kept + sign * 1e-5
                    ends.append(loss_of_network(layers, x, y, weight).sum())
                part[at] = kept
                assert slope[at] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5, abs=1e-7)


def test_new_rows_get_the_mean_of_the_networks_and_left_out_rows_their_own():
    model, left_out = cross_fit(LEARNERS["network"])
    each = model.outputs(X)[..., 0]
    assert each.shape == (N_FOLDS, N)
    assert np.array_equal(left_out, each[FOLD, np.arange(N)])
    np.testing.assert_allclose(model(X), each.mean(axis=0), rtol=1e-6)
    far = np.array([[100.0, 0.0, 0.0], [5.0, 0.0, 0.0]])
    assert model(far)[0] == model(far)[1]


def test_a_network_learns_a_sine_that_a_line_cannot():
    x, y, weight, fold = table(5, n=300, q=1, noise=0.1)
    y = np.sin(2 * x[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=300)
    learner = Network((16, 16), max_steps=600, batch=64)
    assert error(cross_fit(learner, x, y, weight, fold)[1], y) < 0.25
    assert error(cross_fit(Polynomial(1), x, y, weight, fold)[1], y) > 0.5


def test_a_network_is_tried_where_smooth_learners_beat_the_trees():
    assert Network().is_worth_trying({"process": 0.5, "trees": 0.7})
    assert not Network().is_worth_trying({"process": 0.5, "trees": 0.5})
    assert not Network().is_worth_trying({"process": 0.7, "trees": 0.5})
    assert not Network().is_worth_trying({"trees": 0.5})


def test_covariates_of_no_relevance_hardly_enter_a_network():
    x, y, _, _ = table(5, n=200, q=3, noise=0.1)

    def slope(output, chosen):
        return (output - y[chosen][..., None]).astype(np.float32)

    relevance = np.array([[1.0, 1e-3, 1.0], [1e-3, 1.0, 1.0]])
    learner, rows = Network((8,), max_steps=100, batch=32), [np.arange(200), np.arange(150)]
    objective = network.Objective(np.zeros(1), slope)
    rng = np.random.default_rng(0)
    layers = learner.train(x.astype(np.float32), rows, objective, rng, relevance)
    size = np.abs(layers[0][0]).max(axis=2)
    assert (size[relevance < 1] < 0.01).all()
    assert (size[relevance == 1] > 0.1).all()


def test_the_rate_rises_and_falls_once():
    rates = np.array([network._one_cycle(t) for t in np.linspace(0, 1, 101)])
    top = int(rates.argmax())
    assert rates[top] == pytest.approx(1.0)
    assert top == 30
    assert (np.diff(rates[: top + 1]) > 0).all()
    assert (np.diff(rates[top:]) < 0).all()
    assert rates[-1] == pytest.approx(0.0, abs=1e-12)


# scikit-learn's regressors


# Neighbours


def test_neighbours_are_those_of_a_plain_search(monkeypatch):
    monkeypatch.setattr(neighbours, "_CLOSE", 0.0)
    model, left_out = cross_fit(Neighbours(k=4))

    def plain(at, rows):
        square = ((X[rows] - at) ** 2).sum(axis=1)
        nearest = np.argsort(square)[:4]
        return np.average(Y[rows][nearest], weights=WEIGHT[rows][nearest] / square[nearest])

    every = np.arange(N)
    np.testing.assert_allclose(model(X_NEW), [plain(at, every) for at in X_NEW])
    np.testing.assert_allclose(left_out, [plain(X[i], every[FOLD[i] != FOLD]) for i in every])


def test_neighbours_almost_nearest_serve_as_well():
    _, left_out = cross_fit(Neighbours())
    assert error(left_out, Y) < 0.9 * Y.std()


def test_a_row_at_the_same_place_says_all():
    model, _ = cross_fit(Neighbours())
    np.testing.assert_allclose(model(X), Y, atol=1e-6)


def test_few_rows_are_remembered_and_none_of_no_weight():
    weight = np.where(np.arange(N) % 2, 1.0, 0.0)
    model, left_out = cross_fit(Neighbours(n_kept=20), weight=weight)
    assert len(model.points) == 20
    assert (model.weight == 1).all()
    assert np.isfinite(left_out).all()
    one, _ = cross_fit(Neighbours(k=5, n_kept=1))
    np.testing.assert_allclose(one(X_NEW), one.values[0])


@pytest.mark.parametrize("regressor", [Ridge(0.1), SVR()])
def test_any_regressor_is_refitted_without_each_fold(regressor):
    model, left_out = cross_fit(AnyRegressor(regressor))
    new = []
    for f in range(N_FOLDS):
        here = f == FOLD
        twin = type(regressor)(**regressor.get_params()).fit(X[~here], Y[~here], sample_weight=WEIGHT[~here])
        np.testing.assert_allclose(left_out[here], twin.predict(X[here]), rtol=1e-10)
        new.append(twin.predict(X_NEW))
    np.testing.assert_allclose(model(X_NEW), np.mean(new, axis=0), rtol=1e-10)


def test_regressors_without_weights_or_with_flat_columns_are_served():
    class Column(LinearRegression):
        def predict(self, x):
            return super().predict(x)[:, None]

    for regressor in (KNeighborsRegressor(3), Column()):
        model, left_out = cross_fit(AnyRegressor(regressor))
        assert left_out.shape == model(X).shape == (N,)
        assert error(left_out, Y) < Y.std()


def test_a_regressor_without_a_seed_gets_one_and_others_keep_theirs():
    """As classifiers at the nodes and clusterers do."""
    free, own = DecisionTreeRegressor(splitter="random"), DecisionTreeRegressor(splitter="random", random_state=7)
    for regressor, is_free in ((free, True), (own, False)):
        seeds = {
            model.random_state for seed in (0, 1) for model in cross_fit(AnyRegressor(regressor), seed=seed)[0].models
        }
        assert len(seeds) > 1 if is_free else seeds == {7}
    assert free.random_state is None


def test_learners_are_taken_as_they_are_and_regressors_are_wrapped():
    learner = Polynomial(2)
    assert as_learner(learner) is learner
    wrapped = as_learner(Ridge())
    assert isinstance(wrapped, AnyRegressor)
    assert wrapped.name == "Ridge"
    assert wrapped.is_worth_trying({"process": 1e-9})


# What is offered


def names(n, q, effort="default"):
    return [learner.name for learner in default_learners(n, q, effort)]


def test_few_rows_get_smooth_learners_and_shallow_trees():
    expected = ["linear", "quadratic", "cubic", "Gaussian process", "trees of depth 3", "trees of depth 5"]
    assert names(200, 3) == names(200, 3, "best") == expected


def test_many_rows_get_deep_trees_and_networks():
    offered = names(5000, 3)
    assert offered[-3:] == ["trees of depth 8", "trees of depth 5", "network 64-64-64"]
    assert not any("network" in name for name in names(5000, 300))  # too few rows for so many covariates
    rates = [default_learners(n, 3, "default")[4].rate for n in (200, 5000, 50_000)]
    assert rates == sorted(set(rates))


@pytest.mark.parametrize("effort", ["fast", "default", "best"])
def test_many_rows_get_finer_bins(effort):
    bins = [
        {learner.n_bins for learner in default_learners(n, 3, effort) if isinstance(learner, BoostedMean)}
        for n in (2500, 2501)
    ]
    assert bins == [{96}, {254}]


def test_scales_are_boosted_faster_on_many_rows():
    assert [default_scales(n).rate for n in (2500, 2501, 20_000, 20_001)] == [0.05, 0.1, 0.1, 0.2]


@pytest.mark.parametrize("effort", ["fast", "default", "best"])
def test_very_many_rows_have_neighbours_unless_they_are_far_away(effort):
    assert names(5001, 20, effort)[-1] == "nearest neighbours"
    assert "nearest neighbours" not in names(5000, 3, effort) + names(50_000, 21, effort)


def test_many_covariates_get_neither_products_nor_a_process():
    assert names(200, 100)[:3] == ["lasso", "linear", "trees of depth 3"]
    for n, q in ((50, 8), (200, 20), (5000, 33), (5000, 64)):
        for learner in default_learners(n, q, "default"):
            if isinstance(learner, Polynomial) and learner.degree > 1:
                assert learner.n_features(q) <= min(600, 2 * n)
    assert "quadratic" in names(5000, 33)
    assert "quadratic" not in names(5000, 64)
    assert "Gaussian process" in names(5000, 64)
    assert "Gaussian process" not in names(5000, 65)


@pytest.mark.parametrize(("n", "depth"), [(200, 4), (5000, 6)])
def test_a_fast_fit_has_few_learners(n, depth):
    assert names(n, 3, "fast") == ["linear", "quadratic", "Gaussian process", f"trees of depth {depth}"]
    fast, default = (
        next(learner for learner in default_learners(n, 3, effort) if isinstance(learner, GaussianProcess))
        for effort in ("fast", "default")
    )
    assert (fast.n_tuning, fast.n_inducing, fast.max_iter) < (default.n_tuning, default.n_inducing, default.max_iter)
    assert fast.n_inducing < default.n_inducing


# What the docstrings show


@pytest.mark.parametrize("module", [boosting, neighbours, network, polynomial, process], ids=lambda m: m.__name__)
def test_examples_run(module):
    found = doctest.testmod(module)
    assert found.attempted > 3
    assert found.failed == 0


def test_learners_that_change_nothing_are_not_kept():
    """A learner without weight in the stack and without a component of its own: it may hold training rows."""

    @dataclass(frozen=True)
    class Known(AlwaysTried):
        name: str
        output: np.ndarray
        kind: str = "known"
        holds_rows: bool = False

        def cross_fit(self, x, y, weight, fold, rng, best=np.inf):
            return lambda x: np.full(len(x), float(len(self.name))), self.output

    rng = np.random.default_rng(0)
    y = rng.normal(size=100)
    errors = {name: rng.normal(size=100) / 10 for name in ("bb", "c", "ddd")}
    errors = {"aaaa": 5 * sum(errors.values()), **errors}
    learners = [Known(name, y + error) for name, error in errors.items()]
    rows = TrainingRows(np.zeros((100, 1)), y, np.ones(100), np.arange(100) % 5)
    mean, locations = Mean.cross_fit(learners, rows, 0.0, rng)
    assert mean.names == ("bb", "c", "ddd")
    assert mean.weights.sum() == pytest.approx(1.0)
    assert locations.shape == (100, 1)
    np.testing.assert_allclose(mean(np.zeros((1, 1))), [[mean.weights @ [2.0, 1.0, 3.0]]])


def test_components_are_those_of_the_same_learners_when_others_are_not_kept():
    mean = Mean(("a", "b", "c"), (max, min, sum), np.array([0.0, 0.0, 1.0]), np.array([1, 2]))._of_use()
    assert mean.names == ("b", "c")
    assert mean.predictors == (min, sum)
    assert mean.weights.tolist() == [0.0, 1.0]
    assert mean.components.tolist() == [0, 1]


def test_a_line_goes_on_beyond_the_rows_where_columns_go_along_with_each_other():
    rng = np.random.default_rng(7)
    x = rng.normal(size=(200, 1))
    x = np.column_stack([x, x + 0.05 * rng.normal(size=(200, 1))])
    y, fold = 20 * (x[:, 1] - x[:, 0]), np.arange(200) % 5
    predict, _ = Polynomial(1).cross_fit(x, y, np.ones(200), fold, rng)
    beyond = x.max() + 0.5
    assert predict(np.array([[beyond, beyond + 0.05]])) == pytest.approx(1.0, abs=0.1)
