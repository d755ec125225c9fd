"""The benchmark of known truths: its densities, simple methods, measures and page, and two small fits."""

import warnings
from dataclasses import asdict

import numpy as np
import pytest
from scipy.stats import kstest, multivariate_t, norm, t

from benchmarks import cli
from benchmarks.honest import measures, moments, page, run, scoring, simple, variants
from benchmarks.honest.cases import CASES, METHODS, Target
from benchmarks.honest.fitter import Fitter
from benchmarks.honest.outside import DISTANCES, OUTSIDE
from benchmarks.honest.questions import QUESTIONS
from benchmarks.honest.run import honest_runs, run_honest, score_honest
from benchmarks.honest.truths import JOINT, TRUTHS, VALUES, grouped, is_unseen, levels, with_gaps
from benchmarks.peers.linear import LinearGaussian
from benchmarks.rows import Run, Store

EFFECTS = np.random.default_rng(1).normal(size=5)
ONE_OUTCOME = {
    **TRUTHS,
    **{f"outside_{name}": asked.truth for name, asked in OUTSIDE.items()},
    "grouped": grouped(),
    "with_gaps": with_gaps(),
    "levels": levels(EFFECTS, new=0.5),
}


# Truths


def at_row(x, i, m):
    """Row i of an array or frame m times."""
    return x.iloc[[i] * m].reset_index(drop=True) if hasattr(x, "iloc") else x[[i] * m]


def masses(truth, x, i, center, scale, points=4000):
    """Levels u of a Cauchy that cover all outcomes, and the truth's mass in the cells about them, at row i of x."""
    u = (np.arange(points) + 0.5) / points
    z = np.tan(np.pi * (u - 0.5))
    density = np.exp(truth.log_density(at_row(x, i, points), center + scale * z))
    return u, density * scale * np.pi * (1 + z**2) / points


@pytest.mark.parametrize("name", ONE_OUTCOME)
def test_density_integrates_to_one_and_draws_agree_with_it(name):
    truth, rng = ONE_OUTCOME[name], np.random.default_rng(0)
    x = truth.covariates(40, rng)
    unusual = np.flatnonzero(is_unseen(x) if name == "levels" else np.isnan(np.asarray(x)[:, 0]))
    for i in [0, *unusual[:1]]:
        draws = truth.draw(at_row(x, i, 20_000), rng)[::10]  # rows of a group share an effect
        low, center, high = np.quantile(draws, [0.25, 0.5, 0.75])
        u, mass = masses(truth, x, i, center, high - low)
        assert abs(mass.sum() - 1) < 2e-3
        level = np.interp(np.arctan((draws - center) / (high - low)) / np.pi + 0.5, u, np.cumsum(mass) - mass / 2)
        assert kstest(level, "uniform").statistic < 0.045


def test_gaps_and_unseen_levels_make_outcomes_wider():
    rng = np.random.default_rng(0)
    x, y = with_gaps().rows(4000, rng)
    gap = np.isnan(x[:, 0])
    assert 0.08 < gap.mean() < 0.12
    assert not np.isnan(x[:, 1:]).any()
    assert np.std(y[gap] + 0.5 * x[gap, 1] - 0.25 * x[gap, 2]) == pytest.approx(np.hypot(1, 0.5), rel=0.1)
    frame, _ = levels(EFFECTS, new=0.5).rows(1000, rng)
    assert 0.45 < is_unseen(frame).mean() < 0.55
    assert set(frame["level"][~is_unseen(frame)]) == {f"level {k}" for k in range(5)}
    assert not is_unseen(levels(EFFECTS).covariates(100, rng)).any()


def test_rows_of_a_group_share_columns_and_an_effect():
    x, y = grouped().rows(4000, np.random.default_rng(0))
    first = x.reshape(400, 10, 5)
    assert (first[:, :, :3] == first[:, :1, :3]).all()
    residual = (y - x[:, :3] @ [1, -0.5, 0.25]).reshape(400, 10)
    assert residual.mean(axis=1).std() == pytest.approx(1.0, rel=0.1)
    assert residual.std(axis=1).mean() == pytest.approx(0.3, rel=0.1)


