"""Models made smaller: what is left out is told, tolerated, and nothing else is lost."""

import numpy as np
import pytest

from tests.helpers.small_tables import small_model, small_rows
from treecdf import TreeFlowRegressor, load_model
from treecdf.flows.compacting import restrict

N = 240


def rows(d=1):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 2))
    y = np.column_stack([x[:, 0] + rng.normal(size=N), -x[:, 1] + rng.gamma(2, size=N)])
    return (x, y[:, 0]) if d == 1 else (x, y)


@pytest.fixture(scope="module", params=[1, 2], ids=["one outcome", "two outcomes"])
def fitted(request):
    x, y = rows(request.param)
    model = TreeFlowRegressor(effort="fast", max_trees=8, random_state=0, n_jobs=1).fit(x[:160], y[:160])
    return model, x[160:], y[160:]


@pytest.mark.parametrize("tolerance", [0.0, 0.002, 0.05, 100.0])
def test_log_densities_change_by_no_more_than_is_tolerated(fitted, tolerance):
    model, x, y = fitted
    small = model.compact(x, y, tolerance)
    change = np.abs(small.log_prob(x, y) - model.log_prob(x, y)).mean()
    assert change <= tolerance + 1e-9
    assert small.n_trees_ <= model.n_trees_
    assert np.isclose(small.family_weights_.sum(), 1)
    assert f"compacted with the tolerance {tolerance:g}" in small.summary()
    assert "compacted" not in model.summary()


def test_more_tolerance_is_a_smaller_file_with_the_same_answers(fitted, tmp_path):
    model, x, y = fitted
    small = model.compact(x, y, 0.3)
    for name, each in (("large", model), ("small", small)):
        each.save(tmp_path / name)
    assert (tmp_path / "small").stat().st_size < (tmp_path / "large").stat().st_size
    again = load_model(tmp_path / "small")
    np.testing.assert_array_equal(again.log_prob(x, y), small.log_prob(x, y))
    assert again.summary() == small.summary()


def test_everything_goes_if_everything_is_tolerated(fitted):
    model, x, y = fitted
    small = model.compact(x, y, 100.0)
    assert len(small.mixture_.members) == len(small.families_) == 1
    assert small.n_trees_ == 0


def test_what_is_left_is_exact():
    x, y = rows()
    model = TreeFlowRegressor(effort="fast", max_trees=8, random_state=0, n_jobs=1).fit(x[:160], y[:160])
    small = model.compact(x[160:], y[160:], 0.02)
    d = small.predict_distribution(x[:5])
    levels = np.array([0.01, 0.3, 0.9])
    np.testing.assert_allclose(d.cdf(d.icdf(levels)), np.tile(levels, (5, 1)), atol=1e-9)
    grid = np.linspace(-60, 60, 200_001)
    assert abs(np.trapezoid(d[0].pdf(grid, grid=True)[0], grid) - 1) < 5e-3


def test_the_model_itself_stays(fitted):
    model, x, y = fitted
    before = model.log_prob(x, y)
    members = model.mixture_.members
    model.compact(x, y, 100.0)
    assert model.mixture_.members is members
    np.testing.assert_array_equal(model.log_prob(x, y), before)


def test_frames_and_atoms():
    table = small_rows()
    table["y"] = np.maximum(table["y"], 0)
    x = table[["size", "zone", "code"]]
    model = TreeFlowRegressor(effort="fast", max_trees=5, atoms=[0.0], random_state=0).fit(x, table["y"])
    small = model.compact(x, table["y"], 0.01)
    count = int((table["y"] != 0).sum())
    assert f"log densities of {count} rows" in small.summary()
    with pytest.raises(ValueError, match="All outcomes are atoms"):
        model.compact(x, np.zeros(len(x)))


@pytest.mark.parametrize("tolerance", [-1, np.nan, np.inf, "much", None])
def test_bad_tolerances_are_refused(tolerance):
    model = small_model()
    table = small_rows(5)
    with pytest.raises((TypeError, ValueError), match="tolerance"):
        model.compact(table[["size", "zone", "code"]], table["y"], tolerance)


def test_weights_of_groups_sum_to_one_again():
    log_weights = np.log([[0.2, 0.3, 0.5], [0.1, 0.3, 0.6]])
    left = np.exp(restrict(log_weights, [(0, 2)]))
    np.testing.assert_allclose(left, [[1.0], [1.0]])
    np.testing.assert_allclose(np.exp(restrict(log_weights, [(1,), (2,)])), [[3 / 8, 5 / 8], [1 / 3, 2 / 3]])
