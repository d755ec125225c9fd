"""The benchmark of shapes: densities that are exact, measures that tell right from wrong, runs and the page."""

from dataclasses import asdict

import numpy as np
import pytest
from scipy.stats import kstest, norm

from benchmarks import cli
from benchmarks.distributions import Normal
from benchmarks.methods import METHODS as ALL_METHODS
from benchmarks.peers.common import Peer
from benchmarks.rows import Run, Store
from benchmarks.shapes import page, picture, run
from benchmarks.shapes.cases import CASES, METHODS, N_ROWS, OF_MANY_ROWS, ONE_OUTCOME, OURS, PEERS, SEEDS, shapes_runs
from benchmarks.shapes.run import score_shapes
from benchmarks.shapes.truths import SHAPES, _fold
from treecdf.cli import demo

ONE = [name for name, shape in SHAPES.items() if shape.d == 1]
TWO = [name for name, shape in SHAPES.items() if shape.d == 2]


# Truths


def test_the_list_is_broad():
    assert len(SHAPES) >= 14
    assert sum(shape.is_control for shape in SHAPES.values()) == 4
    assert len(TWO) == 2
    assert len({shape.words for shape in SHAPES.values()}) == len(SHAPES)
    widths = {SHAPES[name].sample(3, np.random.default_rng(0))[0].shape[1] for name in SHAPES}
    assert widths == {1, 5, 20}


@pytest.mark.parametrize("name", ONE)
def test_density_integrates_to_one_and_draws_agree_with_it(name):
    shape, rng = SHAPES[name], np.random.default_rng(0)
    for row in shape.covariates(3, rng):
        draws = shape.draw(np.tile(row, (4000, 1)), rng)
        reach = 200.0 if name == "heavy" else 6.0  # a mode may be too rare for the draws
        grid = np.linspace(draws.min() - reach, draws.max() + reach, 20_001)
        density = np.exp(shape.log_density(np.tile(row, (len(grid), 1)), grid))
        cdf = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2 * (grid[1] - grid[0]))])
        assert abs(cdf[-1] - 1) < 2e-3  # the jump at a hard end is known to half a cell
        assert kstest(np.interp(draws, grid, cdf), "uniform").pvalue > 1e-4


@pytest.mark.parametrize("name", TWO)
def test_density_of_two_outcomes_integrates_to_one_and_agrees_with_draws_in_boxes(name):
    shape, rng = SHAPES[name], np.random.default_rng(0)
    axis = np.linspace(-3, 3, 201)
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    for x in (-0.7, 0.6):
        mass = np.exp(shape.log_density(np.full((len(points), 1), x), points)) * (axis[1] - axis[0]) ** 2
        assert abs(mass.sum() - 1) < 1e-3
        draws = shape.draw(np.full((40_000, 1), x), rng)
        for corner in np.quantile(draws, [0.2, 0.5, 0.8], axis=0):
            inside = mass[(points <= corner).all(axis=1)].sum()
            assert inside == pytest.approx(np.mean((draws <= corner).all(axis=1)), abs=0.015)


def test_demo_is_that_of_the_command():
    rng = np.random.default_rng(0)
    x, y = demo.sample(1000, rng)
    assert np.allclose(SHAPES["demo"].log_density(x, y), np.log(demo.density(x[:, 0], y)))


def test_rows_of_the_fold_come_from_the_joint_density():
    shape, rng = SHAPES["folded"], np.random.default_rng(0)
    x, y = shape.sample(20_000, rng)
    assert kstest(y, "uniform").pvalue > 1e-3
    assert kstest((x[:, 0] - _fold(y)) / 0.05, "norm").pvalue > 1e-3
    assert shape.log_density(x[:2], np.array([-0.01, 1.01])).tolist() == [-np.inf, -np.inf]


def test_most_covariates_of_twenty_do_not_matter():
    shape, rng = SHAPES["moving_20"], np.random.default_rng(0)
    x, y = shape.sample(100, rng)
    other = np.column_stack([x[:, :3], rng.uniform(-1, 1, (100, 17))])
    assert np.array_equal(shape.log_density(x, y), shape.log_density(other, y))


# Measures, on models that are known to be right or wrong


class Truth:
    """The truth as a model of one or two outcomes."""

    def __init__(self, name):
        self.shape = SHAPES[name]

    def log_prob(self, x, y):
        return self.shape.log_density(x, y)

    def sample(self, x, n_samples, random_state):
        draws = self.shape.draw(np.repeat(x, n_samples, axis=0), np.random.default_rng(random_state))
        return draws.reshape(len(x), n_samples, *draws.shape[1:])


class Standard(Peer):
    """The control that does not depend on x, with a standard deviation that may be wrong."""

    def __init__(self, std):
        self.std = std

    def sample(self, x, n_samples, random_state):
        return np.random.default_rng(random_state).normal(scale=self.std, size=(len(x), n_samples))

    def log_prob(self, x, y):
        return norm.logpdf(y, scale=self.std)

    def predict_distribution(self, x):
        return Normal(np.zeros(len(x)), np.full(len(x), self.std))


