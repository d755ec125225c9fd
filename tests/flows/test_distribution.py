"""ConditionalDistribution: shapes, inverse pairs, moments against brute force, bounds, slices and marginals."""

import numpy as np
import pytest
from scipy.stats import kstest

from treecdf import MLP, Logistic, Stage, TreeFlowRegressor

RNG = np.random.default_rng(0)
N, M = 300, 6  # rows of training, rows of the distributions
X = RNG.uniform(-1, 1, (N, 2))
Y = np.sin(3 * X[:, 0]) + (0.2 + 0.2 * X[:, 1] ** 2) * RNG.normal(size=N)
TWO = np.column_stack([Y, 0.5 * Y**2 + 0.2 * RNG.normal(size=N)])
BRANCHES = np.where(RNG.random(N) < 0.5 + 0.3 * X[:, 0], 1.0, -1.0) + 0.05 * RNG.normal(size=N)
STAGES = [Stage(Logistic(), 5), Stage(MLP((4,), max_iter=20), 3)]
LEVELS = np.array([1e-6, 1e-3, 0.02, 0.25, 0.5, 0.7, 0.98, 1 - 1e-3, 1 - 1e-6])


def fit(y, **settings):
    model = {"stages": STAGES, "max_trees": 15, "validation_fraction": 0, "random_state": 0, **settings}
    return TreeFlowRegressor(base="box", **model).fit(X, y)


@pytest.fixture(scope="module")
def model():
    return fit(Y)


@pytest.fixture(scope="module")
def one(model):
    return model.predict_distribution(X[:M])


@pytest.fixture(scope="module")
def branches():
    """Two narrow modes: the quantile function jumps, which is hard on quadrature."""
    return fit(BRANCHES, max_trees=60, stages=[Stage(Logistic(), 6)]).predict_distribution(X[:M])


@pytest.fixture(scope="module")
def model_of_two():
    return fit(TWO)


@pytest.fixture(scope="module")
def two(model_of_two):
    return model_of_two.predict_distribution(X[:M])


# Shapes


def test_shapes_for_one_outcome(one):
    y, grid = Y[:M], np.tile(np.linspace(-1, 1, 4), (M, 1))
    for ask in (one.logpdf, one.pdf, one.cdf, one.pit):
        assert ask(y).shape == (M,)
        assert ask(y[:, None]).shape == (M, 1)
        assert ask(grid).shape == (M, 4)
        assert ask(grid)[:, 2] == pytest.approx(ask(grid[:, 2]), rel=1e-12)
    assert one.icdf(0.5).shape == (M,)
    assert one.icdf([0.5]).shape == (M, 1)
    assert one.icdf([0.1, 0.5, 0.9]).shape == (M, 3)
    assert one.icdf(np.full((M, 3), 0.5)).shape == (M, 3)
    assert one.sample().shape == (M, 1)
    assert one.sample(5).shape == (M, 5)
    for ask in (one.mean, one.var, one.std, one.median):
        assert ask().shape == (M,)
    assert [end.shape for end in one.interval(0.8)] == [(M,), (M,)]
    assert one.crps(y).shape == (M,)
    assert one.crps(y[:, None]).shape == (M,)


def test_shapes_for_several_outcomes(two):
    y, grid = TWO[:M], np.tile(TWO[:4], (M, 1, 1))
    for ask in (two.logpdf, two.pdf):
        assert ask(y).shape == (M,)
        assert ask(grid).shape == (M, 4)
        assert ask(grid)[:, 2] == pytest.approx(ask(grid[:, 2]), rel=1e-12)
    assert two.pit(y).shape == (M, 2)
    assert two.pit(grid).shape == (M, 4, 2)
    assert two.sample().shape == (M, 1, 2)
    assert two.sample(5).shape == (M, 5, 2)
    for ask in (two.mean, two.var, two.std):
        assert ask().shape == (M, 2)


def test_shapes_of_the_estimator(model, model_of_two):
    assert model.log_prob(X, Y).shape == (N,)
    assert model.predict(X).shape == (N,)
    assert model.sample(X[:M]).shape == (M, 100)
    assert model_of_two.log_prob(X, TWO).shape == (N,)
    assert model_of_two.predict(X).shape == (N, 2)
    assert model_of_two.sample(X[:M], 7).shape == (M, 7, 2)


def test_len_and_repr(one, two):
    assert (len(one), len(two)) == (M, M)
    assert (one.n_outcomes, two.n_outcomes) == (1, 2)
    assert repr(one) == "FlowDistribution(6 rows, 1 outcome(s))"
    assert repr(two) == "FlowDistribution(6 rows, 2 outcome(s))"


