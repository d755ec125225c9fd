"""Beyond the training rows, and without some of the covariates, distributions are wider."""

import warnings

import numpy as np
import pandas as pd
import pytest

from benchmarks.honest.measures import width
from benchmarks.honest.outside import DISTANCES, INSIDE, OUTSIDE
from treecdf import TreeFlowRegressor
from treecdf.bases.reach import Reach, averaged, widened

RNG = np.random.default_rng(0)
N = 400
X = RNG.uniform(-1, 1, size=(N, 3))
Y = 2 * X[:, 0] + X[:, 1] + 0.3 * RNG.normal(size=N)


def fast(**settings):
    return TreeFlowRegressor(effort="fast", random_state=0, **settings)


def reach(x=X, response=lambda x: x[:, :2]):
    return Reach.fit(x, response, np.random.default_rng(0))


def test_training_rows_are_within_reach():
    assert reach().excess(X).max() < 0.1
    assert np.mean(reach().excess(X) > 0) < 0.05


def test_distance_is_in_units_of_half_the_extent():
    far = np.array([[3.0, 0, 0], [-2.0, 0, 0], [0, 1.5, 0]])
    assert reach().excess(far) == pytest.approx([2.0, 1.0, 0.5], rel=0.25)


def test_what_does_not_matter_does_not_count():
    assert reach().relevance[2] == 0
    assert reach().excess(np.array([[0.0, 0, 100]]))[0] == 0


def test_rows_off_the_manifold_are_outside():
    line = np.column_stack([X[:, 0], X[:, 0] + 0.02 * RNG.normal(size=N)])
    both = reach(line, lambda x: x)
    assert both.excess(np.array([[0.5, -0.5]]))[0] > 1
    assert both.excess(np.array([[0.5, 0.5]]))[0] == 0


def test_columns_that_always_agreed_are_outside_when_they_do_not():
    both = reach(np.column_stack([X, X[:, 0]]), lambda x: x[:, [0, 3]])
    agree, rounded, differ = [0.5, 0, 0, 0.5], [0.5, 0, 0, 0.5 + 1e-6], [0.5, 0, 0, -0.5]
    assert both.excess(np.array([agree, rounded, differ])) == pytest.approx([0, 0, 9], abs=3)
    assert not both.excess(np.array([agree, rounded])).any()


def test_new_rows_of_many_covariates_are_no_novelty_on_few_rows():
    rng = np.random.default_rng(1)
    many = reach(rng.normal(size=(60, 20)), lambda x: x)
    assert np.median(many.excess(rng.normal(size=(500, 20)))) < 0.07


def test_missing_values_come_from_rows_that_are_near_otherwise():
    x = np.column_stack([X[:, 0], X[:, 0], X[:, 1]])
    versions, caution = reach(x).filled(np.array([[0.5, np.nan, 0.2]]))
    assert (versions[0, :, [0, 2]] == [[0.5], [0.2]]).all()
    assert np.abs(versions[0, :, 1] - 0.5).max() < 0.3
    assert len(np.unique(versions[0, :, 1])) > 5
    assert caution[0] < 1.2


def test_missing_values_follow_a_line_through_the_known_ones():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(400, 4))
    x[:, 0] = x[:, 1] + x[:, 2] - x[:, 3] + 0.1 * rng.normal(size=400)
    asked = rng.normal(size=(50, 4))
    asked[:, 0] = np.nan
    versions, _ = reach(x).filled(asked)
    expected = asked[:, 1] + asked[:, 2] - asked[:, 3]
    assert np.sqrt(np.mean((versions[..., 0] - expected[:, None]) ** 2)) < 0.2


def test_columns_of_few_values_keep_their_values_and_ask_for_caution():
    rng = np.random.default_rng(3)
    level = rng.integers(0, 3, 400).astype(float)
    x = np.column_stack([level, level + 0.1 * rng.normal(size=400)])
    versions, caution = reach(x).filled(np.array([[np.nan, 0.5]]))
    assert set(versions[0, :, 0]) <= {0.0, 1.0, 2.0}
    assert caution[0] == 1.5


def test_nothing_changes_among_the_training_rows():
    parameters = RNG.normal(size=(5, 6))
    assert widened(parameters, np.zeros(5), 0.0, 0.0, 0.0) is parameters


