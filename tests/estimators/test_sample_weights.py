"""Sample weights count rows: weight 2 equals the row twice, weight 0 the row left out."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from treecdf import MLP, BoostedTrees, Constant, Logistic, Stage, TreeFlowRegressor

RNG = np.random.default_rng(0)
N = 150
X = RNG.normal(size=(N, 2))
Y = np.sin(2 * X[:, 0]) + 0.3 * RNG.normal(size=N)
TIMES = RNG.integers(0, 4, N)
X_VAL = RNG.normal(size=(60, 2))
Y_VAL = np.sin(2 * X_VAL[:, 0]) + 0.3 * RNG.normal(size=60)
TIMES_VAL = RNG.integers(0, 3, 60)
X_TEST, Y_TEST = 2 * RNG.normal(size=(100, 2)), 2 * RNG.normal(size=100)

# L-BFGS on a network magnifies rounding, so it gets few iterations.
CLASSIFIERS = {
    "constant": Constant(),
    "logistic": Logistic(),
    "hinges": Logistic(basis="hinges"),
    "mlp": MLP((3,), max_iter=8),
    "trees": BoostedTrees(n_bins=16),
    "scikit-learn": LogisticRegression(tol=1e-10),
}


def fit_weighted_and_repeated(y, y_val, **settings):
    """One model from weights, one from rows repeated as many times."""
    model = {"base": "box", "max_trees": 5, "random_state": 0, **settings}
    weighted = TreeFlowRegressor(**model).fit(
        X, y, sample_weight=TIMES, X_val=X_VAL, y_val=y_val, sample_weight_val=TIMES_VAL
    )
    rows, rows_val = np.repeat(np.arange(N), TIMES), np.repeat(np.arange(60), TIMES_VAL)
    repeated = TreeFlowRegressor(**model).fit(X[rows], y[rows], X_val=X_VAL[rows_val], y_val=y_val[rows_val])
    return weighted, repeated


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_row_of_weight_two_equals_the_row_twice(name):
    weighted, repeated = fit_weighted_and_repeated(Y, Y_VAL, stages=[Stage(CLASSIFIERS[name], 3)])
    assert weighted.n_trees_ == repeated.n_trees_ > 0
    assert weighted.log_prob(X_TEST, Y_TEST) == pytest.approx(repeated.log_prob(X_TEST, Y_TEST), abs=1e-8)
    for key in weighted.history_:
        assert weighted.history_[key] == pytest.approx(repeated.history_[key], abs=1e-8)


@pytest.mark.parametrize("classifier", [Logistic(), DecisionTreeClassifier(max_depth=1, random_state=0)])
@pytest.mark.parametrize("times", [2, 5, 10])
def test_a_child_without_rows_is_empty_for_any_weights(times, classifier):
    """Sums of weights are rounded, sqrt(2)^2 is not 2: a child is empty if it has no rows, not if a sum says so."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(100, 1)), rng.uniform(size=100) ** 3
    model = TreeFlowRegressor(base="box", stages=[Stage(classifier, 4)], max_trees=5, validation_fraction=0)
    grid = np.linspace(-0.1, 1.1, 100)
    repeated = model.fit(np.repeat(x, times, 0), np.repeat(y, times)).log_prob(x, grid)
    weighted = model.fit(x, y, np.full(100, times)).log_prob(x, grid)
    assert weighted == pytest.approx(repeated, abs=1e-8)


@pytest.mark.parametrize("split_search", ["exhaustive", "middle"])
def test_weights_reach_the_other_searches(split_search):
    stages = [Stage(Logistic(tol=1e-8), 2)]
    weighted, repeated = fit_weighted_and_repeated(
        Y, Y_VAL, stages=stages, split_search=split_search, grid_size=5, max_trees=2
    )
    assert weighted.log_prob(X_TEST, Y_TEST) == pytest.approx(repeated.log_prob(X_TEST, Y_TEST), abs=1e-8)


def test_weights_of_two_outcomes():
    y, y_val = np.column_stack([Y, X[:, 1]]), np.column_stack([Y_VAL, X_VAL[:, 1]])
    weighted, repeated = fit_weighted_and_repeated(y, y_val, stages=[Stage(Logistic(), 3)])
    y_test = np.column_stack([Y_TEST, Y_TEST])
    assert weighted.log_prob(X_TEST, y_test) == pytest.approx(repeated.log_prob(X_TEST, y_test), abs=1e-8)


