"""Outcomes with atoms, and outcomes on a grid."""

import pickle

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binom
from sklearn.base import clone

from treecdf import TreeFlowRegressor
from treecdf.bases.learners.boosting import BoostedScores
from treecdf.data.recording import Grid, continuous_part, find_atoms
from treecdf.data.table import Table
from treecdf.flows.recorded import RecordedDistribution

RNG = np.random.default_rng(0)
N = 1500
X = RNG.normal(size=(N, 2))
ZERO_PROB = expit(2 * X[:, 0])
IS_ZERO = RNG.random(N) < ZERO_PROB
Y = np.where(IS_ZERO, 0.0, 1 + X[:, 1] + 0.5 * RNG.normal(size=N))
ROUNDED = np.round(3 * X[:, 0] + RNG.normal(size=N))


def small(**settings):
    return TreeFlowRegressor(**{"effort": "fast", "random_state": 0, "max_trees": 3, **settings})


@pytest.fixture(scope="module")
def with_atoms():
    return small(atoms="auto").fit(X, Y)


@pytest.fixture(scope="module")
def on_grid():
    return small(resolution="auto").fit(X, ROUNDED)


# Atoms


def test_atoms_are_values_that_come_more_often_than_those_around_them():
    weight = np.ones(N)
    assert find_atoms(Y, weight).tolist() == [0.0]
    assert find_atoms(X[:, 0], weight).size == 0
    assert find_atoms(ROUNDED, weight).size == 0  # a grid is no atom
    capped = np.minimum(np.round(10 * X[:, 0]), 10)
    assert find_atoms(capped, weight).size == 0  # 16 % at the cap, 3 % around it: not ten times as often
    assert find_atoms(np.where(X[:, 0] > 1, 1.0, X[:, 0]), weight).tolist() == [1.0]
    assert find_atoms(np.where(X[:, 0] > 1, 1.0, np.where(X[:, 0] < -1, -1.0, X[:, 0])), weight).tolist() == [-1.0, 1.0]
    assert find_atoms(np.array([1.0]), np.ones(1)).size == 0


def test_atoms_that_leave_one_row_are_refused():
    x = np.arange(20.0)[:, None]
    with pytest.raises(ValueError, match=r"Found 1 row\(s\) besides 2 atom"):
        TreeFlowRegressor(atoms=[0.0, 1.0]).fit(x, np.append(np.arange(19) % 2, 0.5))


def test_weights_decide_what_an_atom_is():
    weight = np.where(IS_ZERO, 1e-6, 1.0)
    assert find_atoms(Y, weight).size == 0


def test_probabilities_of_atoms_follow_x(with_atoms):
    d = with_atoms.predict_distribution(X)
    assert isinstance(d, RecordedDistribution)
    assert d.atoms.tolist() == [0.0]
    assert np.corrcoef(d.atom_probs[:, 0], ZERO_PROB)[0, 1] > 0.95
    assert d.atom_probs.mean() == pytest.approx(IS_ZERO.mean(), abs=0.01)


def test_the_density_is_of_the_mixed_measure(with_atoms):
    d = with_atoms.predict_distribution(X[:5])
    grid = np.linspace(-30, 30, 20_001)[1:]
    grid = grid[grid != 0]
    mass = np.trapezoid(d.pdf(np.tile(grid, (5, 1))), grid, axis=1)
    np.testing.assert_allclose(mass + d.atom_probs[:, 0], 1.0, atol=2e-3)
    np.testing.assert_allclose(d.logpdf(np.zeros(5)), np.log(d.atom_probs[:, 0]))
    assert np.array_equal(with_atoms.log_prob(X[:5], Y[:5]), d.logpdf(Y[:5]))


def test_the_cdf_jumps_at_an_atom_by_its_probability(with_atoms):
    d = with_atoms.predict_distribution(X[:50])
    below, at = d.cdf(np.full(50, -1e-12)), d.cdf(np.zeros(50))
    np.testing.assert_allclose(at - below, d.atom_probs[:, 0], atol=1e-9)
    points = np.sort(RNG.normal(size=(50, 40)), axis=1)
    assert (np.diff(d.cdf(points), axis=1) >= 0).all()


