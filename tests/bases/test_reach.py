"""Beyond the training rows, and without some of the covariates, distributions are wider."""

import warnings

import numpy as np
import pandas as pd
import pytest

from benchmarks.honest.measures import width
from benchmarks.honest.outside import DISTANCES, INSIDE, OUTSIDE
from treecdf import TreeFlowRegressor
from treecdf.bases.reach import Reach, widened
from treecdf.bases.versions import averaged

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
    versions, caution, has_level = reach(x).filled(np.array([[0.5, np.nan, 0.2]]))
    assert (versions[0, :, [0, 2]] == [[0.5], [0.2]]).all()
    assert np.abs(versions[0, :, 1] - 0.5).max() < 0.3
    assert len(np.unique(versions[0, :, 1])) > 5
    assert caution[0] < 1.2
    assert not has_level[0]


def test_missing_values_follow_a_line_through_the_known_ones():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(400, 4))
    x[:, 0] = x[:, 1] + x[:, 2] - x[:, 3] + 0.1 * rng.normal(size=400)
    asked = rng.normal(size=(50, 4))
    asked[:, 0] = np.nan
    versions = reach(x).filled(asked)[0]
    expected = asked[:, 1] + asked[:, 2] - asked[:, 3]
    assert np.sqrt(np.mean((versions[..., 0] - expected[:, None]) ** 2)) < 0.2


def test_columns_of_few_values_keep_their_values():
    rng = np.random.default_rng(3)
    level = rng.integers(0, 3, 400).astype(float)
    x = np.column_stack([level, level + 0.1 * rng.normal(size=400)])
    versions = reach(x).filled(np.array([[np.nan, 0.5]]))[0]
    assert set(versions[0, :, 0]) <= {0.0, 1.0, 2.0}


def test_the_fewer_levels_a_category_has_the_less_is_known_of_a_new_one():
    rng = np.random.default_rng(3)
    found = {}
    for n_levels in (3, 5, 10, 20):
        indicators = np.eye(n_levels)[rng.integers(0, n_levels, 400)]
        asked = np.append(np.full(n_levels, np.nan), 0.0)[None]
        _, (found[n_levels],), (is_level,) = reach(np.column_stack([indicators, X[:, 0]])).filled(asked)
        assert is_level
    assert found[3] > found[5] > found[10] > found[20] == 1.5
    assert found[5] == pytest.approx(3.0, rel=0.01)  # the variance of a t with four degrees of freedom, times 6 / 4


def test_numbers_of_two_values_are_no_levels():
    x = np.column_stack([X > 0, X[:, 0]]).astype(float)
    _, caution, has_level = reach(x).filled(np.array([[np.nan, np.nan, np.nan, 0.5]]))
    assert caution[0] < 1.2
    assert not has_level[0]


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


def test_beyond_the_rows_a_line_is_trusted_longer():
    parameters = np.column_stack([np.full(3, 2.0), np.full(3, -3.0), np.zeros(3)])
    excess = np.array([0.0, 0.2, 50.0])
    line, curve = (widened(parameters, excess, -3.0, 0.0, 0.0, is_line)[:, 1] for is_line in (True, False))
    assert line[1] < curve[1] - 1
    assert line[[0, 2]] == pytest.approx(curve[[0, 2]])


def test_levels_are_put_together_by_their_moments():
    # Two versions of one component, and the broad one.
    versions = np.array(
        [[[1.0, 0.0, 0.0, 1.0, np.log(0.25), np.log(0.5)], [3.0, 0.0, 0.0, 1.0, np.log(0.75), np.log(0.5)]]]
    )
    found = averaged(versions, np.array([1.5]), np.array([True]), 1.0)
    location, log_scale, log_weight = np.split(found[0], 3)
    assert location == pytest.approx([2, 2, 0])
    assert np.exp(2 * log_scale[:2]) == pytest.approx(1 + 1.5)
    assert np.exp(log_weight) == pytest.approx([0.25, 0.25, 0.5])


def test_versions_without_a_new_level_stay_apart():
    versions = np.array(
        [[[3.0, 0.0, -1.0, 1.0, np.log(0.5), np.log(0.5)], [1.0, 0.0, 0.0, 1.0, np.log(0.5), np.log(0.5)]]]
    )
    found = averaged(versions, np.ones(1), np.array([False]), 1.0)
    assert found[0] == pytest.approx([1, 3, 0, 0, -1, 1, np.log(0.25), np.log(0.25), np.log(0.5)])


@pytest.mark.parametrize("name", list(OUTSIDE))
def test_intervals_outside_are_not_narrower_than_inside(name):
    asked, rng = OUTSIDE[name], np.random.default_rng(5)
    model = fast().fit(*asked.truth.rows(N, rng))
    edges = asked.lines(rng)
    inside = np.max([width(model.predict_distribution(k * edges)) for k in INSIDE], axis=0)
    for distance in (*DISTANCES, 100.0):
        assert (width(model.predict_distribution(distance * edges)) > 0.995 * inside).all()


def test_the_default_widens_too():
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


@pytest.mark.parametrize("is_binary", [True, False])
def test_a_missing_value_that_decides_between_two_modes_gives_both(is_binary):
    rng = np.random.default_rng(6)

    def rows(n):
        x = rng.normal(size=(n, 3))
        y = 2 * np.sign(x[:, 0]) + x[:, 1] + 0.4 * rng.normal(size=n)
        return np.column_stack([x[:, 0] > 0, x[:, 1:]]) if is_binary else x, y

    model = fast().fit(*rows(500))
    x, y = rows(2000)
    x[:, 0] = np.nan
    with pytest.warns(UserWarning, match="Column 0 has missing values"):
        distribution = model.predict_distribution(x)
    low, high = distribution.interval(0.5)
    assert 0.42 < np.mean((low < y) & (y < high)) < 0.58
    middle, mode = distribution.pdf(x[:, 1]), distribution.pdf(x[:, 1] + 2)
    assert np.mean(middle < 0.5 * mode) > 0.9


def test_new_levels_of_few_are_covered():
    covered = []
    for seed in range(4):
        rng = np.random.default_rng(seed)

        def rows(n, names, effects, rng=rng):
            level = rng.integers(len(names), size=n)
            frame = pd.DataFrame({"x": rng.normal(size=n), "level": np.array(names)[level]})
            return frame, frame["x"].to_numpy() + effects[level] + 0.5 * rng.normal(size=n)

        model = fast().fit(*rows(300, list("abcde"), rng.normal(size=5)))
        frame, y = rows(2000, [f"new {k}" for k in range(300)], rng.normal(size=300))
        with pytest.warns(UserWarning, match="Column level has missing values or levels"):
            low, high = model.predict_distribution(frame).interval(0.9)
        covered.append(np.mean((low < y) & (y < high)))
    assert np.mean(covered) > 0.88


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


def test_complete_rows_beside_one_with_a_missing_value_stay_as_they_are():
    model = fast().fit(X, Y)
    beside = X[:50].copy()
    beside[0, 0] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = model.log_prob(beside, Y[:50])
        quantiles = model.predict_distribution(beside).icdf([0.01, 0.5, 0.99])
    np.testing.assert_array_equal(found[1:], model.log_prob(X[1:50], Y[1:50]))
    expected = model.predict_distribution(X[1:50]).icdf([0.01, 0.5, 0.99])
    np.testing.assert_allclose(quantiles[1:], expected, rtol=0, atol=1e-12)
