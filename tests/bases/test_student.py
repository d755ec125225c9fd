"""The base that brings outcomes into the cube by the CDF of a Student t."""

import numpy as np
import pytest
from scipy.stats import kstest, norm
from scipy.stats import t as student_t

from treecdf import Logistic, Stage, TreeFlowRegressor
from treecdf.bases.student import NORMAL, Student

RNG = np.random.default_rng(0)
TURN = np.array([[0.8, 0.6], [-0.6, 0.8]])
Y = np.column_stack([student_t.rvs(4, 3, 2, size=4000, random_state=1), RNG.gamma(2.0, size=4000) * 1e-3])
X = np.column_stack([Y[:, 0] / 3 + RNG.normal(size=4000), RNG.normal(size=4000)])


def fit(y=Y[:300], x=X[:300], **settings):
    model = {"stages": [Stage(Logistic(), 4)], "max_trees": 10, "c0": 0.2, "base": "student", "random_state": 0}
    return TreeFlowRegressor(**{**model, **settings}).fit(x, y)


def test_it_finds_the_parameters_of_a_t():
    base = Student.fit(Y, np.ones(4000))
    assert base.location[0] == pytest.approx(3, abs=0.15)
    assert base.scale[0] == pytest.approx(2, rel=0.06)
    assert base.dof[0] in (3, 4, 5)
    gaussian = Student.fit(RNG.normal(5, 3, (4000, 1)), np.ones(4000))
    assert gaussian.dof[0] >= 15
    assert (gaussian.location[0], gaussian.scale[0]) == pytest.approx((5, 3), rel=0.05)


@pytest.mark.parametrize("matrix", [None, TURN], ids=["plain", "turned"])
def test_its_density_is_that_of_the_t_and_its_inverse_comes_back(matrix):
    base = Student.fit(Y, np.ones(4000), matrix)
    v, log_det = base.to_box(Y)
    turned, scale = (Y, 0.0) if matrix is None else (base.rotation.turn(Y), base.rotation.log_det)
    expected = student_t.logpdf(turned, base.dof, base.location, base.scale).sum(axis=1) + scale
    np.testing.assert_allclose(log_det, expected, atol=1e-10)
    np.testing.assert_allclose(base.from_box(v), Y, rtol=1e-7, atol=1e-9)
    assert ((v > 0) & (v < 1)).all()


def test_no_likelihood_on_the_grid_of_degrees_is_higher():
    base = Student.fit(Y, np.ones(4000))
    best = student_t.logpdf(Y, base.dof, base.location, base.scale).mean(axis=0)
    for dof in (3, 5, 8, 20, 100):
        for shift in (-0.1, 0, 0.1):
            for factor in (0.9, 1, 1.1):
                other = student_t.logpdf(Y, dof, base.location + shift * base.scale, base.scale * factor).mean(axis=0)
                assert (other < best + 2e-3).all()


def test_weights_count_rows():
    weight = RNG.integers(0, 4, 300).astype(float)
    once, often = Student.fit(Y[:300][weight > 0], weight[weight > 0]), Y[:300].repeat(weight.astype(int), axis=0)
    repeated = Student.fit(often, np.ones(len(often)))
    for name in ("location", "scale", "dof"):
        np.testing.assert_allclose(getattr(once, name), getattr(repeated, name), rtol=1e-10)


@pytest.mark.parametrize("factor", [1e-200, 1e-6, 1e6, 1e200])
def test_another_unit_changes_the_log_density_by_the_jacobian_only(factor):
    plain, scaled = fit(rotations=2), fit(Y[:300] * factor, rotations=2)
    difference = plain.log_prob(X[300:400], Y[300:400]) - scaled.log_prob(X[300:400], Y[300:400] * factor)
    np.testing.assert_allclose(difference, 2 * np.log(factor), atol=1e-6)


@pytest.mark.parametrize(
    "y",
    [
        np.ones((100, 2)),
        np.zeros((100, 2)),
        np.tile([[0.0, 1.0]], (100, 1)) * (np.arange(100) > 60)[:, None],
        np.where(np.arange(100)[:, None] > 96, [1e6, 1e12], Y[:100]),
        np.where(np.arange(100)[:, None] > 98, [1e200, 1.0], Y[:100]),
        np.array([[0.0, 1.0], [1.0, 0.0]]),
    ],
    ids=["ones", "zeros", "mostly zeros", "outliers", "one far outlier", "two rows"],
)
@pytest.mark.parametrize("rotations", [None, 2])
def test_strange_outcomes_have_finite_densities(y, rotations):
    model = fit(y, X[: len(y)], rotations=rotations)
    far = np.concatenate([y[:2], y[:1] + 1, [[1e300, -1e300]]])
    assert np.isfinite(model.log_prob(X[:4], far)).all()
    assert np.isfinite(model.sample(X[:4], 50, random_state=0)).all()
    assert np.isfinite(model.predict(X[:4])).all()