def test_quantiles_are_the_smallest_values_with_that_cdf(with_atoms):
    d = with_atoms.predict_distribution(X[:60])
    levels = np.linspace(0.01, 0.99, 33)
    y = d.icdf(levels)
    assert (np.diff(y, axis=1) >= 0).all()
    is_atom = y == 0
    assert is_atom.any()
    assert not is_atom.all()
    cdf = d.cdf(y)
    np.testing.assert_allclose(cdf[~is_atom], np.tile(levels, (60, 1))[~is_atom], atol=1e-9)
    assert (cdf >= levels - 1e-9).all()
    jump = cdf - d.atom_probs
    assert (jump[is_atom] <= np.tile(levels, (60, 1))[is_atom] + 1e-9).all()
    assert d.icdf(0.5).shape == (60,)
    assert np.array_equal(d.median(), d.icdf(0.5))


def test_several_atoms_come_in_order():
    y = np.where(X[:, 0] > 1, 1.0, np.where(X[:, 0] < -1, -1.0, X[:, 0]))
    d = small(atoms=[1, -1.0]).fit(X[:, 1:], y).predict_distribution(X[:20, 1:])
    assert d.atoms.tolist() == [-1.0, 1.0]
    levels = np.linspace(0.001, 0.999, 200)
    quantiles = d.icdf(levels)
    assert (np.diff(quantiles, axis=1) >= 0).all()
    np.testing.assert_allclose((quantiles == -1).mean(axis=1), d.atom_probs[:, 0], atol=0.01)
    np.testing.assert_allclose((quantiles == 1).mean(axis=1), d.atom_probs[:, 1], atol=0.01)


def test_draws_moments_and_crps_agree_with_one_another(with_atoms):
    d = with_atoms.predict_distribution(X[:8])
    draws = d.sample(20_000, random_state=0)
    np.testing.assert_allclose((draws == 0).mean(axis=1), d.atom_probs[:, 0], atol=0.015)
    np.testing.assert_allclose(draws.mean(axis=1), d.mean(), atol=0.05)
    np.testing.assert_allclose(draws.std(axis=1), d.std(), atol=0.1)
    for y in (0.0, 0.7):
        truth = np.full(8, y)
        spread = np.abs(draws[:, :10_000] - draws[:, 10_000:]).mean(axis=1) / 2
        np.testing.assert_allclose(np.abs(draws - y).mean(axis=1) - spread, d.crps(truth), atol=0.02)
    assert np.array_equal(d.sample(5, random_state=3), d.sample(5, random_state=3))


def test_a_model_that_knows_the_atom_scores_better_than_chance(with_atoms):
    marginal = np.log(IS_ZERO.mean()) * IS_ZERO.mean()
    fresh = np.random.default_rng(5)
    x = fresh.normal(size=(1000, 2))
    zero = fresh.random(1000) < expit(2 * x[:, 0])
    y = np.where(zero, 0.0, 1 + x[:, 1] + 0.5 * fresh.normal(size=1000))
    own = with_atoms.log_prob(x, y)
    truth = np.where(zero, np.log(expit(2 * x[:, 0])), 0.0).mean()
    assert own[zero].sum() / 1000 > marginal + 0.05
    assert own[zero].sum() / 1000 < truth + 0.05


@pytest.mark.parametrize("m", [1, 5])
def test_probabilities_of_atoms_are_those_of_a_logistic_truth(m):
    rng = np.random.default_rng(m)
    x, x_new = rng.normal(size=(800, 3)), rng.normal(size=(2000, 3))
    chance, chance_new = (expit(1.5 * rows[:, 0] - rows[:, 1]) for rows in (x, x_new))
    model = small(atoms=list(range(m + 1))).fit(x, rng.binomial(m, chance))
    y_new = rng.binomial(m, chance_new).astype(float)
    assert np.mean(binom.logpmf(y_new, m, chance_new) - model.log_prob(x_new, y_new)) < 0.008 * m + 0.002
    far, edge = ([[sign * value, 0, 0] for sign in (1, -1)] for value in (1e6, np.abs(x[:, 0]).max() + 1))
    assert model.log_prob(far, [m, 0]) == pytest.approx(model.log_prob(edge, [m, 0]))
    with pytest.warns(UserWarning, match="missing values"):
        assert np.isfinite(model.log_prob([[np.nan] * 3], [0.0])).all()