def test_far_away_there_is_the_distribution_of_all_outcomes():
    parameters = np.column_stack([np.full(3, 2.0), np.full(3, -3.0), np.zeros(3)])
    location, log_scale, _ = widened(parameters, np.array([0.0, 0.5, 50.0]), -2.0, 0.0, 0.0).T
    assert location == pytest.approx([2.0, 1.4, 0.0], abs=0.1)
    assert log_scale[0] == -3
    assert log_scale[1] > -2
    assert np.exp(log_scale[2]) == pytest.approx(np.sqrt(1 + np.exp(-4)))


def test_versions_are_put_together_by_their_moments():
    versions = np.array([[[1.0, 0.0, np.log(0.25)], [3.0, 0.0, np.log(0.75)]]])
    location, log_scale, log_weight = averaged(versions, np.array([1.5]), 1.0)[0]
    assert location == 2
    assert np.exp(2 * log_scale) == pytest.approx(1 + 1.5)
    assert np.exp(log_weight) == pytest.approx(0.5)


@pytest.mark.parametrize("name", list(OUTSIDE))
def test_intervals_outside_are_not_narrower_than_inside(name):
    asked, rng = OUTSIDE[name], np.random.default_rng(5)
    model = fast().fit(*asked.truth.rows(N, rng))
    edges = asked.lines(rng)
    inside = np.max([width(model.predict_distribution(k * edges)) for k in INSIDE], axis=0)
    for distance in (*DISTANCES, 100.0):
        assert (width(model.predict_distribution(distance * edges)) > 0.995 * inside).all()


def test_the_default_with_families_of_box_flows_widens_too():
    model = TreeFlowRegressor(max_trees=20, random_state=0).fit(X, Y)
    inside, outside = model.predict_distribution([[0.9, 0.0, 0.0], [3.0, 0.0, 0.0]])[:2].std()
    assert outside > 2 * inside


def test_novelty_is_0_inside_and_grows_outside():
    novelty = fast().fit(X, Y).novelty(np.array([[0.0, 0, 0], [2.0, 0, 0], [4.0, 0, 0]]))
    assert novelty[0] == 0
    assert 0.5 < novelty[1] < novelty[2]
    assert len(fast().fit(X, np.column_stack([Y, -Y])).novelty(X[:4])) == 4
    with pytest.raises(ValueError, match="conditional base"):
        TreeFlowRegressor.paper(max_trees=1, random_state=0).fit(X, Y).novelty(X)


def test_new_gaps_are_covered_and_said():
    model = fast().fit(X, Y)
    x = RNG.uniform(-1, 1, size=(2000, 3))
    y = 2 * x[:, 0] + x[:, 1] + 0.3 * RNG.normal(size=2000)
    x[:, 0] = np.nan
    with pytest.warns(UserWarning, match="Column 0 has missing values in 2000 row"):
        low, high = model.predict_distribution(x).interval(0.9)
    assert np.mean((low < y) & (y < high)) > 0.85
    assert np.mean((low < y) & (y < high)) < 0.98


def test_new_levels_are_covered_and_said():
    rng = np.random.default_rng(4)

    def rows(n, names, effects):
        level = rng.integers(len(names), size=n)
        frame = pd.DataFrame({"x": rng.normal(size=n), "level": np.array(names)[level]})
        return frame, frame["x"].to_numpy() + effects[level] + 0.3 * rng.normal(size=n)

    model = fast().fit(*rows(800, [f"a{k}" for k in range(40)], rng.normal(size=40)))
    frame, y = rows(3000, [f"b{k}" for k in range(300)], rng.normal(size=300))
    with pytest.warns(UserWarning, match="Column level has missing values or levels"):
        low, high = model.predict_distribution(frame).interval(0.9)
    assert np.mean((low < y) & (y < high)) > 0.85


def test_rows_without_gaps_are_not_changed_by_those_with():
    model = fast().fit(X, Y)
    x = X[:6].copy()
    x[3, 1] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = model.log_prob(x, Y[:6])
    assert np.isfinite(found).all()
    kept = np.arange(6) != 3
    assert found[kept] == pytest.approx(model.log_prob(X[:6], Y[:6])[kept], rel=1e-12)
