"""Peers of the benchmarks: distributions, the rows set aside, and every adapter on a toy problem."""

import numpy as np
import pytest
from scipy.stats import kstest, norm, t

from benchmarks import metrics
from benchmarks.distributions import Empirical, Normal, NormalMixture, Quantiles, Student
from benchmarks.methods import METHODS, settings
from benchmarks.peers import ONE_OUTCOME, PEERS, PEERS_OF_SEVERAL, PEERS_OF_SHAPES
from benchmarks.peers.common import ZScore, set_aside

pytestmark = pytest.mark.filterwarnings("ignore")  # of the peers

MODULES = {
    "linear": "sklearn",
    "ngboost": "ngboost",
    "ngboost_early": "ngboost",
    "lightgbmlss": "lightgbmlss",
    "lightgbmlss_student": "lightgbmlss",
    "pgbm": "pgbm",
    "treeffuser": "treeffuser",
    "quantile_forest": "quantile_forest",
    "engression": "engression",
    "nsf": "zuko",
    "maf": "zuko",
    "mdn": "torch",
}
OF_SHAPES = {"mdn_folds": "torch", "lightgbmlss_mixture": "lightgbmlss", "lightgbmlss_spline": "lightgbmlss"}
SHORT = {"steps": 200, "n_estimators": 30, "num_boost_round": 30, "num_epochs": 30, "max_epochs": 15}
SAMPLERS = ("treeffuser", "quantile_forest", "engression")


def laws():
    n = 4
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(3), n)
    return {
        "normal": Normal(rng.normal(size=n), rng.uniform(0.5, 2, n)),
        "student": Student(rng.uniform(2.1, 9, n), rng.normal(size=n), rng.uniform(0.5, 2, n)),
        "mixture": NormalMixture(weights, rng.normal(0, 3, (n, 3)), rng.uniform(0.3, 1, (n, 3))),
    }


@pytest.mark.parametrize("name", laws())
def test_quantiles_invert_the_cdf_and_crps_agrees_with_draws(name):
    law = laws()[name]
    levels = np.array([0.01, 0.3, 0.5, 0.95])
    assert np.allclose(law.cdf(law.icdf(levels)), levels)
    y = np.array([-3.0, -0.5, 0.7, 4.0])
    assert np.allclose(law.pit(y), np.diag(law.cdf(np.tile(y, (4, 1)))))
    draws = law.icdf(np.random.default_rng(1).random(40_000))
    assert np.allclose(law.crps(y), Empirical(draws, draws=True).crps(y), atol=0.03)
    assert np.allclose(law.crps(y), Quantiles.crps(law, y), rtol=0.01)


def test_empirical_scores_are_those_of_their_points():
    rng = np.random.default_rng(0)
    points, y = rng.normal(size=(5000, 100)), rng.normal(size=5000)
    law = Empirical(points, draws=True)
    assert metrics.pit_ks(law.pit(y)) < 0.03
    one = law.crps(y)[0]
    pairs = np.abs(points[0][:, None] - points[0][None, :]).sum() / (2 * 100 * 99)
    assert np.isclose(one, np.abs(points[0] - y[0]).mean() - pairs)
    grid = Empirical(np.tile(norm.ppf((np.arange(200) + 0.5) / 200), (5000, 1)), draws=False)
    assert np.isclose(grid.crps(y).mean(), Normal(np.zeros(5000), np.ones(5000)).crps(y).mean(), rtol=0.005)
    assert np.all(Empirical(np.zeros((1, 9)), draws=True).cdf(np.zeros(1)) == 1.0)


def test_pit_counts_add_up():
    counts = metrics.pit_counts(np.array([[0.0, 0.049], [1.0, 0.96], [0.5, 1.0 + 1e-12]]))
    assert len(counts) == 20
    assert (counts[0], counts[10], counts[19]) == (2, 1, 3)


def test_rows_set_aside_are_a_seeded_tenth():
    train, aside = set_aside(205, 3)
    assert len(aside) == 20
    assert np.array_equal(np.sort(np.r_[train, aside]), np.arange(205))
    assert np.array_equal(set_aside(205, 3)[1], aside)
    assert not np.array_equal(set_aside(205, 4)[1], aside)


def test_z_scores_change_the_unit_of_a_density():
    values = np.random.default_rng(0).normal(3.0, [5.0, 0.1], (1000, 2))
    z = ZScore(values)
    assert np.allclose(z.back(z(values)), values)
    exact = norm.logpdf(values, z.mean, z.std).sum(axis=1)
    assert np.allclose(norm.logpdf(z(values)).sum(axis=1) + z.log_det, exact)
    assert ZScore(np.ones((5, 1))).std == [1.0]


def test_every_peer_is_a_method_that_tells_its_library():
    assert set(PEERS) == set(MODULES)
    assert set(PEERS_OF_SHAPES) == set(OF_SHAPES)
    assert set(PEERS) | set(PEERS_OF_SHAPES) <= set(METHODS)
    assert set(PEERS_OF_SEVERAL) | set(ONE_OUTCOME) == set(PEERS)
    for name in (*PEERS, *PEERS_OF_SHAPES):
        told = settings(METHODS[name](0, 1))
        assert told["library"]
        assert told["library_version"]