def test_measures_of_a_right_and_a_wrong_normal():
    shape, rng = SHAPES["constant"], np.random.default_rng(0)
    x, y = shape.sample(10_000, rng)
    right = run.measured(Standard(1.0), shape, x, y, rng)
    assert right["gap"] == pytest.approx(0, abs=1e-12)
    assert right["crps_ratio"] == pytest.approx(1, abs=0.01)
    assert right["hdr_coverage"] == pytest.approx(0.9, abs=0.03)
    assert right["densities_cpu"] >= 0
    wrong = run.measured(Standard(2.0), shape, x, y, rng)
    assert wrong["gap"] == pytest.approx(np.log(2) - 0.5 * (1 - 0.25), abs=0.02)
    assert wrong["crps_ratio"] > 1.1
    assert wrong["hdr_coverage"] > 0.98


@pytest.mark.parametrize("name", TWO)
def test_joint_region_of_the_truth_covers(name):
    shape, rng = SHAPES[name], np.random.default_rng(0)
    x, y = shape.sample(1000, rng)
    found = run.measured(Truth(name), shape, x, y, rng)
    assert found["gap"] == 0
    assert found["hdr_coverage"] == pytest.approx(0.9, abs=0.03)
    assert "crps" not in found


def test_a_method_without_a_density_has_its_crps_alone():
    class Draws(Truth):
        has_density = False

    shape, rng = SHAPES["circle"], np.random.default_rng(0)
    found = run.measured(Draws("circle"), shape, *shape.sample(500, rng), rng)
    assert set(found) == {"crps", "crps_ratio"}
    assert found["crps_ratio"] == pytest.approx(1, abs=0.02)


def test_regions_of_our_models_are_those_of_hdr():
    class Two:
        def hdr(self, level):
            assert level == 0.9
            return [[(-6.0, -4.0), (4.0, 6.0)]] * 3, np.full(3, 0.9)

    class Model:
        def predict_distribution(self, x):
            return Two()

    assert run.in_region(Model(), np.zeros((3, 1)), np.array([-5.0, 0.0, 5.0])).tolist() == [True, False, True]


def test_regions_of_peers_leave_out_the_valley():
    class Fan(Truth, Peer):
        pass

    x, y = np.ones((3, 1)), np.array([-3.0, 0.75, 1.5])  # modes are 1.5 apart, and 0.15 wide
    assert run.in_region(Fan("fan"), x, y).tolist() == [True, False, True]


# Runs


@pytest.fixture
def store(tmp_path, monkeypatch):
    for module in (run, page):
        monkeypatch.setattr(module, "Store", lambda name: Store(name, tmp_path))
    return Store("shapes", tmp_path)


def keep(store, case, method, gap, seed=0):
    metrics = {"gap": gap, "hdr_coverage": 0.9, "crps_ratio": 1.1, "densities_cpu": 0.5}
    if method == "quantile_forest":
        metrics = {"crps_ratio": 1.1}
    told = {"settings": {}, "seconds": {"fit": 1.0, "fit_cpu": 1.0}, "commit": "c"}
    store.append(asdict(Run(case, seed, method, seed)) | told | {"metrics": metrics})


def test_runs_are_all_cases_and_methods_and_can_be_chosen():
    assert set(METHODS) <= set(ALL_METHODS)
    assert len(CASES) == len(N_ROWS) * len(SHAPES) + len(OF_MANY_ROWS)
    n_joint = len(TWO) * len(N_ROWS)
    assert len(shapes_runs()) == SEEDS * (len(CASES) * len(METHODS) - n_joint * len(ONE_OUTCOME))
    assert shapes_runs(1, ["mdn"], ["demo"], [3000]) == [Run("demo_3000", 0, "mdn", 0)]
    assert shapes_runs(1, ["quantile_forest"], ["ring"]) == []
    assert [one.dataset for one in shapes_runs(1, ["mdn"], ["demo", "ring"], [100_000])] == ["demo_100000"]


def test_stored_runs_are_made_again_only_when_asked(store, monkeypatch):
    made = []
    monkeypatch.setattr(run, "run_all", lambda runs, *how: made.append(list(runs)))
    runs = shapes_runs(1, ["mdn"], ["demo", "rare"], [1000])
    keep(store, "demo_1000", "mdn", 0.1)
    store.append(asdict(runs[1]) | {"error": "no"})
    for retry, again in ((False, False), (True, False), (False, True)):
        run.run_shapes(runs, 1, retry, again, None)
    assert made == [[], runs[1:], runs]


def test_a_small_fit_is_measured_and_methods_share_their_rows(monkeypatch):
    monkeypatch.setattr(run, "FRESH", 500)
    monkeypatch.setattr(run, "CRPS_ROWS", 200)
    monkeypatch.setattr(run, "REGION_ROWS", 200)
    found = score_shapes(Run("linear_1000", 0, "linear", 0))
    again = score_shapes(Run("linear_1000", 0, "treecdf_fast", 0))
    assert found["n_train"] == 1000
    assert abs(found["metrics"]["gap"]) < 0.03  # 500 rows know no better
    assert found["metrics"]["gap"] < again["metrics"]["gap"] < 0.1
    true = [one["metrics"]["log_lik"] + one["metrics"]["gap"] for one in (found, again)]
    assert true[0] == pytest.approx(true[1])
    assert 0.8 < again["metrics"]["hdr_coverage"] < 0.97