def test_atoms_that_no_line_tells_apart_are_left_to_trees():
    inside = (np.abs(X[:, 0]) < 0.7).astype(float)
    model = small(atoms=[0, 1]).fit(X, inside)
    assert isinstance(model.atoms_.scores, BoostedScores)
    assert model.score(X, inside) > -0.1


def test_atoms_are_numbers_of_one_outcome():
    with pytest.raises(ValueError, match="atoms are for one outcome"):
        small(atoms="auto").fit(X, np.column_stack([Y, Y]))
    with pytest.raises(ValueError, match="Expected atoms to be None, 'auto' or numbers"):
        small(atoms=["zero"]).fit(X, Y)


def test_no_atoms_found_is_no_atoms():
    model = small(atoms="auto").fit(X, X[:, 0])
    assert model.atoms_ is None
    assert np.array_equal(model.log_prob(X, X[:, 0]), small().fit(X, X[:, 0]).log_prob(X, X[:, 0]))


def test_validation_rows_may_hold_atoms():
    model = small(atoms=0.0).fit(X[:1000], Y[:1000], X_val=X[1000:], y_val=Y[1000:])
    assert np.isfinite(model.score(X, Y))


# Grids


def test_cells_add_up_to_one(on_grid):
    d = on_grid.predict_distribution(X[:10])
    values = np.arange(-60.0, 61.0)
    np.testing.assert_allclose(d.pdf(np.tile(values, (10, 1))).sum(axis=1), 1.0, atol=1e-4)
    assert np.array_equal(d.logpdf(np.full(10, 2.0)), d.logpdf(np.full(10, 2.4)))  # the same cell


def test_draws_and_quantiles_are_on_the_grid(on_grid):
    d = on_grid.predict_distribution(X[:200])
    draws, quantiles = d.sample(50, random_state=0), d.icdf([0.1, 0.5, 0.9])
    assert np.array_equal(draws, np.round(draws))
    assert np.array_equal(quantiles, np.round(quantiles))
    cdf = d.cdf(quantiles)
    assert (cdf >= np.array([0.1, 0.5, 0.9]) - 1e-9).all()
    assert (d.cdf(quantiles - 1) < np.array([0.1, 0.5, 0.9])).all()


def test_a_grid_keeps_spikes_away(on_grid):
    # The true log probability of a cell is below zero; spikes on the values would be far above.
    assert -2.0 < on_grid.score(X, ROUNDED) < -1.0


def test_the_origin_of_a_grid_need_not_be_zero():
    grid = Grid(np.array([0.3]), np.array([0.5]))
    assert grid.round(np.array([[0.5], [0.56], [-0.1], [np.inf]])).ravel().tolist() == [0.3, 0.8, -0.2, np.inf]
    spread = grid.spread(np.full((1000, 1), 0.3), np.random.default_rng(0))
    assert 0.05 <= spread.min() < 0.06
    assert 0.54 < spread.max() <= 0.55


def test_rounded_outcomes_of_several_dimensions():
    both = np.column_stack([ROUNDED, X[:, 1] + RNG.normal(size=N)])
    model = small(resolution=[1.0, None]).fit(X, both)
    draws = model.sample(X[:20], 10, random_state=0)
    assert np.array_equal(draws[..., 0], np.round(draws[..., 0]))
    assert not np.array_equal(draws[..., 1], np.round(draws[..., 1]))
    assert -4 < model.score(X, both) < -2


def test_spread_outcomes_stay_inside_bounds():
    y = np.maximum(ROUNDED, 0.0)
    model = small(resolution=1.0, bounds=(0, None)).fit(X, y)
    assert (model.sample(X[:50], 20, random_state=0) >= 0).all()
    assert np.isfinite(model.log_prob(X, y)).all()


def test_atoms_and_grids_together():
    y = np.where(IS_ZERO, 0.0, np.round(4 + 2 * X[:, 1]))
    model = small(atoms=0.0, resolution=1.0).fit(X, y)
    d = model.predict_distribution(X[:30])
    values = np.arange(-40.0, 41.0)
    others = values[values != 0]
    total = d.pdf(np.tile(others, (30, 1))).sum(axis=1) + d.atom_probs[:, 0]
    assert (np.abs(total - 1) < 0.1).all()  # the continuous part's own cell around 0 is hidden by the atom
    draws = d.sample(40, random_state=1)
    assert np.array_equal(draws, np.round(draws))


