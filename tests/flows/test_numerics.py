"""Numbers at the edge of float64, and changes of a table that must not change the model."""

import numpy as np
import pytest

from treecdf import BoostedTrees, Constant, Logistic, Stage, TreeFlowRegressor
from treecdf._common.numerics import weighted_moments

RNG = np.random.default_rng(3)
N = 250
X = RNG.normal(size=(N, 3))
Y = np.column_stack([np.sin(2 * X[:, 0]), X[:, 1]]) + np.exp(X[:, 2:] / 3) * RNG.normal(size=(N, 2)) / 2
TRAIN, STOP, TEST = slice(0, 150), slice(150, 200), slice(200, 250)
STAGES = [Stage(Constant(), 2), Stage(Logistic(), 4), Stage(Logistic(basis="hinges"), 2), Stage(BoostedTrees(), 3)]


def fit(x=X, y=Y, rows=TRAIN, **settings):
    """A model without any chance in it: rows of their own stop the trees, and every tree sees all rows."""
    settings = {"base": "box", "structure": "joint", "stages": STAGES, "max_trees": 6, "subsample": 1.0, **settings}
    model = TreeFlowRegressor(random_state=0, **settings)
    return model.fit(x[rows], y[rows], X_val=x[STOP], y_val=y[STOP])


# Log densities in log space


@pytest.mark.parametrize("base", ["box", "student"])
@pytest.mark.parametrize("power", [-900, 900])
def test_log_densities_beyond_the_range_of_densities(base, power):
    plain, scaled = fit(base=base), fit(y=Y * 2.0**power, base=base)
    expected = plain.log_prob(X[TEST], Y[TEST]) - 2 * power * np.log(2)
    assert np.abs(expected).min() > 1200
    np.testing.assert_allclose(scaled.log_prob(X[TEST], Y[TEST] * 2.0**power), expected, atol=1e-9)
    density = scaled.predict_distribution(X[TEST]).pdf(Y[TEST] * 2.0**power)
    assert (density == (0.0 if power > 0 else np.inf)).all()


def test_the_density_of_a_mixture_is_added_up_in_log_space():
    rotated = {"rotations": 2, "base": "student", "stages": STAGES[:2]}
    plain, scaled = fit(**rotated), fit(y=Y * 2.0**-900, **rotated)
    expected = plain.log_prob(X[TEST], Y[TEST]) + 1800 * np.log(2)
    np.testing.assert_allclose(scaled.log_prob(X[TEST], Y[TEST] * 2.0**-900), expected, atol=1e-9)


@pytest.mark.parametrize("basis", ["linear", "hinges", "cubic"])
@pytest.mark.parametrize("factor", [1.0, 1e12])
@pytest.mark.parametrize("C", [1.0, 1e8])
def test_separable_nodes_converge(basis, factor, C):
    """The covariate tells the sides of every cut without error."""
    x = factor * np.linspace(-1, 1, 120)[:, None]
    y = x[:, 0] / factor + np.where(x[:, 0] > 0, 3.0, 0.0)
    stages = [Stage(Logistic(C=C, basis=basis), 3)]
    model = TreeFlowRegressor(base="box", stages=stages, max_trees=10, c0=0.9, random_state=0).fit(x, y)
    for block in model.mixture_.members[0].stages:
        assert np.isfinite(block.theta).all()
    assert np.isfinite(model.log_prob(x, y)).all()
    assert model.score(x, y) > -np.log(np.ptp(y)) + 0.5


@pytest.mark.parametrize("classifier", [Logistic(), BoostedTrees(rounds=1, max_depth=2)])
def test_residuals_stay_in_the_cube_after_a_thousand_trees(classifier):
    rows = slice(0, 40)
    model = TreeFlowRegressor(
        base="box", stages=[Stage(classifier, 2)], max_trees=1000, c0=0.02, validation_fraction=0, random_state=0
    ).fit(X[rows], Y[rows])
    (flow,) = model.mixture_.members
    assert model.n_trees_ == 1000
    box = np.concatenate(
        [np.random.default_rng(0).random((40, 40, 2)), np.full((40, 1, 2), 5e-324), np.ones((40, 1, 2))], 1
    )
    z = flow.standardize(X[rows])
    (block,) = flow.stages
    for points in (box, flow.base.to_box(Y[rows][:, None])[0]):
        residual, log_det = block.forward_and_log_det(points, z)
        assert ((residual > 0) & (residual <= 1)).all()
        assert np.isfinite(log_det).all()
        back = block.inverse(residual, z)
        assert ((back > 0) & (back <= 1)).all()
    draws = model.sample(X[rows], 20, random_state=0)
    assert np.isfinite(model.predict_distribution(X[rows]).logpdf(draws)).all()