def test_weights_reach_support_and_standardisation():
    weighted, repeated = (model.mixture_.members[0] for model in fit_weighted_and_repeated(Y, Y_VAL, stages=[]))
    for name in ("low", "high", "low_tail", "high_tail"):
        assert getattr(weighted.base, name) == pytest.approx(getattr(repeated.base, name))
    for name in ("unit", "mean", "scale"):
        expected = getattr(repeated.standardize, name)
        assert getattr(weighted.standardize, name) == pytest.approx(expected, rel=1e-12)
    # and they matter: the mean is not that of the plain rows
    assert not np.allclose(weighted.standardize.mean, (X / np.abs(X).max(axis=0)).mean(axis=0), atol=1e-3)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_row_of_weight_zero_is_left_out(name):
    stages = [Stage(CLASSIFIERS[name], 3)]
    counted = np.random.default_rng(1).random(N) < 0.7
    x, y = X.copy(), Y.copy()
    x[~counted], y[~counted] = 1e6, -1e6
    settings = {"stages": stages, "max_trees": 4, "random_state": 0}
    weighted = TreeFlowRegressor(**settings).fit(x, y, counted.astype(float))  # also the random split
    without = TreeFlowRegressor(**settings).fit(X[counted], Y[counted])
    assert np.array_equal(weighted.log_prob(X_TEST, Y_TEST), without.log_prob(X_TEST, Y_TEST))


def test_weights_of_one_change_nothing():
    settings = {"max_trees": 3, "random_state": 0}
    plain = TreeFlowRegressor(**settings).fit(X, Y).log_prob(X_TEST, Y_TEST)
    for weight in (np.ones(N), np.ones(N, np.int64), [1.0] * N, 1.0):
        assert np.array_equal(TreeFlowRegressor(**settings).fit(X, Y, weight).log_prob(X_TEST, Y_TEST), plain)


def test_fractions_of_rows_are_weights_too():
    """Half the weight on each of two copies equals the row once."""
    settings = {"base": "box", "stages": [Stage(Logistic(), 3)], "max_trees": 4, "random_state": 0}
    halves = TreeFlowRegressor(**settings).fit(
        np.repeat(X, 2, 0), np.repeat(Y, 2), np.full(2 * N, 0.5), X_val=X_VAL, y_val=Y_VAL
    )
    plain = TreeFlowRegressor(**settings).fit(X, Y, X_val=X_VAL, y_val=Y_VAL)
    assert halves.log_prob(X_TEST, Y_TEST) == pytest.approx(plain.log_prob(X_TEST, Y_TEST), abs=1e-8)


def test_weights_too_small_to_be_counts_are_told():
    with pytest.warns(UserWarning, match="add up to 0.15 for 150 rows"):
        TreeFlowRegressor(max_trees=1, random_state=0).fit(X, Y, np.full(N, 1e-3))


def test_score_with_weights():
    model = TreeFlowRegressor(max_trees=3, random_state=0).fit(X, Y)
    repeated = model.log_prob(np.repeat(X, TIMES, 0), np.repeat(Y, TIMES))
    assert model.score(X, Y, TIMES) == pytest.approx(repeated.mean(), rel=1e-12)


def test_score_leaves_out_impossible_outcomes_of_weight_zero():
    model = TreeFlowRegressor(bounds=(-10, 10), max_trees=3, random_state=0).fit(X, Y)
    assert model.score(X[:2], [0.0, 11.0]) == -np.inf
    assert model.score(X[:2], [0.0, 11.0], [1, 0]) == pytest.approx(model.log_prob(X[:1], [0.0])[0], rel=1e-9)


def test_weights_of_mean_one_are_counts():
    weight = np.array([0.1, 0.2, 0.3, 1.4, 3.0 - 1e-14])
    assert weight.sum() < 5
    TreeFlowRegressor(max_trees=1, random_state=0).fit(X[:5], Y[:5], weight)


def test_weights_of_the_rows_besides_atoms_are_not_judged_again():
    weight = np.where(np.arange(12) < 8, 2.0, 0.5)
    y = np.where(np.arange(12) < 8, 0.0, Y[:12])
    TreeFlowRegressor(max_trees=1, atoms=[0.0], random_state=0).fit(X[:12], y, weight)