@pytest.mark.parametrize("resolution", [-1.0, [1.0, 2.0], "fine", [None, 0.1]])
def test_steps_must_be_positive_numbers_one_for_each_outcome(resolution):
    with pytest.raises(ValueError, match="Expected resolution"):
        small(resolution=resolution).fit(X, Y)


# Both in a model


def test_people_are_told(with_atoms, on_grid):
    assert "the outcome is 0 in 49% of the rows, an atom" in with_atoms.summary()
    assert "taken as rounded to 1" in on_grid.summary()
    assert "atoms='auto' would model that" in small().fit(X, Y).summary()
    assert "steps of 1; see resolution='auto'" in small(resolution=None).fit(X, ROUNDED).summary()
    assert "21 values, -12 to 9 in steps of 1; each is modelled as a cell" in small().fit(X, ROUNDED).summary()
    assert "note" not in small().fit(X, X[:, 0]).summary()


def test_rows_of_a_distribution(with_atoms):
    d = with_atoms.predict_distribution(X[:10])
    assert len(d[2:5]) == 3
    np.testing.assert_allclose(d[2:5].cdf(Y[2:5]), d.cdf(Y[:10])[2:5], rtol=1e-9)
    np.testing.assert_allclose(d[3].icdf(0.9), d.icdf(0.9)[3:4], rtol=1e-9)


def test_models_can_be_cloned_and_pickled(with_atoms, on_grid):
    for model, y in ((with_atoms, Y), (on_grid, ROUNDED)):
        again = pickle.loads(pickle.dumps(model))
        assert np.array_equal(again.log_prob(X, y), model.log_prob(X, y))
        assert np.array_equal(clone(model).fit(X, y).log_prob(X, y), model.log_prob(X, y))


def test_rows_of_no_weight_do_not_count():
    weight = np.r_[np.ones(N), np.zeros(300)]
    x, y = np.vstack([X, X[:300]]), np.r_[Y, np.full(300, 7.0)]
    model = small(atoms="auto").fit(x, y, sample_weight=weight)
    assert model.atoms_.values.tolist() == [0.0]
    assert np.array_equal(model.log_prob(X, Y), small(atoms="auto").fit(X, Y).log_prob(X, Y))


def test_quantiles_ascend_over_an_atom_beside_the_grid():
    y = np.where(IS_ZERO, 0.4, np.round(4 + 2 * X[:, 1]))
    d = small(atoms=0.4, resolution=[1.0]).fit(X, y).predict_distribution(X[:30])
    levels = np.linspace(0, 1, 400)
    quantiles = d.icdf(levels)
    assert (np.diff(quantiles, axis=1) >= 0).all()
    assert (d.cdf(quantiles) >= levels - 1e-9).all()


def test_the_cdf_between_points_of_the_grid_is_that_of_the_point_below(on_grid):
    d = on_grid.predict_distribution(X[:10])
    at, between, after = (d.cdf(np.full(10, y)) for y in (2.0, 2.9, 3.0))
    assert np.array_equal(at, between)
    assert (at < after).all()


def test_outcomes_at_bounds_that_cut_a_cell_are_possible():
    """The cell around -1 is cut at -0.51: next to nothing of it is inside in either outcome."""
    both = np.round(np.abs(4 * X[:100, :2]))
    both[0], both[1] = 0.0, -0.51
    model = small(resolution=1.0, bounds=(-0.51, None), base="box").fit(X[:100], both)
    assert np.isfinite(model.log_prob(X[:100], both)).all()
    assert np.isneginf(model.log_prob(X[:1], [[-1.6, 1.0]])).all()


def test_outcomes_at_bounds_stay_there_beside_a_grid():
    """To the last bit, also where the other bound is far away."""
    rng = np.random.default_rng(0)
    low, high = -85372953.9141052, 84496759.04411556
    other = np.append(rng.uniform(low, high, 498), [low, high])
    number = np.arange(500)
    y = np.column_stack([np.round(rng.normal(size=500)), other])
    table = Table(np.zeros((500, 1)), y, np.ones(500), number, number.astype(np.uint64))
    grid = Grid(np.zeros(2), np.array([1.0, 0.0]))
    spread = continuous_part(table, np.empty(0), grid, [(-5.0, 5.0), (low, high)], rng).y
    assert (spread[:, 1] == other).all()
    assert (np.abs(spread[:, 0]) <= 5).all()
    assert len(np.unique(spread[:, 0])) == 500


