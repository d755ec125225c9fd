"""Tables of many covariates: the search and the importances are linear in their number, and find those that matter."""

import numpy as np
import pytest

from treecdf import Logistic, Stage, TreeFlowRegressor, load_model
from treecdf._kernels.rows import screening_sums, search_sums
from treecdf.data.basis import Basis
from treecdf.flows.mixture import Mixture
from treecdf.training.growing import screening
from treecdf.training.growing.screening import SCREENED_FEATURES, UNSCREENED_FEATURES, screen
from treecdf.training.growing.splitting import Candidates
from treecdf.training.sources.rows import Rows

FRACTIONS = np.arange(1, 10) / 10


def wide(n, q, seed=0):
    """Covariates (n, q) of which the first and the last matter, and outcomes (n,)."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, q))
    return x, 2 * x[:, 0] - 2 * x[:, -1] + 0.5 * rng.normal(size=n)


def level_of(x, y):
    """Rows in the root of a tree, and its candidate cuts (1, 1, s)."""
    u = (np.argsort(np.argsort(y)) + 0.5)[:, None] / len(y)
    rows = Rows(x, u, np.ones(len(y)))
    rows.begin_tree(1.0, np.random.default_rng(0))
    return rows, np.ascontiguousarray(FRACTIONS[None, None, :])


def test_screening_keeps_the_features_that_matter_in_order():
    rows, cuts = level_of(*wide(100, 300))
    kept = screen(rows, cuts, Basis.linear(300))
    assert len(kept) == SCREENED_FEATURES
    assert kept[0] == 0
    assert kept[-1] == 299
    assert (np.diff(kept) > 0).all()


def test_narrow_tables_are_not_screened():
    rows, cuts = level_of(*wide(100, UNSCREENED_FEATURES))
    assert screen(rows, cuts, Basis.linear(UNSCREENED_FEATURES)) is None


def test_screening_does_not_depend_on_the_size_of_its_passes(monkeypatch):
    rows, cuts = level_of(*wide(100, 300))
    kept = screen(rows, cuts, Basis.linear(300))
    monkeypatch.setattr(screening, "_MOST_SUMS", 10 * 70)
    assert np.array_equal(screen(rows, cuts, Basis.linear(300)), kept)


def test_sums_for_screening_are_those_of_the_search():
    rows, cuts = level_of(*wide(90, 7))
    basis = Basis.hinges(7)
    p, s = len(basis), cuts.shape[2]
    args = (*basis.arrays, cuts)
    count, total, square = rows.sum(screening_sums, "level", args, [(1, 1, s + 1), (1, 1, s + 1, p), (1, p)])
    shapes = [(1, 1, s + 1), (1, 1, s + 1, p), (1, p + 1, p + 1)]
    expected_count, expected_total, moment = rows.sum(search_sums, "level", args, shapes)
    np.testing.assert_allclose(count, expected_count)
    np.testing.assert_allclose(total, expected_total, atol=1e-12)
    np.testing.assert_allclose(square[0], np.diag(moment[0])[:-1])


def test_the_score_test_of_a_wide_level_has_a_bounded_matrix():
    rows, _ = level_of(*wide(100, 1000))
    found = Candidates.collect(rows, np.zeros((1, 1)), np.ones((1, 1)), FRACTIONS, 0.1, Basis.linear(1000))
    assert found.moments.rotation.shape == (1, SCREENED_FEATURES, SCREENED_FEATURES)
    assert found.gradient.shape[-1] == len(found.features) == SCREENED_FEATURES


def test_logistic_nodes_of_a_wide_table_are_those_of_the_screened_columns():
    x, y = wide(100, 300)
    model = TreeFlowRegressor(base="box", stages=[Stage(Logistic(), 1)], max_trees=1, random_state=0)
    own = {"X_val": x[:10], "y_val": y[:10]}
    theta = model.fit(x, y, **own).mixture_.tree_flows()[0].stages[0].theta
    assert theta.shape == (1, 301)
    kept = np.flatnonzero(theta[0, 1:])
    assert len(kept) == SCREENED_FEATURES
    assert {0, 299} <= set(kept)
    own = {"X_val": x[:10, kept], "y_val": y[:10]}
    alone = model.fit(x[:, kept], y, **own).mixture_.tree_flows()[0].stages[0].theta
    np.testing.assert_allclose(theta[:, np.r_[0, 1 + kept]], alone, rtol=1e-9)


def test_importances_of_a_wide_table_find_the_covariates_that_matter(monkeypatch):
    x, y = wide(150, 600)
    calls, log_prob = [], Mixture.log_prob
    monkeypatch.setattr(Mixture, "log_prob", lambda self, *args: calls.append(1) or log_prob(self, *args))
    fitted = TreeFlowRegressor(effort="fast", max_trees=2, random_state=0).fit(x, y)
    assert len(calls) <= 201  # not one for each covariate
    assert set(np.argsort(fitted.feature_importances_)[-2:]) == {0, 599}
    assert fitted.feature_importances_.sum() == pytest.approx(1.0)
    assert "wide table: of 600 features" in fitted.summary()


@pytest.mark.filterwarnings("ignore:Column 0 has missing values or levels")
def test_a_category_of_many_levels_is_learnt_and_survives_a_file(tmp_path):
    rng = np.random.default_rng(0)
    code, effect = rng.integers(0, 5000, 10_000), rng.normal(size=5000)
    x = np.empty((10_000, 3), object)
    x[:, 0] = [f"level {k}" for k in code]
    x[:, 1:] = rng.normal(size=(10_000, 2))
    y = 3 * effect[code] + 0.5 * rng.normal(size=10_000)
    fitted = TreeFlowRegressor(effort="fast", max_trees=2, categorical_features=[0], random_state=0).fit(x, y)
    path = tmp_path / "model.treecdf"
    fitted.save(path)
    unknown = x[:50].copy()
    unknown[:, 0] = "a level that was never seen"
    assert np.array_equal(load_model(path).log_prob(x[:50], y[:50]), fitted.log_prob(x[:50], y[:50]))
    assert fitted.log_prob(x[:1000], y[:1000]).mean() > -2.4  # without the category it were about -2.53
    assert np.isfinite(fitted.log_prob(unknown, y[:50])).all()


@pytest.mark.parametrize(("search", "is_noted"), [("score", True), ("middle", False)])
def test_the_note_goes_by_what_is_searched(search, is_noted):
    x, y = wide(60, 100)
    stages = [Stage(Logistic(basis="cubic"), 1)]  # 300 features
    model = TreeFlowRegressor(base="box", stages=stages, split_search=search, max_trees=1, random_state=0)
    assert ("wide table: of 300 features" in model.fit(x, y).summary()) is is_noted