# Changes that are none


@pytest.mark.parametrize("settings", [{}, {"base": "student"}], ids=["box", "student"])
def test_a_million_times_the_data_is_the_same_model(settings):
    """Log densities within 1e-6."""
    expected = fit(**settings).log_prob(X[TEST], Y[TEST])
    found = fit(1e6 * X, 1e6 * Y, **settings).log_prob(1e6 * X[TEST], 1e6 * Y[TEST])
    np.testing.assert_allclose(found, expected - 2 * np.log(1e6), atol=1e-6)


def test_a_million_times_the_data_is_the_same_default_model():
    """Log densities within 1e-4: tuning a process magnifies rounding."""
    x, y = X[:100], Y[:100, 0]
    model = TreeFlowRegressor(max_trees=10, random_state=0)
    expected = model.fit(x, y).log_prob(X[TEST], Y[TEST, 0])
    found = model.fit(1e6 * x, 1e6 * y).log_prob(1e6 * X[TEST], 1e6 * Y[TEST, 0])
    np.testing.assert_allclose(found, expected - np.log(1e6), atol=1e-4)


@pytest.mark.parametrize("settings", [{}, {"base": "student"}, {"weights": "stacked", "rotations": 2, "regions": 1}])
def test_the_order_of_the_rows_does_not_matter(settings):
    """Log densities within 1e-9 where nothing is drawn by chance; folds and samples are drawn by row number."""
    expected = fit(**settings).log_prob(X[TEST], Y[TEST])
    found = fit(rows=np.random.default_rng(0).permutation(150), **settings)
    np.testing.assert_allclose(found.log_prob(X[TEST], Y[TEST]), expected, atol=1e-9)


@pytest.mark.parametrize("settings", [{}, {"base": "student"}, {"subsample": 0.5}], ids=str)
@pytest.mark.parametrize("stages", [STAGES[:1], STAGES[1:2], STAGES[2:3]], ids=["constant", "logistic", "hinges"])
def test_the_order_of_the_covariates_does_not_matter(settings, stages):
    """Log densities within 1e-9; boosted trees are left out: of equally good covariates they take the first."""
    order = [2, 0, 1]
    expected = fit(stages=stages, **settings).log_prob(X[TEST], Y[TEST])
    found = fit(X[:, order], stages=stages, **settings).log_prob(X[TEST][:, order], Y[TEST])
    np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize("settings", [{}, {"base": "student"}, {"rotations": 2, "base": "student"}], ids=str)
def test_the_order_of_the_outcomes_does_not_matter_in_joint_flows(settings):
    """Log densities within 1e-9; a quarter turn of the plane maps a set of rotations onto itself."""
    expected = fit(**settings).log_prob(X[TEST], Y[TEST])
    found = fit(y=Y[:, ::-1], **settings).log_prob(X[TEST], Y[TEST][:, ::-1])
    np.testing.assert_allclose(found, expected, atol=1e-9)


# Moments


@pytest.mark.parametrize("power", [-1000, 0, 1000])
def test_moments_are_those_of_repeated_rows_at_every_scale(power):
    times = RNG.integers(1, 4, N)
    repeated = np.repeat(Y, times, axis=0)
    found = weighted_moments(Y * 2.0**power, times.astype(float))
    assert found.mean * 2.0**-power == pytest.approx(repeated.mean(axis=0), rel=1e-12)
    assert found.std * 2.0**-power == pytest.approx(repeated.std(axis=0), rel=1e-12)
    assert found.middle * 2.0**-power == pytest.approx((Y.min(axis=0) + Y.max(axis=0)) / 2, rel=1e-12)
    assert weighted_moments(Y[:, 0], times.astype(float)).std == pytest.approx(found.std[0] * 2.0**-power, rel=1e-12)


def test_moments_of_a_range_that_overflows_and_of_a_constant():
    ends = np.array([-1.7e308, 1.7e308, 1.7e308, -1.7e308])
    found = weighted_moments(np.column_stack([ends, np.full(4, 3.0)]), np.ones(4))
    assert found.mean == pytest.approx([0.0, 3.0])
    assert found.std[0] == pytest.approx(1.7e308)
    assert found.std[1] == 0