def test_a_flow_obeys_the_laws():
    flow = fit().mixture_.members[0]
    y = Y[300:340].reshape(40, 1, 2)
    u, log_det = flow.forward_and_log_det(y, X[300:340])
    np.testing.assert_allclose(flow.inverse(u, X[300:340]), y, rtol=1e-6, atol=1e-9)
    scale = flow.base.scale
    jacobian = np.empty((40, 2, 2))
    for k in range(2):
        step = 1e-6 * scale[k] * np.eye(2)[k]
        ends = [flow.forward_and_log_det(y + sign * step, X[300:340])[0][:, 0] for sign in (1, -1)]
        jacobian[:, :, k] = (ends[0] - ends[1]) / 2e-6 / scale[k]
    np.testing.assert_allclose(np.linalg.slogdet(jacobian)[1], log_det[:, 0], atol=1e-3)


def test_one_outcome_has_a_cdf_quantiles_and_moments():
    model = fit(Y[:1000, 0], X[:1000])
    distribution = model.predict_distribution(X[1000:1005])
    levels = np.array([1e-12, 1e-3, 0.2, 0.5, 0.9, 1 - 1e-9])
    np.testing.assert_allclose(distribution.cdf(distribution.icdf(levels)), np.tile(levels, (5, 1)), rtol=1e-6)
    draws = distribution.sample(200_000, random_state=0)
    error = draws.std(axis=1) / np.sqrt(200_000)
    assert (np.abs(distribution.mean() - draws.mean(axis=1)) < 5 * error).all()
    np.testing.assert_allclose(distribution.std(), draws.std(axis=1), rtol=0.05)
    assert kstest(model.predict_distribution(X[1000:]).pit(Y[1000:, 0]), "uniform").statistic < 0.06


def test_auto_is_the_box_with_bounds_and_the_t_without():
    for y, settings, expected in [
        (Y[:300], {}, "student"),
        (Y[:300], {"bounds": [(None, None), (0, None)]}, "box"),
    ]:
        auto, named = (
            fit(y, base=base, structure="joint", **settings).log_prob(X[:300], y) for base in ("auto", expected)
        )
        assert np.array_equal(auto, named)


@pytest.mark.parametrize("base", ["student", "normal"])
def test_bounds_are_refused(base):
    with pytest.raises(ValueError, match=f"bounds .* base='{base}'"):
        fit(bounds=[(None, None), (0, None)], base=base)


def test_the_normal_base_is_the_normal_distribution_of_the_outcomes():
    y, weight = Y[:500, :1], np.arange(500) % 3.0
    one = y[:, 0]
    base = Student.fit(y, weight, degrees=[NORMAL])
    mean = np.average(one, weights=weight)
    expected = norm(mean, np.sqrt(np.average((one - mean) ** 2, weights=weight)))
    v, log_det = base.to_box(y)
    np.testing.assert_allclose(v, expected.cdf(y), rtol=1e-12)
    np.testing.assert_allclose(log_det, expected.logpdf(one), rtol=1e-12)
    assert np.isfinite(base.to_box(np.array([[1e308], [-1e308]]))[1]).all()
    assert base.from_box(np.array([[0.0], [1.0]])).ravel().tolist() == [-np.inf, np.inf]
    model = fit(one, X[:500], base="normal")
    assert "base: normal" in model.summary()
    distribution = model.predict_distribution(X[:5])
    np.testing.assert_allclose(distribution.cdf(distribution.icdf([0.1, 0.9])), [[0.1, 0.9]] * 5, rtol=1e-6)


@pytest.mark.parametrize("dof", [3.0, 5.0, 7.0, 10.0, 30.0, 100.0, NORMAL])
def test_quantiles_of_the_smallest_levels_are_on_the_left(dof):
    base = Student(np.zeros(1), np.ones(1), np.array([dof]))
    levels = np.array([0.0, 1e-300, 1e-200, 1e-101, 1e-99, 1e-12, 0.3])
    quantiles = base.from_box(levels[:, None])[:, 0]
    assert quantiles[0] == -np.inf
    assert (np.diff(quantiles) > 0).all()
    np.testing.assert_allclose(base.to_box(quantiles[1:, None])[0][:, 0], levels[1:], rtol=1e-8)