# Page


def test_page_has_verdicts_and_a_summary(store):
    assert page.shapes_page() == []
    for case, own, other in (("demo_3000", 0.02, 0.05), ("demo_1000", 0.058, 0.05), ("rare_3000", 0.2, 0.1)):
        keep(store, case, "treecdf", own)
        keep(store, case, "mdn", other)
        keep(store, case, "nsf", other + 0.01)
    keep(store, "linear_1000", "treecdf", 0.01)
    keep(store, "linear_1000", "ngboost_early", 150.0)
    keep(store, "linear_1000", "quantile_forest", None)
    store.append(asdict(Run("ring_1000", 0, "mdn", 0)) | {"error": "ValueError: no"})
    text = page.shapes_page()
    of_shapes = "| treecdf | shapes | 3 | 1 | 1 | 1 | rare, 3,000 rows: 0.100 |"
    assert of_shapes in text
    assert "| treecdf | unimodal controls | 1 | 1 | 0 | 0 |  |" in text
    assert "README's demo, 3,000 rows, gap in nats per row: treecdf 0.020, mdn 0.050, nsf 0.060." in text
    n_pairs = len(shapes_runs(1))
    assert any(line.startswith(f"12 of {n_pairs} pairs of a case and a method have been measured") for line in text)
    gaps = text[text.index("## Gap to the truth") :]
    assert any(line.endswith("| 3,000 | **0.020** | 0.050 | 0.060 |  | ahead by 0.030 |") for line in gaps)
    assert any(line.endswith("| 0.058 | **0.050** | 0.060 |  | level, 0.008 behind |") for line in gaps)
    assert any(line.endswith("| **behind by 0.100** |") for line in gaps)
    assert any("above 99" in line for line in gaps)
    assert "- ring, 1,000 rows, mdn, seed 0: ValueError: no" in text
    assert "nan" not in "\n".join(text)


def test_no_verdict_without_a_peer():
    assert page.verdict(None) == ""
    assert page.behind({"demo_1000": {}}, "demo_1000", OURS[0]) is None
    assert not set(OURS) & set(PEERS)


def test_the_command_runs_what_is_asked(store, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(cli, "RESULTS", tmp_path / "docs" / "results")
    asked, drawn = [], []
    monkeypatch.setattr(cli, "run_shapes", lambda *given: asked.append(given))
    monkeypatch.setattr(cli, "draw_shapes", lambda *given: drawn.append(given))
    keep(store, "demo_1000", "mdn", 0.1)
    chosen = ["--truths", "demo", "--seeds", "1", "--methods", "mdn", "--rows", "1000"]
    assert cli.main(["shapes", *chosen, "--again"]) == 0
    assert asked == [([Run("demo_1000", 0, "mdn", 0)], 1, False, True, None)]
    assert "## Gap to the truth" in capsys.readouterr().out
    assert (tmp_path / "docs" / "results" / "shapes.md").exists()
    assert cli.main(["shapes", "--picture", "--truths", "demo"]) == 0
    assert drawn == [(tmp_path / "docs" / "results" / "shapes.png", ["demo"], "treecdf")]
    with pytest.raises(SystemExit):
        cli.main(["shapes", "--rows", "5"])


def test_committed_rows_are_of_cases_that_there_are():
    rows = Store("shapes").read()
    assert rows
    assert {row["dataset"] for row in rows} <= set(CASES)
    assert all(np.isfinite(row["metrics"]["gap"]) for row in rows if "gap" in row.get("metrics", {}))


def test_picture_has_truth_beside_learnt(monkeypatch, tmp_path):
    class Fitted(Truth):
        def __init__(self, name):
            super().__init__(name)
            self.seen = None

        def fit(self, x, y):
            self.seen = x.shape
            return self

    made = []
    monkeypatch.setitem(
        ALL_METHODS, "truth", lambda seed, d: made.append(Fitted("demo" if d == 1 else "ring")) or made[-1]
    )
    saved = []
    monkeypatch.setattr(picture, "save", lambda figure, path: saved.append(figure))
    picture.draw_shapes(tmp_path / "shapes.png", ["demo", "ring"], method="truth")
    assert [model.seen for model in made] == [(picture.N, 1)] * 2
    panels = [axis for axis in saved[0].axes if axis.collections]
    values = [np.asarray(axis.collections[0].get_array()) for axis in panels]
    assert len(values) == 4
    assert np.array_equal(values[0], values[1])
    assert np.array_equal(values[2], values[3])
    (_, y), density = picture.grid(SHAPES["demo"]), picture.densities(SHAPES["demo"], SHAPES["demo"].log_density)
    assert density.sum(axis=1) * (y[1] - y[0]) == pytest.approx(np.ones(picture.STEPS), abs=0.01)