# Integrals of what was recorded


@pytest.fixture(scope="module")
def with_both():
    y = np.where(IS_ZERO, 0.0, np.round(4 + 2 * X[:, 1] + 0.5 * RNG.normal(size=N)))
    return small(atoms=0.0, resolution=1.0).fit(X, y)


@pytest.fixture(scope="module")
def two_on_grid():
    both = np.column_stack([ROUNDED, X[:, 1] + RNG.normal(size=N)])
    return small(resolution=[1.0, None]).fit(X, both)


def mean_distance(one, other):
    return np.abs(one - other).mean(axis=1)


@pytest.mark.parametrize("name", ["with_atoms", "on_grid", "with_both"])
def test_the_quadrature_is_of_what_was_recorded(name, request):
    d = request.getfixturevalue(name).predict_distribution(X[:8])
    values, masses = d.quadrature()
    assert values.shape == masses.shape
    assert (masses >= 0).all()
    np.testing.assert_allclose(masses.sum(axis=1), 1.0, rtol=1e-9)
    assert (np.abs((values * masses).sum(axis=1) - d.mean()) < 5e-3 * d.std()).all()
    if name == "with_atoms":
        np.testing.assert_allclose(np.where(values == 0, masses, 0).sum(axis=1), d.atom_probs[:, 0], rtol=1e-12)
    else:
        assert np.array_equal(values, np.round(values))
        for value in (0.0, 3.0):  # the probabilities of cells, and of an atom together with the cell around it
            jump = d.cdf(np.full(8, value)) - d.cdf(np.full(8, value - 0.5))
            np.testing.assert_allclose(np.where(values == value, masses, 0).sum(axis=1), jump, atol=1e-9)


@pytest.mark.parametrize("name", ["with_atoms", "on_grid", "with_both"])
def test_moments_and_crps_are_those_of_draws(name, request):
    d = request.getfixturevalue(name).predict_distribution(X[:8])
    one, other = d.sample(100_000, random_state=0), d.sample(100_000, random_state=1)
    spread = one.std(axis=1)
    assert (np.abs(one.mean(axis=1) - d.mean()) < 0.015 * spread).all()  # standard error 0.003
    np.testing.assert_allclose(d.std(), spread, rtol=0.03)
    for y in (0.0, 2.0, 2.3):
        exact = mean_distance(one, y) - mean_distance(one, other) / 2
        assert (np.abs(d.crps(np.full(8, y)) - exact) < 0.015 * spread).all()


def test_moments_of_cells_that_are_wide():
    """Of an outcome with a standard deviation of half a step rounding is most of the spread."""
    y = np.round(0.5 * X[:, 0])
    d = small(resolution=1.0).fit(X[:, 1:], y).predict_distribution(X[:5, 1:])
    cells = np.arange(-40.0, 41.0)
    prob = d.pdf(np.tile(cells, (5, 1)))
    mean = prob @ cells
    # What the 81 cells leave out is less than 1e-4 of the variance.
    np.testing.assert_allclose(d.mean(), mean, atol=1e-3)
    np.testing.assert_allclose(d.std(), np.sqrt(prob @ cells**2 - mean**2), rtol=2e-3)
    gaps = np.abs(cells[:, None] - cells)
    for truth in (0.0, 1.0, 0.4):
        exact = prob @ np.abs(cells - truth) - ((prob @ gaps) * prob).sum(axis=1) / 2
        np.testing.assert_allclose(d.crps(np.full(5, truth)), exact, atol=2e-3)