def test_the_estimator_answers_through_the_distribution(model, model_of_two):
    for found, y in ((model, Y), (model_of_two, TWO)):
        distribution = found.predict_distribution(X)
        assert np.array_equal(found.log_prob(X, y), distribution.logpdf(y))
        assert np.array_equal(distribution.pdf(y), np.exp(distribution.logpdf(y)))
        assert np.array_equal(found.predict(X), distribution.mean())


# CDF and quantiles


def test_cdf_and_quantiles_are_inverse(one, branches):
    for distribution in (one, branches):
        quantiles = distribution.icdf(LEVELS)
        assert (np.diff(quantiles, axis=1) > 0).all()
        assert distribution.cdf(quantiles) == pytest.approx(np.tile(LEVELS, (M, 1)), abs=1e-9)
        y = np.tile(np.linspace(-3, 3, 200), (M, 1))
        again = np.stack([distribution.icdf(p[:, None])[:, 0] for p in distribution.cdf(y).T], axis=1)
        assert again == pytest.approx(y, abs=1e-9)


def test_every_row_may_have_its_own_levels(one):
    levels = np.linspace(0.1, 0.9, 2 * M).reshape(M, 2)
    own = one.icdf(levels)
    for row in range(M):
        assert own[row] == pytest.approx(one[row].icdf(levels[row])[0], rel=1e-12)


def test_cdf_is_the_integral_of_the_density(one):
    y = np.tile(np.linspace(-2, 2, 20_001), (M, 1))
    density = one.pdf(y)
    steps = (density[:, 1:] + density[:, :-1]) / 2 * np.diff(y, axis=1)
    assert steps.sum(axis=1) == pytest.approx(one.cdf(y[:, -1]) - one.cdf(y[:, 0]), abs=1e-3)


def test_other_names_and_shortcuts(one):
    assert np.array_equal(one.ppf(LEVELS), one.icdf(LEVELS))
    assert np.array_equal(one.median(), one.icdf(0.5))
    assert np.array_equal(one.pit(Y[:M]), one.cdf(Y[:M]))
    assert np.array_equal(one.std(), np.sqrt(one.var()))
    low, high = one.interval(0.8)
    assert one.cdf(low) == pytest.approx(0.1)
    assert one.cdf(high) == pytest.approx(0.9)
    assert one.interval()[0] == pytest.approx(one.icdf(0.05))


def test_quantiles_of_zero_and_one_are_the_ends_of_the_support(model):
    """Also where all outcomes are positive or all negative."""
    for shift in (0.0, 100.0, -100.0):
        found = fit(Y + shift, max_trees=2).predict_distribution(X[:M])
        assert (found.icdf([0.0, 1.0]) == [-np.inf, np.inf]).all()
    bounded = fit(Y, max_trees=2, bounds=(-10, 20)).predict_distribution(X[:M])
    assert (bounded.icdf([0.0, 1.0]) == [-10, 20]).all()


def test_infinite_outcomes_are_the_ends(one):
    ends = np.tile([-np.inf, np.inf], (M, 1))
    assert (one.pdf(ends) == 0).all()
    assert (one.cdf(ends) == [0.0, 1.0]).all()


# Densities


