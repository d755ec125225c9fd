"""The lasso, and the columns that learners of wide tables look at."""

import numpy as np
import pytest
from sklearn.linear_model import LassoCV

from treecdf.bases.learners import BoostedMean, Lasso
from treecdf.bases.learners.screening import most_correlated
from treecdf.training.defaults import MANY_COLUMNS, MOST_LINEAR, default_learners


def wide(n, q, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, q))
    return x, x[:, 0] - x[:, 1] + 0.5 * x[:, 2] + 0.5 * rng.normal(size=n)


def cross_fit(x, y, weight=None, learner=None):
    fold = np.arange(len(y)) % 5
    weight = np.ones(len(y)) if weight is None else weight
    return (learner or Lasso()).cross_fit(x, y, weight, fold, np.random.default_rng(0))


@pytest.mark.parametrize(("n", "q"), [(300, 200), (200, 500)])
def test_not_behind_the_lasso_of_scikit_learn(n, q):
    x, y = wide(n, q)
    x_new, y_new = wide(4000, q, seed=1)
    predict, _ = cross_fit(x, y)
    other = LassoCV(cv=5).fit(x, y).predict(x_new)
    assert np.mean((predict(x_new) - y_new) ** 2) < np.mean((other - y_new) ** 2)


def test_left_out_rows_are_predicted_without_their_fold():
    """Outcomes that are noise are not foreseen, although 300 columns could explain them all."""
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(100, 300)), rng.normal(size=100)
    _, left_out = cross_fit(x, y)
    assert np.mean((left_out - y) ** 2) > 0.95 * np.var(y)


def test_a_row_of_weight_2_is_the_row_twice():
    x, y = wide(60, 30)
    fold, weight = np.arange(60) % 5, np.where(np.arange(60) < 20, 2.0, 1.0)
    rows = np.repeat(np.arange(60), weight.astype(int))
    once, _ = Lasso().cross_fit(x, y, weight, fold, np.random.default_rng(0))
    twice, _ = Lasso().cross_fit(x[rows], y[rows], np.ones(len(rows)), fold[rows], np.random.default_rng(0))
    assert once.coefficients == pytest.approx(twice.coefficients, abs=1e-4)


def test_a_constant_outcome_has_no_slopes():
    x, _ = wide(50, 30)
    predict, left_out = cross_fit(x, np.full(50, 3.0))
    assert left_out == pytest.approx(np.full(50, 3.0))
    assert not predict.coefficients.any()


def test_screened_columns_are_those_of_the_largest_correlation():
    x, y = wide(500, 40)
    assert most_correlated(x, y, np.ones(500), 3).tolist() == [0, 1, 2]
    assert most_correlated(1e3 * x, y, np.ones(500), 40).tolist() == list(range(40))
    x[:, 5] = 7.0
    assert 5 not in most_correlated(x, y, np.ones(500), 39)


def test_trees_of_a_wide_table_do_not_see_left_out_rows_when_columns_are_chosen():
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(80, 2000)), rng.normal(size=80)
    _, left_out = cross_fit(x, y, learner=BoostedMean(2, rate=0.2, max_rounds=30))
    assert np.mean((left_out - y) ** 2) > 0.95 * np.var(y)


def test_wide_tables_get_a_lasso_and_no_cubic_costs():
    assert not any(learner.name == "lasso" for learner in default_learners(300, MANY_COLUMNS - 1, "default"))
    names = [learner.name for learner in default_learners(5000, 3000, "fast")]
    assert names[0] == "lasso"
    assert "linear" not in names
    assert "linear" in [learner.name for learner in default_learners(MOST_LINEAR, 3000, "default")]