def test_cells_that_are_fine_change_next_to_nothing():
    y = np.round(1000 * X[:, 0]) / 1000
    fine = small(resolution=1e-3).fit(X[:, 1:], y).predict_distribution(X[:5, 1:])
    draws = fine.sample(50_000, random_state=0)
    assert (np.abs(fine.mean() - draws.mean(axis=1)) < 0.02 * fine.std()).all()
    np.testing.assert_allclose(fine.std(), draws.std(axis=1), rtol=0.03)
    values, masses = fine.quadrature()
    np.testing.assert_allclose(values, fine._grid.round(values[..., None])[..., 0])
    np.testing.assert_allclose(masses.sum(axis=1), 1.0)
    other = fine.sample(50_000, random_state=1)
    exact = mean_distance(draws, 0.3) - mean_distance(draws, other) / 2
    assert (np.abs(fine.crps(np.full(5, 0.3)) - exact) < 0.02 * fine.std()).all()


def test_the_marginal_of_one_outcome_is_the_distribution_itself(with_atoms, on_grid):
    for model in (with_atoms, on_grid):
        d = model.predict_distribution(X[:20])
        levels = np.linspace(0.05, 0.95, 7)
        assert np.array_equal(d.marginal(0).icdf(levels), d.icdf(levels))
    d = with_atoms.predict_distribution(X[:20])
    jump = d.marginal(0).cdf(np.zeros(20)) - d.marginal(-1).cdf(np.full(20, -1e-12))
    np.testing.assert_allclose(jump, d.atom_probs[:, 0], atol=1e-9)


def test_marginals_of_several_outcomes_are_on_their_grid(two_on_grid):
    d = two_on_grid.predict_distribution(X[:20])
    rounded, other = d.marginal(0), d.marginal(1)
    levels = np.linspace(0.01, 0.99, 30)
    for points in (rounded.icdf(levels), rounded.sample(50, random_state=0), rounded.quadrature()[0]):
        assert np.array_equal(points, np.round(points))
    assert not np.array_equal(other.icdf(levels), np.round(other.icdf(levels)))
    assert (rounded.cdf(rounded.icdf(levels)) >= levels).all()
    draws = d.sample(20_000, random_state=0)
    np.testing.assert_allclose(rounded.cdf(np.zeros(20)), (draws[..., 0] <= 0).mean(axis=1), atol=0.03)
    np.testing.assert_allclose(d.std(), draws.std(axis=1), rtol=0.2)
    assert (np.abs(d.mean() - draws.mean(axis=1)) < 0.04 * d.std()).all()
    assert (np.abs(rounded.mean() - d.mean()[:, 0]) < 1e-9).all()


def test_far_outcomes_with_atoms_have_finite_moments():
    y = np.where(IS_ZERO, 0.0, 1e200 * X[:, 1])
    d = small(atoms=0.0).fit(X, y).predict_distribution(X[:5])
    assert np.isfinite(d.mean()).all()
    assert np.isfinite(d.std()).all()
    assert (d.std() > 1e197).all()


# What the summary says of the recording


def test_common_values_of_a_rounded_outcome_are_no_hint_of_atoms():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 1))
    y = np.round(100 * rng.normal(size=600))
    y[:24] = 50.0  # 4 % of the rows: any rounded outcome has such values
    assert "atoms='auto'" not in small().fit(x, y).summary()
    y[:90] = 50.0
    assert "the outcome is 50 in 15% of the rows; atoms='auto' would model that" in small().fit(x, y).summary()


def test_units_of_the_log_density_are_told():
    x = np.random.default_rng(0).normal(size=(200, 1))
    y = np.where(np.arange(200) % 3 == 0, 0.0, np.exp(x[:, 0]))
    told = "use the CRPS (treecdf.metrics.crps_scorer)"
    assert told not in small().fit(x, y).summary()
    assert told in small(atoms=[0.0]).fit(x, y).summary()
    assert told in small(resolution=0.5).fit(x, np.round(2 * y) / 2).summary()


def test_two_values_want_a_classifier():
    x = np.random.default_rng(0).normal(size=(200, 1))
    two = "the outcome has two values, 0 and 1: a classifier is what is wanted"
    y = (x[:, 0] > 0).astype(float)
    assert f"{two}; each has its probability here; resolution=None" in small().fit(x, y).summary()
    assert f"{two}; atoms='auto' gives their probabilities" in small(resolution=None).fit(x, y).summary()


def test_the_summary_explains_its_words():
    summary = small().fit(X, X[:, 0]).summary()
    assert "(mean log density, more is better)" in summary
    assert "stack of regressors for the mean: " in summary
    assert "for what nobody foresaw" in summary