@pytest.mark.parametrize("name", ONE_OUTCOME)
def test_peers_of_one_outcome_refuse_several(name):
    with pytest.raises(ValueError, match="several outcomes"):
        METHODS[name](0, 2).fit(np.zeros((20, 1)), np.zeros((20, 2)))


def toy(d, n=400):
    """Outcomes around 100 with a spread near 20, so that a forgotten unit shows."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 2))
    y = 100 + 20 * (x[:, :1] + rng.normal(size=(n, d)) * [[1.0, 0.5][:d]])
    return x, y[:, 0] if d == 1 else y


def fitted(name, d):
    pytest.importorskip((MODULES | OF_SHAPES)[name])
    model = METHODS[name](0, d)
    for key in model.settings.keys() & SHORT.keys():
        model.settings[key] = SHORT[key]
    x, y = toy(d)
    return model.fit(x, y), x, y


WITH_DENSITY = [name for name in PEERS if name not in SAMPLERS and name != "pgbm"] + list(PEERS_OF_SHAPES)


@pytest.mark.parametrize("name", WITH_DENSITY)
def test_densities_of_one_outcome_integrate_to_one_and_agree_with_cdf_and_draws(name):
    model, x, _ = fitted(name, 1)
    at = x[:3]
    grid = np.linspace(-400, 600, 20_001)
    for row in at:
        density = np.exp(model.log_prob(np.tile(row, (len(grid), 1)), grid))
        assert abs(density.sum() * (grid[1] - grid[0]) - 1) < 0.01
    law = model.predict_distribution(at)
    ends = law.icdf(np.array([0.1, 0.9]))
    assert np.allclose(law.cdf(ends), [0.1, 0.9], atol=1e-3)
    for k, row in enumerate(at):
        inside = np.linspace(*ends[k], 2001)
        density = np.exp(model.log_prob(np.tile(row, (len(inside), 1)), inside))
        assert abs(np.trapezoid(density, inside) - 0.8) < 0.01
    draws = model.sample(at, n_samples=2000, random_state=0)
    assert draws.shape == (3, 2000)
    pit = np.concatenate([law.cdf(column) for column in draws.T])
    assert kstest(pit, "uniform").statistic < 0.03
    assert np.array_equal(draws, model.sample(at, n_samples=2000, random_state=0))


@pytest.mark.parametrize("name", [*(name for name in PEERS_OF_SEVERAL if name not in SAMPLERS), "mdn_folds"])
def test_densities_of_two_outcomes_integrate_to_one_and_agree_with_draws(name):
    model, x, y = fitted(name, 2)
    axis = np.linspace(-200, 400, 301)
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    density = np.exp(model.log_prob(np.tile(x[0], (len(points), 1)), points))
    mass = density * (axis[1] - axis[0]) ** 2
    assert abs(mass.sum() - 1) < 0.02
    draws = model.sample(x[:1], n_samples=4000, random_state=0)
    assert draws.shape == (1, 4000, 2)
    spread = np.sqrt(mass @ (points - mass @ points) ** 2)
    assert np.all(np.abs(draws[0].mean(axis=0) - mass @ points) < 0.1 * spread)
    joint = model.predict_distribution(x[:5]).logpdf(y[:5, None, :] + np.zeros((5, 3, 2)))
    assert np.allclose(joint, model.log_prob(x[:5], y[:5])[:, None], atol=1e-4)


@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers_have_scores_but_no_likelihood(name):
    model, x, y = fitted(name, 1)
    x, y = x[:40], y[:40]
    found, seconds = metrics.evaluate(model, x, y, np.array([0.1]))
    assert not {"log_lik", "cell_log_lik"} & found.keys()
    assert "log_prob" not in seconds
    assert 0 < found["crps"] < 20 / np.sqrt(np.pi) * 2
    assert 0.5 < found["coverage_90"] <= 1
    assert sum(found["pit_counts"]) == len(y)


@pytest.mark.parametrize("name", ["treeffuser", "engression"])
def test_samplers_of_several_outcomes_have_an_energy_score(name):
    model, x, y = fitted(name, 2)
    found, _ = metrics.evaluate(model, x[:20], y[:20])
    assert found.keys() <= {"energy_score", "trees"}
    assert 0 < found["energy_score"] < 40


def test_student_of_very_many_degrees_of_freedom_is_a_normal():
    location, scale, y = np.random.default_rng(0).uniform(0.5, 2, (3, 20))
    wanted = Normal(location, scale).crps(y)
    for df in (1e5, 1e17, np.inf):
        assert np.allclose(Student(np.full(20, df), location, scale).crps(y), wanted, rtol=1e-4)


def test_student_law_is_the_density_of_lightgbmlss():
    model, x, y = fitted("lightgbmlss_student", 1)
    parameters = model._parameters(x)
    assert np.allclose(model.log_prob(x, y), t.logpdf(y, **parameters))
    assert 60 < parameters["loc"].mean() < 140