@pytest.mark.parametrize("name", ["joint_2", "skewed"])
def test_density_of_two_outcomes_agrees_with_draws_in_boxes(name):
    truth, rng = JOINT[name], np.random.default_rng(0)
    x = truth.covariates(1, rng)
    draws = truth.draw(at_row(x, 0, 40_000), rng)
    low, high = draws.mean(axis=0) - 9 * draws.std(axis=0), draws.mean(axis=0) + 9 * draws.std(axis=0)
    axes = [np.linspace(low[j], high[j], 600) for j in range(2)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    mass = np.exp(truth.log_density(at_row(x, 0, len(grid)), grid)) * np.prod([axis[1] - axis[0] for axis in axes])
    assert mass.sum() == pytest.approx(1, abs=0.01)
    for level in (0.2, 0.5, 0.8):
        corner = np.quantile(draws, level, axis=0)
        assert mass[(grid <= corner).all(axis=1)].sum() == pytest.approx(
            np.mean((draws <= corner).all(axis=1)), abs=0.02
        )


@pytest.mark.parametrize("d", [4, 8])
def test_density_of_many_outcomes_integrates_to_one_over_its_draws(d):
    truth, rng = JOINT[f"joint_{d}"], np.random.default_rng(0)
    x = at_row(truth.covariates(1, rng), 0, 40_000)
    y = truth.draw(x, rng)
    root = 0.8 * np.linalg.cholesky(np.cov(y.T))
    inner = norm.logpdf(np.linalg.solve(root, (y - y.mean(axis=0)).T)).sum(axis=0) - np.log(np.diag(root)).sum()
    assert np.mean(np.exp(inner - truth.log_density(x, y))) == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize(("name", "values"), [("binary", range(2)), ("counts", range(6))])
def test_probabilities_of_few_values_sum_to_one_and_draws_agree(name, values):
    truth, rng = VALUES[name], np.random.default_rng(0)
    x = truth.covariates(1, rng)
    draws = truth.draw(at_row(x, 0, 20_000), rng)
    chance = np.array([np.exp(truth.log_density(x, np.array([float(value)])))[0] for value in values])
    assert chance.sum() == pytest.approx(1)
    assert np.abs(chance - [np.mean(draws == value) for value in values]).max() < 0.015


def test_lines_end_at_the_edge_of_the_data():
    rng = np.random.default_rng(0)
    for asked in OUTSIDE.values():
        x, edges = asked.truth.covariates(2000, rng), asked.lines(rng)
        inverse = np.linalg.inv(asked.shape)
        assert np.allclose(np.linalg.norm(edges @ inverse.T, axis=1), 1)
        assert 0.9 < np.linalg.norm(x @ inverse.T, axis=1).max() <= 1
    along, across = np.linalg.norm(OUTSIDE["correlated"].shape, axis=0)
    assert along == pytest.approx(20 * across)
    assert len(OUTSIDE) == 10


# Simple methods


@pytest.mark.parametrize(
    ("truth", "method", "n", "at_most"),
    [
        ("linear", simple.least_squares, 1000, 0.01),
        ("linear", simple.student, 1000, 0.01),
        ("scales", simple.linear_scales, 1000, 0.02),
        ("t3", simple.student, 1000, 0.01),
        ("cauchy", simple.student, 1000, 0.015),
        ("wide_200", simple.lasso, 300, 0.08),
        ("smooth", simple.polynomial, 1000, 0.4),
    ],
)
def test_simple_method_comes_near_its_truth(truth, method, n, at_most):
    rng = np.random.default_rng(0)
    log_prob = method(*TRUTHS[truth].rows(n, rng))
    x, y = TRUTHS[truth].rows(4000, rng)
    assert -0.005 < np.mean(TRUTHS[truth].log_density(x, y) - log_prob(x, y)) < at_most


def test_least_squares_has_the_predictive_t():
    rng = np.random.default_rng(0)
    z = np.column_stack([np.ones(12), rng.normal(size=12)])
    x, y, x_new, y_new = z[:, 1:], rng.normal(size=(12, 2)), np.array([[1.5]]), np.array([[0.3, -0.8]])
    slopes = np.linalg.lstsq(z, y, rcond=None)[0]
    residuals = y - z @ slopes
    asked = np.array([1.0, 1.5])
    widening = 1 + asked @ np.linalg.inv(z.T @ z) @ asked
    one = t.logpdf(0.3, 10, asked @ slopes[:, 0], np.sqrt(widening * np.sum(residuals[:, 0] ** 2) / 10))
    assert simple.least_squares(x, y[:, 0])(x_new, y_new[:, 0]) == pytest.approx(one)
    both = multivariate_t(asked @ slopes, widening * residuals.T @ residuals / 9, df=9).logpdf(y_new[0])
    assert simple.least_squares(x, y)(x_new, y_new) == pytest.approx(both)


def test_mixed_model_shrinks_known_levels_and_widens_unknown_ones():
    rng = np.random.default_rng(0)
    effects = rng.normal(size=200)
    log_prob = simple.of_levels(*levels(effects).rows(2000, rng))
    source = levels(effects, new=0.5)
    x, y = source.rows(4000, rng)
    gap, unseen = source.log_density(x, y) - log_prob(x, y), is_unseen(x)
    assert gap[unseen].mean() < 0.03
    assert 0.02 < gap[~unseen].mean() < 0.08  # a level of ten rows is known to 0.16, noise is 0.5: about 0.05


def test_least_squares_does_without_what_is_missing():
    rng = np.random.default_rng(0)
    log_prob = simple.without_gaps(*TRUTHS["linear"].rows(1000, rng))
    x, y = with_gaps().rows(4000, rng)
    gap = with_gaps().log_density(x, y) - log_prob(x, y)
    assert abs(gap[np.isnan(x[:, 0])].mean()) < 0.03
    assert abs(gap[~np.isnan(x[:, 0])].mean()) < 0.02


@pytest.mark.parametrize("name", VALUES)
def test_logistic_regression_comes_near_the_probabilities(name):
    rng = np.random.default_rng(0)
    log_prob = simple.logistic(*VALUES[name].rows(1000, rng))
    x, y = VALUES[name].rows(4000, rng)
    assert -0.005 < np.mean(VALUES[name].log_density(x, y) - log_prob(x, y)) < 0.03


# Measures


class Normal:
    """Normal distributions of mean 0 and standard deviations (n,)."""

    def __init__(self, std):
        self.std = std

    def __len__(self):
        return len(self.std)

    def cdf(self, y):
        return norm.cdf(y.T / self.std).T

    def interval(self, level):
        half = self.std * norm.ppf((1 + level) / 2)
        return -half, half


def test_coverage_overall_and_by_thirds():
    rng = np.random.default_rng(0)
    x0, y = rng.normal(size=(2, 30_000))
    right = measures.coverage(Normal(np.ones(30_000)), y, x0)
    assert [right[f"coverage_{level}"] for level in (50, 90, 99)] == pytest.approx([0.5, 0.9, 0.99], abs=0.01)
    assert [right[name] for name in measures.THIRDS] == pytest.approx([0.9] * 3, abs=0.015)
    upper = x0 > np.quantile(x0, 2 / 3)
    wrong = measures.coverage(Normal(np.where(upper, 0.5, 1.0)), y, x0)
    expected = 2 * norm.cdf(0.5 * norm.ppf(0.95)) - 1
    assert [wrong[name] for name in measures.THIRDS] == pytest.approx([0.9, 0.9, expected], abs=0.015)
    assert set(measures.coverage(Normal(np.ones(3)), y[:3])) == {"coverage_50", "coverage_90", "coverage_99"}


def test_levels_by_draws_are_uniform():
    rng = np.random.default_rng(0)
    level = measures.levels_by_draws(rng.normal(size=(5000, 19)), rng.normal(size=5000), rng)
    assert kstest(level, "uniform").pvalue > 0.001
    shifted = measures.levels_by_draws(rng.normal(size=(5000, 19)), rng.normal(1.0, size=5000), rng)
    assert shifted.mean() == pytest.approx(norm.cdf(1 / np.sqrt(2)), abs=0.02)


def test_gaps_and_differences():
    true, fitted, other = np.array([0.0, -1.0]), np.array([-0.5, -1.1]), np.array([-0.1, -1.1])
    found = measures.gaps(true, fitted, other)
    assert found == pytest.approx({"log_lik": -0.8, "worst_row": -1.1, "gap": 0.3, "simple_gap": 0.1, "behind": 0.2})
    assert measures.differences(true, fitted) == pytest.approx({"mean_difference": 0.3, "largest_difference": 0.5})
    assert measures.farthest(np.array([1.01, 0.97])) == pytest.approx(0.03)


def test_probability_of_a_cell_and_crps_of_draws():
    found = measures.log_mass(Normal(np.ones(2)), np.array([0.0, 90.0]))
    assert found[0] == pytest.approx(np.log(norm.cdf(0.5) - norm.cdf(-0.5)))
    assert np.isfinite(found[1])
    draws = np.random.default_rng(0).normal(size=(1, 100_000))
    exact = 0.7 * (2 * norm.cdf(0.7) - 1) + 2 * norm.pdf(0.7) - 1 / np.sqrt(np.pi)
    assert measures.crps_of_draws(draws, np.array([0.7])) == pytest.approx(exact, abs=0.005)


# Ways of trying a model, on models that are known to be right or wrong


class LeastSquares:
    """Stands for a `Fitter`: fits by least squares; weights mean that rows count twice."""

    def __call__(self, x, y, params=None, sample_weight=None):
        if sample_weight is not None:
            x, y = x.repeat(2, axis=0), y.repeat(2)
        return LinearGaussian(0, 1).fit(x, y)


def test_variants_are_compared_with_their_counterparts():
    rng = np.random.default_rng(0)
    names = ("weight_2", "twice", "bootstrap", "order", "exponential")
    found = variants.try_variants(LeastSquares(), rng, n=300, names=names)
    assert found["twice_largest_difference"] < 1e-8
    assert found["order_largest_difference"] < 1e-8
    assert found["bootstrap_largest_difference"] > 1e-3
    assert found["bootstrap_coverage_change"] == found["bootstrap_coverage_90"] - found["plain_coverage_90"] != 0
    assert found["plain_lost"] == 0
    assert found["exponential_lost"] > 0.1
    assert found["exponential_lost"] == pytest.approx(found["exponential_gap"] - found["plain_gap"])


def test_intervals_that_narrow_outside_are_found():
    class Model:
        def __init__(self, power):
            self.power = power

        def predict_distribution(self, x):
            return Normal(np.maximum(np.abs(x[:, 0]), 0.5) ** self.power)

    def tried(power):
        return scoring.try_outside(lambda x, y: Model(power), np.random.default_rng(0), truth="line", n=50)

    assert tried(1.0)["narrowest"] == pytest.approx(1.5)
    assert tried(0.0)["narrowest"] == 1
    assert tried(-1.0)["ratio_5"] == tried(-1.0)["narrowest"] == pytest.approx(0.1)
    assert set(tried(1.0)) == {*(f"ratio_{k:g}" for k in DISTANCES), "narrowest", "coverage_90_outside"}


class Pair:
    """Two independent normal outcomes at n rows; what it says of itself is off by the factor `off`."""

    def __init__(self, n, off, grid=None):
        self.n, self.off, self.grid = n, off, grid

    def fit(self, x, y, params=None):
        return Pair(self.n, self.off, (params or {}).get("resolution"))

    def predict_distribution(self, x):
        return Pair(len(x), self.off, self.grid)

    def sample(self, m, random_state):
        return np.random.default_rng(random_state).normal(size=(self.n, m, 2))

    def mean(self):
        return np.zeros((self.n, 2))

    def std(self):
        return np.full((self.n, 2), self.off)

    def marginal(self, j):
        return Normal(np.full(self.n, self.off))

    def logpdf(self, y):
        edges = np.diff(norm.cdf([y - self.grid / 2, y + self.grid / 2]), axis=0)[0] / self.grid
        return np.log(self.off * np.maximum(edges, 1e-300)).sum(axis=-1) - np.log(self.off)


@pytest.mark.parametrize("off", [1.0, 1.05])
def test_moments_that_are_off_are_found(monkeypatch, off):
    monkeypatch.setattr(moments, "DRAWS", 40_000)
    found = moments.try_moments(Pair(0, off).fit, np.random.default_rng(0), n=50)
    assert [found[name] for name in ("std_error", "cells_error")] == pytest.approx([off - 1] * 2, abs=0.015)
    assert found["std_ratio"] == pytest.approx(off, abs=0.01)
    assert found["marginal_99_ratio"] == pytest.approx(off, abs=0.02)
    assert found["marginal_99_error"] < off - 1 + 0.04
    assert found["mean_error"] < 0.02
    assert found["marginal_tail"] == pytest.approx(norm.cdf(norm.ppf(1e-4) / off) / 1e-4, rel=0.5)


def test_a_fitter_knows_what_fit_takes_and_what_was_said():
    heard = []
    fit = Fitter(Run("linear_200", 0, "treecdf_fast", 0), heard)
    assert fit.takes("sample_weight")
    assert not fit.takes("nothing")
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warnings.warn("Use groups= here.", UserWarning, stacklevel=1)
        heard += found * 2
    assert fit.told == ["Use groups= here."]
    assert fit.said("atoms", "groups=") == 1
    assert fit.said("atoms") == 0


# The page


@pytest.fixture
def store(tmp_path, monkeypatch):
    for module in (run, page):
        monkeypatch.setattr(module, "Store", lambda name: Store(name, tmp_path))
    return Store("honest", tmp_path)


def keep(store, case, value, seed=0, method="treecdf", commit="new"):
    """Store a row whose metrics all have the same value."""
    columns = [key for question in QUESTIONS.values() for column in question.columns for key in column.keys]
    metrics = dict.fromkeys([*columns, *(target.key for target in CASES[case].targets)], value)
    told = {"settings": {}, "seconds": {"fit": 1.0, "fit_cpu": 1.0}, "commit": commit, "told": []}
    store.append(asdict(Run(case, seed, method, seed)) | told | {"metrics": metrics})


def lines_of(case, target, text):
    found = [line for line in text if line.startswith(f"| {CASES[case].words} |") and target.words in line]
    assert len(found) == 1
    return [cell.strip() for cell in found[0].strip("|").split("|")]


def test_page_says_which_targets_are_met(store):
    assert page.honest_page() == []
    for seed in range(2):
        keep(store, "wide_200", 0.02 + 0.02 * seed, seed)
        keep(store, "wide_500", 0.02, seed)
    text = page.honest_page()
    behind, seconds = CASES["wide_200"].targets
    assert lines_of("wide_200", behind, text)[4:] == ["0.030 ± 0.010", "at most 0.03", "yes"]
    assert lines_of("wide_500", behind, text)[4:6] == ["0.020 ± 0.000", "at most 0.03"]
    assert lines_of("wide_500", seconds, text)[6] == "yes"
    keep(store, "wide_500", 0.2, 0)
    again = page.honest_page()
    assert lines_of("wide_500", behind, again)[4:] == ["0.110 ± 0.090", "at most 0.03", "**no**"]
    assert "| **all** | 3 of 4 |" in again
    assert not [line for line in again if "first measured |" in line]


def test_page_has_the_first_measurement_beside_a_later_one(store):
    keep(store, "outside_square", 0.4, commit="old")
    keep(store, "outside_line", 1.1, commit="old")
    keep(store, "outside_square", 1.2)
    text = page.honest_page()
    (target,) = CASES["outside_square"].targets
    assert lines_of("outside_square", target, text)[4:] == ["1.200", "at least 0.995", "yes", "0.400"]
    assert lines_of("outside_line", target, text)[4:] == ["1.100", "at least 0.995", "yes", ""]


def test_page_has_all_questions_failures_and_what_is_missing(store):
    for case in list(CASES)[:-1]:
        for method in METHODS:
            if (case, method) != ("binary_given", "treecdf"):
                keep(store, case, 0.9, method=method)
    store.append(asdict(Run("binary_given", 0, "treecdf", 0)) | {"error": "ValueError: no"})
    text = page.honest_page()
    for question in QUESTIONS.values():
        assert f"## {question.title}" in text
    assert "- 0/1, atoms=[0, 1], treecdf, seed 0: ValueError: no" in text
    (target,) = CASES["binary_given"].targets
    failed = [line for line in text if "atoms=[0, 1] " in line and target.words in line]
    assert len(failed) == 1
    assert "| failed | at least 1 | **no** |" in failed[0]
    assert f"Not measured with `treecdf` yet: {list(CASES)[-1]}." in text
    assert "nan" not in "\n".join(text)


def test_targets_of_fast_are_those_that_name_it(store):
    keep(store, "cauchy_1000", 0.0, method="treecdf_fast")
    keep(store, "linear_200", 0.0, method="treecdf_fast")
    text = "\n".join(page.honest_page())
    assert "nats behind a t regression" in text
    assert "nats behind least squares" not in text


def test_targets_are_limits_on_both_sides():
    both = Target("a", "a", 0.1, 0.2)
    assert all(both.is_met(value) for value in (0.1, 0.15, 0.2))
    assert not any(both.is_met(value) for value in (0.05, 0.25, np.nan))
    assert Target("a", "a", high=0.0).is_met(-1.0)
    assert not Target("a", "a", low=0.0).is_met(-1.0)


def test_every_case_belongs_to_a_question_and_has_a_line_of_its_own():
    assert {case.question for case in CASES.values()} == set(QUESTIONS)
    assert len({(case.words, case.n) for case in CASES.values()}) == len(CASES)


def test_committed_rows_have_the_figures_of_their_targets():
    good = [row for row in Store("honest").read() if "error" not in row and row["dataset"] in CASES]
    assert {row["dataset"] for row in good} > {"linear_200", "repeated_400", "outside_square"}
    for row in good:
        assert {target.key for target in CASES[row["dataset"]].targets} <= set(row["metrics"]), row["dataset"]


# Runs


def test_two_small_fits_cover_about_what_they_say(store, monkeypatch):
    monkeypatch.setattr(scoring, "FRESH", 1000)
    found = score_honest(Run("linear_200", 0, "treecdf_fast", 0))
    assert found["n_train"] == 200
    assert 0.35 < found["metrics"]["coverage_50"] < 0.62
    assert 0.8 < found["metrics"]["coverage_90"] < 0.96
    assert found["metrics"]["coverage_99"] > 0.95
    assert 0 < found["metrics"]["gap"] < 0.15
    assert found["metrics"]["behind"] == found["metrics"]["gap"] - found["metrics"]["simple_gap"]
    counts = score_honest(Run("counts_step", 0, "treecdf_fast", 0))
    assert counts["settings"]["resolution"] == 1
    assert 0.8 < counts["metrics"]["draws_are_values"] <= 1
    assert 0 < counts["metrics"]["gap"] < 0.3
    store.append(asdict(Run("linear_200", 0, "treecdf_fast", 0)) | found)
    assert any(line.startswith("| linear, normal | 200 | treecdf_fast | 1 |") for line in page.honest_page())


def test_stored_runs_are_made_again_only_when_asked(store, monkeypatch):
    made = []
    monkeypatch.setattr(run, "run_all", lambda runs, *how: made.append(list(runs)))
    runs = honest_runs(2, ["treecdf"], ["linear_200", "wide_200"])
    keep(store, "linear_200", 0.1)
    store.append(asdict(Run("wide_200", 0, "treecdf", 0)) | {"error": "no"})
    for retry, again in ((False, False), (True, False), (False, True)):
        run_honest(runs, 1, retry, again, None)
    assert made[0] == [Run(name, 1, "treecdf", 1) for name in ("linear_200", "wide_200")]
    assert made[1] == [Run("wide_200", 0, "treecdf", 0), *made[0]]
    assert made[2] == runs
    assert len(honest_runs()) == run.SEEDS * len(CASES) * len(METHODS)


def test_the_command_prints_the_page(store, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(cli, "RESULTS", tmp_path / "docs" / "results")
    asked = []
    monkeypatch.setattr(cli, "run_honest", lambda *given: asked.append(given))
    keep(store, "linear_200", 0.9)
    assert cli.main(["honest", "--truths", "linear_200", "--splits", "1", "--methods", "treecdf", "--again"]) == 0
    assert asked == [([Run("linear_200", 0, "treecdf", 0)], 1, False, True, None)]
    assert "## Normal noise" in capsys.readouterr().out
    assert (tmp_path / "docs" / "results" / "honest.md").exists()
    with pytest.raises(SystemExit):
        cli.main(["honest", "--truths", "nothing"])
