"""A fitted model as the base of a flow."""

import numpy as np
import pytest

from tests.helpers import laws
from treecdf import TreeFlowRegressor
from treecdf.flows.flow import TreeFlow
from treecdf.flows.learnt import Learnt, flows_inside, flows_of_bases, widths_of
from treecdf.flows.mixture import Mixture

RNG = np.random.default_rng(5)
N = 260
SCALES = np.array([1.0, 3e12, 1e-7])  # covariates such as points in time are far beyond 1e9
X = RNG.normal(size=(N, 3)) * SCALES
Y = np.sin(2 * X[:, 0]) + 0.3 * RNG.normal(size=N) + 2 * (RNG.random(N) < 0.5)
NEW_X, NEW_Y = X[:40], (Y[:40] + 0.1)[:, None, None]


@pytest.fixture(scope="module")
def mixture():
    """Of flows on three bases, two of which share one."""
    kinds = {"conditional": 2, "mixture": 1, "box": 1}
    members = []
    for base, n_members in kinds.items():
        fitted = TreeFlowRegressor(base=base, effort="fast", random_state=0, max_trees=3).fit(X, Y)
        members += fitted.mixture_.members[:n_members]
    found = Mixture(tuple(members), np.log([[0.4, 0.1, 0.3, 0.2]]))
    assert [flow.base for flow in flows_of_bases(found)] == [members[0].base, members[2].base, members[3].base]
    return found


def flow_on(mixture, n_trees=3):
    standardize, base = Learnt.of(mixture, 3)
    trees = laws.random_trees(np.random.default_rng(0), n_trees, 3, 1, 3, "logistic") if n_trees else None
    return TreeFlow(standardize, base, () if trees is None else (trees,))


def test_without_trees_it_is_the_mixture(mixture):
    """To the last digit: covariates come through as they are."""
    flow = flow_on(mixture, 0)
    u, log_det = flow.forward_and_log_det(NEW_Y, NEW_X)
    expected, log_density = mixture.forward_and_log_det(NEW_Y, NEW_X)
    np.testing.assert_array_equal(flow.base._own(flow.condition(NEW_X, None)[1]), NEW_X)
    np.testing.assert_array_equal(u, expected)
    np.testing.assert_array_equal(log_det, log_density)
    np.testing.assert_array_equal(flow.inverse(u, NEW_X), mixture.inverse(u, NEW_X))
    np.testing.assert_array_equal(flow.novelty(3 * NEW_X), mixture.novelty(3 * NEW_X))


def test_missing_values_come_through_in_any_block(mixture, monkeypatch):
    """They take more columns than others, in one block of several too."""
    monkeypatch.setattr("treecdf.flows.learnt._ROWS_AT_ONCE", 16)
    flow, x = flow_on(mixture, 0), NEW_X.copy()
    x[20, 0] = np.nan
    u, log_det = flow.forward_and_log_det(NEW_Y, x)
    expected, log_density = mixture.forward_and_log_det(NEW_Y, x)
    np.testing.assert_allclose(u, expected, rtol=1e-12)
    np.testing.assert_allclose(log_det, log_density, rtol=1e-9, atol=1e-12)


def test_it_obeys_the_laws(mixture):
    flow = flow_on(mixture)
    assert np.abs(flow.forward_and_log_det(NEW_Y, NEW_X)[1] - mixture.log_prob(NEW_Y, NEW_X)).max() > 0.01
    laws.inverse_undoes_forward(flow, NEW_Y, NEW_X)
    laws.forward_undoes_inverse(flow, RNG.uniform(0.01, 0.99, (40, 3, 1)), NEW_X)
    laws.increases(flow, np.sort(RNG.normal(1, 2, (40, 30, 1)), axis=1), NEW_X)


def test_moments_are_those_of_the_curve(mixture):
    """The distribution asks for points where the CDF changes, of the model inside too."""
    outer = Mixture((flow_on(mixture),), np.zeros((1, 1)))
    edges = np.linspace(-6, 8, 20_001)
    density = np.exp(outer.log_prob(np.tile(edges[:, None], (3, 1, 1)), NEW_X[:3]))
    mean, _ = outer.curve(NEW_X[:3], {}).moments()
    np.testing.assert_allclose(mean, np.trapezoid(density * edges, edges, axis=1), atol=2e-3)


def test_a_mixture_on_learnt_bases_answers_every_question(mixture):
    outer = Mixture((flow_on(mixture), flow_on(mixture)), np.log(np.full((1, 2), 0.5)))
    levels = np.tile([[0.05], [0.5], [0.95]], (3, 1, 1))
    y = outer.inverse(levels, NEW_X[:3])
    np.testing.assert_allclose(outer.forward_and_log_det(y, NEW_X[:3])[0], levels, rtol=1e-9)
    mean, std = outer.moments(NEW_X[:3], {})
    assert ((y[:, 0, 0] < mean) & (mean < y[:, 2, 0]) & (std > 0)).all()


def test_rows_may_be_few_or_missing(mixture):
    base = flow_on(mixture).base
    assert base.parameters(np.empty((0, 3))).shape == (0, 3 + widths_of(mixture, 3).sum())
    x = NEW_X.copy()
    x[::2, 1] = np.nan
    flow = flow_on(mixture)
    assert np.isfinite(flow.forward_and_log_det(NEW_Y, x)[1]).all()


def test_flows_inside_are_those_of_the_model(mixture):
    outer = Mixture((flow_on(mixture),), np.zeros((1, 1)))
    assert [id(flow) for flow in flows_inside(outer)] == [id(flow) for flow in mixture.tree_flows()]
    assert [id(flow) for flow in flows_inside(mixture)] == [id(flow) for flow in mixture.tree_flows()]