def axis_with_tails(low, high, n):
    """Midpoints and weights of the real line: n even steps inside the box, n / 4 growing ones each side."""
    edges = np.expm1(np.linspace(0, 12, n // 4 + 1))
    edges = np.concatenate([-edges[:0:-1], np.linspace(0, 1, n + 1), 1 + edges[1:]])
    edges = low + (high - low) * edges
    return (edges[1:] + edges[:-1]) / 2, np.diff(edges)


def test_density_integrates_to_one_with_its_tails(one, branches):
    for distribution in (one, branches):
        support = distribution._mixture.members[0].base
        y, weight = axis_with_tails(support.low[0], support.high[0], 50_000)
        density = distribution.pdf(np.tile(y, (M, 1)))
        assert density @ weight == pytest.approx(1.0, abs=1e-3)
        beyond = (y < support.low) | (y > support.high)
        in_tails = density[:, beyond] @ weight[beyond]
        assert in_tails == pytest.approx(1 / (N + 1), rel=0.02)


def test_density_of_two_outcomes_integrates_to_one_with_its_tails(two):
    support = two._mixture.members[0].base
    axes = [axis_with_tails(low, high, 400) for low, high in zip(support.low, support.high, strict=True)]
    y = np.stack(np.meshgrid(axes[0][0], axes[1][0], indexing="ij"), axis=-1).reshape(1, -1, 2)
    weight = np.outer(axes[0][1], axes[1][1]).ravel()
    for row in range(2):
        assert two[row].pdf(y) @ weight == pytest.approx(1.0, abs=2e-3)


# Moments and CRPS against brute force; the accuracies are those that distribution.py states


def brute_quantiles(distribution, n=50_000):
    return distribution.icdf((np.arange(n) + 0.5) / n)


@pytest.mark.parametrize("name", ["one", "branches"])
def test_mean_and_standard_deviation(name, request):
    distribution = request.getfixturevalue(name)
    draws = brute_quantiles(distribution)
    mean, std = draws.mean(axis=1), draws.std(axis=1)
    assert (np.abs(distribution.mean() - mean) < 1e-3 * std).all()
    assert distribution.std() == pytest.approx(std, rel=0.01)
    assert distribution.var() == pytest.approx(std**2, rel=0.02)


@pytest.mark.parametrize("name", ["one", "branches"])
def test_crps(name, request):
    """Against the integral of (F - 1[y <= t])^2."""
    distribution = request.getfixturevalue(name)
    truth = np.linspace(-1.5, 1.5, M)
    far = np.geomspace(4, 1e4, 2001)
    grid = np.concatenate([-far[::-1], np.linspace(-4, 4, 40_001)[1:-1], far])
    cdf = distribution.cdf(np.tile(grid, (M, 1)))
    exact = np.trapezoid((cdf - (grid >= truth[:, None])) ** 2, grid, axis=1)
    error = np.abs(distribution.crps(truth) - exact) / distribution.std()
    assert (error < 2e-3).all()


def test_moments_of_two_outcomes(two):
    draws = two.sample(100_000, random_state=0)
    std = draws.std(axis=1)
    assert (np.abs(two.mean() - draws.mean(axis=1)) < 0.02 * std).all()
    assert two.std() == pytest.approx(std, rel=0.1)
    assert two.var() == pytest.approx(two.std() ** 2)


def test_the_mean_is_near_the_truth(model):
    truth = np.sin(3 * X[:, 0])
    assert np.corrcoef(model.predict(X), truth)[0, 1] > 0.95


# Samples


def test_samples_follow_the_cdf(one):
    draws = one.sample(4000, random_state=1)
    for row, u in enumerate(one.cdf(draws)):
        assert kstest(u, "uniform").pvalue > 1e-3, row


def test_samples_of_two_outcomes_have_independent_uniform_pit(two):
    u = two.pit(two.sample(4000, random_state=1))
    for row in range(M):
        assert kstest(u[row, :, 0], "uniform").pvalue > 1e-3
        assert kstest(u[row, :, 1], "uniform").pvalue > 1e-3
        assert abs(np.corrcoef(u[row].T)[0, 1]) < 0.06


def test_samples_are_reproducible(model, model_of_two):
    for found in (model, model_of_two):
        distribution = found.predict_distribution(X[:M])
        same = distribution.sample(5, random_state=3)
        assert np.array_equal(distribution.sample(5, random_state=3), same)
        assert np.array_equal(found.sample(X[:M], 5, random_state=3), same)
        assert not np.array_equal(distribution.sample(5, random_state=4), same)
        assert not np.array_equal(distribution.sample(5), distribution.sample(5))


@pytest.mark.parametrize("kind", [np.random.RandomState, np.random.default_rng])
def test_samples_accept_every_generator(model, kind):
    distribution = model.predict_distribution(X[:M])
    assert np.array_equal(distribution.sample(3, kind(0)), distribution.sample(3, kind(0)))
    assert np.array_equal(model.sample(X[:M], 3, kind(0)), model.sample(X[:M], 3, kind(0)))


# Rows


@pytest.mark.parametrize("rows", [slice(1, 4), [0, 3, 3], np.arange(M) % 2 == 0, slice(None, None, -1)])
def test_slices_are_distributions_of_some_rows(one, two, rows):
    assert one[rows].mean() == pytest.approx(one.mean()[rows], rel=1e-12)
    assert np.array_equal(one[rows].icdf([0.1, 0.5]), one.icdf([0.1, 0.5])[rows])
    assert np.array_equal(one[rows].logpdf(Y[:M][rows]), one.logpdf(Y[:M])[rows])
    assert np.array_equal(two[rows].logpdf(TWO[:M][rows]), two.logpdf(TWO[:M])[rows])
    assert len(one[rows]) == len(np.arange(M)[rows])


def test_one_row_is_a_distribution_of_length_one(one):
    for row in (2, -4, np.int64(2)):
        assert len(one[row]) == 1
        assert np.array_equal(one[row].median(), one.median()[2:3])
    with pytest.raises(IndexError):
        one[M]


def test_looping_over_a_distribution_ends(one):
    assert [len(row) for row in one] == [1] * M


# Marginals


def test_marginals_of_two_outcomes(two):
    draws = two.sample(20_000, random_state=0)
    for j in (0, 1, -1):
        marginal, exact = two.marginal(j), draws[..., j]
        std = exact.std(axis=1)
        assert len(marginal) == M
        assert (np.abs(marginal.mean() - exact.mean(axis=1)) < 0.03 * std).all()
        assert marginal.std() == pytest.approx(std, rel=0.1)
        assert marginal.var() == pytest.approx(marginal.std() ** 2)
        middle = np.median(exact, axis=1)
        assert marginal.cdf(middle) == pytest.approx(0.5, abs=0.03)
        assert (np.abs(marginal.median() - middle) < 0.1 * std).all()
        assert marginal.icdf(0.5).shape == (M,)
        assert marginal.ppf([0.1, 0.5, 0.9]).shape == (M, 3)
        assert (np.diff(marginal.icdf([0.1, 0.5, 0.9]), axis=1) > 0).all()
        low, high = marginal.interval(0.8)
        assert marginal.cdf(high) - marginal.cdf(low) == pytest.approx(0.8, abs=0.01)


def test_marginal_refuses_outcomes_of_another_shape(two):
    with pytest.raises(ValueError, match=r"Expected y of shape \(6,\) or \(6, m\), .*; got \(5,\)"):
        two.marginal(0).cdf(np.zeros(5))


def test_marginal_of_one_outcome_is_itself(one):
    assert one.marginal(0) is one
    assert one.marginal(-1) is one


# Bounds


@pytest.mark.parametrize(("low", "high"), [(0.0, None), (None, 8.0), (0.0, 8.0)])
def test_bounds_are_hard(low, high):
    y = np.minimum(np.exp(Y), 8.0)
    found = fit(y, bounds=(low, high)).predict_distribution(X[:M])
    draws = found.sample(5000, random_state=0)
    for bound, outside, mass in ((low, -1.0, 0.0), (high, 9.0, 1.0)):
        beyond = np.full(M, outside)
        if bound is None:
            assert np.isfinite(found.logpdf(beyond)).all()
            assert (found.cdf(beyond) != mass).all()
        else:
            assert (found.logpdf(beyond) == -np.inf).all()
            assert (found.pdf(beyond) == 0).all()
            assert (found.cdf(beyond) == mass).all()
            assert found.icdf(mass) == pytest.approx(bound, abs=1e-290)
            assert np.isfinite(found.logpdf(np.full(M, bound))).all()
    assert low is None or draws.min() >= low
    assert high is None or draws.max() <= high
    assert np.isfinite(found.logpdf(draws)).all()
    brute = brute_quantiles(found)
    assert (np.abs(found.mean() - brute.mean(axis=1)) < 1e-3 * brute.std(axis=1)).all()


def test_samples_stay_inside_bounds_that_are_no_round_numbers():
    """Outcomes at the bounds themselves: the way back from the cube must not round past them."""
    low, high = 1000.1, 1000.3
    y = np.clip(1000.2 + 0.1 * Y, low, high)
    found = fit(y, bounds=(low, high)).predict_distribution(X[:50])
    draws = found.sample(5000, random_state=0)
    assert draws.min() >= low
    assert draws.max() <= high
    assert np.isfinite(found.logpdf(draws)).all()


def test_bounds_of_each_outcome():
    y = np.column_stack([np.exp(Y), Y])
    found = fit(y, bounds=[(0, None), None], max_trees=3)
    assert (found.log_prob(X[:1], [[-0.1, 0.0]]) == -np.inf).all()
    assert np.isfinite(found.log_prob(X[:1], [[0.1, -50.0]])).all()
    assert found.sample(X[:20], 500, random_state=0)[..., 0].min() >= 0


def test_one_pair_of_bounds_serves_all_outcomes():
    y = np.column_stack([np.exp(Y), np.exp(-Y)])
    found = fit(y, bounds=(0, None), max_trees=3)
    assert (found.log_prob(X[:2], [[-0.1, 1.0], [1.0, -0.1]]) == -np.inf).all()
