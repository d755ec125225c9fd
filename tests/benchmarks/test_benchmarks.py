"""Benchmarks: registry, simulated densities, store, metrics. Data tests are skipped where no data is."""

import csv
import os
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm
from scipy.stats.qmc import Sobol
from sklearn.cluster import KMeans

from benchmarks import cli, figures, metrics, paper_tables, report, rows, scoring, simulations, tables
from benchmarks.datasets import DATASETS, TIED, cell, load, prepared, split
from benchmarks.machine import ROOT
from benchmarks.methods import METHODS, settings
from benchmarks.rows import Run, Store
from benchmarks.simulations import SIMULATIONS, X_VALUES
from benchmarks.speed import fits, run
from benchmarks.tables import EXPERIMENTS
from treecdf import Logistic, Stage, TreeFlowRegressor

DATA = Path(os.environ.get("TREECDF_DATA") or ROOT.parent / "shared" / "data")
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"there is no data directory {DATA}")


@needs_data
@pytest.mark.parametrize("name", DATASETS)
def test_registry_agrees_with_the_file(name):
    record = DATASETS[name]
    x, y = load(name)
    assert x.shape == (record.n, record.q)
    assert y.shape == ((record.n,) if record.d == 1 else (record.n, record.d))
    assert len(record.resolution) == record.d
    columns = y.reshape(record.n, -1).T
    for step, column in zip(record.resolution, columns, strict=True):
        if step is not None and name not in ("parkinsons", "air"):
            off = np.abs(column / step - np.round(column / step))
            assert np.mean(off < 1e-3) > 0.95, (name, np.mean(off < 1e-3))
    for k in (0, record.n_splits - 1):
        train, test = split(name, k)
        assert np.array_equal(np.sort(np.r_[train, test]), np.arange(record.n))
    share = 0.3 if record.d > 1 else 0.9
    assert abs(len(train) / record.n - share) < 0.01
    with pytest.raises(ValueError):
        split(name, record.n_splits)


@needs_data
def test_z_scores_use_training_rows():
    x_train, y_train, x_test, _ = prepared("energy2", 3)
    assert np.allclose(y_train.mean(0), 0)
    assert np.allclose(y_train.std(0), 1)
    assert np.allclose(x_train.mean(0), 0)
    assert not np.allclose(x_test.mean(0), 0)


@needs_data
def test_cells_are_the_steps_of_the_prepared_grid():
    assert cell("boston", 0) == [0.1]
    assert cell("kin8nm", 0) is None
    assert cell("air", 0) is None
    y_test, edges = prepared("temperature", 1)[3], cell("temperature", 1)
    steps = (y_test - y_test[0]) / edges
    assert np.abs(steps - np.round(steps)).max() < 1e-6
    assert [np.diff(np.unique(np.round(column))).min() for column in steps.T] == [1, 1]


@needs_data
def test_noise_of_one_step_takes_the_place_of_the_grid():
    (x, y), (x_plain, plain) = load("protein_dequantised"), load("protein")
    assert np.array_equal(x, x_plain)
    assert np.array_equal(y, load("protein_dequantised")[1])  # one table for all splits
    moved, lowest = (y - plain) / 0.001, plain == 0
    assert lowest.sum() > 100
    assert np.all((moved[lowest] >= 0) & (moved[lowest] < 1))
    assert np.all(np.abs(moved[~lowest]) < 0.5 + 1e-9)
    assert abs(np.std(moved[~lowest]) - 12**-0.5) < 0.005
    assert len(np.unique(y)) == len(y)
    for one, other in zip(split("protein_dequantised", 2), split("protein", 2), strict=True):
        assert np.array_equal(one, other)
    assert cell("protein_dequantised", 0) is None
    assert cell("protein", 0) == [0.001]


def test_gamma_is_compared_on_dequantised_protein_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "Store", lambda name: Store(name, tmp_path))
    for dataset in ("boston", "protein"):
        row = asdict(Run(dataset, 0, "paper", 0)) | {"metrics": {"log_lik": 1.0}}
        tables.Store("univariate").append(row)
    assert set(tables.stored("gamma")) == {Run("boston", 0, "paper", 0)}
    wanted = [run for run in EXPERIMENTS["gamma"].runs() if run.dataset.startswith("protein")]
    assert {(run.dataset, run.method) for run in wanted} == {
        ("protein_dequantised", method) for method in ("gamma0", "paper")
    }
    assert len(wanted) == 2 * 5
    made = []
    monkeypatch.setattr(tables, "run_all", lambda runs, *how: made.extend(runs))
    tables.run_experiment("gamma", EXPERIMENTS["gamma"].runs(splits=1))
    assert Run("boston", 0, "paper", 0) not in made
    assert {run.method for run in made if run.dataset == "protein_dequantised"} == {"gamma0", "paper"}
    assert paper_tables.GAMMA["gamma=0.5"]["protein_dequantised"] == (-2.13, 0.01)
    assert paper_tables.UNIVARIATE["Ours"]["protein"] == (-2.20, 0.01)


@needs_data
def test_tied_sets_are_those_whose_outcome_vectors_recur():
    several = [name for name, record in DATASETS.items() if record.d > 1]
    recurring = {}
    for name in several:
        _, place, count = np.unique(load(name)[1], axis=0, return_inverse=True, return_counts=True)
        recurring[name] = np.mean(count[place] > 1)
    assert set(TIED) == {name for name, share in recurring.items() if share > 0.5}, recurring


def test_missing_data_names_file_and_source(tmp_path, monkeypatch):
    monkeypatch.setenv("TREECDF_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"bostonHousing\.csv\.gz.*TREECDF_DATA.*UCI"):
        load("boston")


def test_corrupt_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("TREECDF_DATA", str(tmp_path))
    (tmp_path / "uci_univariate").mkdir()
    (tmp_path / "uci_univariate/yacht.csv.gz").write_bytes(b"no data")
    with pytest.raises(ValueError, match="sha256"):
        load("yacht")


def midpoints(m, edge=16.0):
    axis = (np.arange(m) + 0.5) / m * 2 * edge - edge
    return np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2), (2 * edge / m) ** 2


@pytest.mark.parametrize("x0", [*X_VALUES, 0.0, 0.9, -0.6])
@pytest.mark.parametrize("name", SIMULATIONS)
def test_densities_integrate_to_one(name, x0):
    # Sobol points: a square grid would lie along the edges of the squares and the half plane.
    y = 24.0 * Sobol(2, seed=0).random(2**20) - 12.0
    for density in (SIMULATIONS[name].density, SIMULATIONS[name].sampler_density):
        assert abs(density(x0, y).mean() * 24.0**2 - 1) < 5e-4


@pytest.mark.parametrize("name", SIMULATIONS)
def test_sampler_follows_its_density(name):
    """Bin counts of samples with x near x0 against the integrated sampler density, by chi-square."""
    x, y = SIMULATIONS[name].sample(1_000_000, np.random.default_rng(0))
    assert x.shape == (1_000_000, 1)
    assert y.shape == (1_000_000, 2)
    edges = np.linspace(-8, 8, 17)
    fine, _ = midpoints(640, 8.0)
    for x0 in X_VALUES:
        near = np.abs(x[:, 0] - x0) < 0.01
        counts = np.histogram2d(*y[near].T, bins=(edges, edges))[0]
        cells = np.mean([SIMULATIONS[name].sampler_density(x0 + s, fine) for s in np.linspace(-0.01, 0.01, 5)], 0)
        expected = near.sum() * cells.reshape(16, 40, 16, 40).sum((1, 3)) * (16 / 640) ** 2
        big = expected > 20
        chi2 = ((counts - expected)[big] ** 2 / expected[big]).sum()
        assert chi2 < big.sum() + 5 * np.sqrt(2 * big.sum()), (name, x0, chi2, big.sum())
        assert counts[expected == 0].sum() == 0


def test_half_gaussian_edge_is_outside():
    y = simulations.grid_points()
    for x0 in X_VALUES:
        edge = np.abs(y @ [np.cos(np.pi * x0), np.sin(np.pi * x0)]) < 1e-9
        assert edge.sum() == 64
        assert not SIMULATIONS["half_gaussian"].density(x0, y)[edge].any()


def test_sse_is_zero_for_the_truth_and_sums_squares():
    for name, simulation in SIMULATIONS.items():

        def truth(x, y, simulation=simulation):
            with np.errstate(divide="ignore"):
                return np.log(simulation.density(x[0, 0], y))

        assert simulations.sse(truth, name) < 1e-20
    nothing = simulations.sse(lambda x, y: np.full(len(y), -np.inf), "squares")
    inside = np.mean([np.count_nonzero(SIMULATIONS["squares"].density(v, simulations.grid_points())) for v in X_VALUES])
    assert np.isclose(nothing, inside / 32**2)


def work(run):
    if run.split == 1:
        raise ValueError("bad split")
    if run.split == 2:
        import os

        os._exit(3)
    return {"metrics": {"log_lik": 1 / 3 + run.split}}


def test_runs_store_failures_and_survive_a_dead_worker(tmp_path):
    store = Store("some", tmp_path)
    runs = [Run("boston", k, "lr", k) for k in range(5)]
    rows.run_all(runs, work, store, jobs=1)
    found = rows.latest(store.read())
    assert set(found) == set(runs)
    assert found[runs[0]]["metrics"]["log_lik"] == 0.333333
    assert "ValueError: bad split (test_benchmarks.py:" in found[runs[1]]["error"]
    assert "died" in found[runs[2]]["error"]
    assert "error" not in found[runs[4]]


def test_store_drops_a_line_cut_short(tmp_path):
    store = Store("some", tmp_path)
    assert store.read() == []
    one = asdict(Run("boston", 0, "lr", 0)) | {"x": {"y": 1.23456789e-7}}
    store.append(one)
    with store.path.open("a") as file:
        file.write('{"dataset":{"a":1}')
    assert len(store.read()) == 1
    store.append(one | {"split": 1})
    assert [row["split"] for row in store.read()] == [0, 1]
    assert store.read()[0]["x"]["y"] == 1.23457e-7


def test_later_rows_win(tmp_path):
    run = Run("boston", 0, "lr", 0)
    assert rows.latest([asdict(run) | {"error": "x"}, asdict(run) | {"metrics": {}}])[run]["metrics"] == {}


class Gaussian:
    """N(0, 1) for every row."""

    def cdf(self, y):
        return norm.cdf(y)

    def icdf(self, p):
        return np.tile(norm.ppf(p), (20_000, 1))


def test_metrics_of_a_known_distribution():
    y = np.random.default_rng(0).normal(size=20_000)
    found = metrics.intervals(Gaussian(), y)
    assert abs(found["coverage_50"] - 0.5) < 0.02
    assert abs(found["coverage_90"] - 0.9) < 0.01
    assert np.isclose(found["width_90"], 2 * norm.ppf(0.95))
    assert np.isclose(metrics.cell_log_lik(Gaussian(), y, np.array([1e-3])), norm.logpdf(y).mean(), atol=1e-3)
    assert metrics.pit_ks(norm.cdf(y)) < 0.02


class JointGaussian:
    """Two independent N(0, 1) for every row."""

    def logpdf(self, y):
        return norm.logpdf(y).sum(axis=-1)


class UniformSquare:
    """Uniform over (0, 1) x (0, 1)."""

    def logpdf(self, y):
        return np.where(((y > 0) & (y < 1)).all(axis=-1), 0.0, -np.inf)


def test_joint_cell_score_is_the_probability_over_the_volume():
    y = np.random.default_rng(0).normal(size=(500, 2))
    tiny = metrics.joint_cell_log_lik(JointGaussian(), y, np.full(2, 1e-4))
    assert np.isclose(tiny, JointGaussian().logpdf(y).mean(), atol=1e-6)
    edges = np.array([1.0, 0.3])
    mass = np.prod(norm.cdf(y + edges / 2) - norm.cdf(y - edges / 2), axis=1)
    exact = np.log(mass / edges.prod())
    assert np.isclose(metrics.joint_cell_log_lik(JointGaussian(), y, edges), exact.mean(), atol=0.003)
    one = metrics.joint_cell_log_lik(JointGaussian(), y[:1], edges)
    assert np.isclose(one, exact[0], atol=0.02)
    # Cells on an edge and a corner of the square: a half and a quarter of the points are inside.
    edges = np.array([0.2, 0.4])
    assert metrics.joint_cell_log_lik(UniformSquare(), np.array([[0.5, 0.5]]), edges) == 0.0
    assert np.isclose(metrics.joint_cell_log_lik(UniformSquare(), np.array([[0.0, 0.5]]), edges), np.log(1 / 2))
    assert np.isclose(metrics.joint_cell_log_lik(UniformSquare(), np.array([[1.0, 0.0]]), edges), np.log(1 / 4))


def tiny_model(**overrides):
    return TreeFlowRegressor(
        base="box", structure="joint", stages=[Stage(Logistic(), max_depth=2)], max_trees=2, n_jobs=1, **overrides
    )


TINY = {
    "paper": lambda random_state, d: tiny_model(random_state=random_state),
    "rotated": lambda random_state, d: tiny_model(rotations=d, random_state=random_state),
}


@pytest.mark.parametrize(
    ("method", "d", "n_flows"), [("paper", 1, 1), ("paper", 2, 1), ("rotated", 2, 2), ("rotated", 3, 7)]
)
def test_metrics_leave_out_what_a_model_does_not_have(method, d, n_flows):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(80, 2)), rng.normal(size=(80, d))
    y = y[:, 0] if d == 1 else y
    model = TINY[method](0, d).fit(x, y)
    assert len(model.mixture_.members) == n_flows
    found, _ = metrics.evaluate(model, x, y, np.full(d, 1e-3))
    assert ("pit_ks" in found) == (n_flows == 1)
    assert ("energy_score" in found) == (d > 1)
    assert ("crps" in found) == (d == 1)
    assert np.isclose(found["cell_log_lik"], found["log_lik"], atol=0.1)
    assert "cell_log_lik" not in metrics.evaluate(model, x, y)[0]


def test_energy_score_of_one_outcome_is_its_crps():
    rng = np.random.default_rng(0)
    y = rng.normal(size=2000)
    crps = y * (2 * norm.cdf(y) - 1) + 2 * norm.pdf(y) - 1 / np.sqrt(np.pi)
    score = metrics.energy_score(rng.normal(size=(2000, 100, 1)), y[:, None])
    assert abs(score - crps.mean()) < 0.01


SHORT = {
    "bostonHousing": "boston",
    "power-plant": "power",
    "protein-tertiary-structure (dequantized)": "protein_dequantised",
    "naval-propulsion-plant": "naval",
}


def test_paper_tables_equal_the_published_csv():
    folder = ROOT.parent / "shared" / "paper"
    if not folder.is_dir():
        pytest.skip(f"there are no copies of the paper's tables in {folder}")
    files = {
        "univariate_ll": (paper_tables.UNIVARIATE, lambda r: (r["method"], r["column"])),
        "ablation_ll": (paper_tables.ABLATION, lambda r: (r["column"], r["dataset"])),
        "gamma_ll": (paper_tables.GAMMA, lambda r: (r["column"], r["dataset"])),
        "simulation_sse": (paper_tables.SIMULATIONS, lambda r: (r["method"], r["column"])),
        "multivariate_ll": (paper_tables.MULTIVARIATE, lambda r: (r["method"], r["column"])),
        "regions_ll": (paper_tables.REGIONS, lambda r: (r["partition"], r["dataset"])),
        "c0gamma_ll": (paper_tables.C0GAMMA, lambda r: (f"c0={r['c0']}, gamma={r['gamma']}", r["dataset"])),
    }
    for file, (table, key) in files.items():
        count = 0
        several = file in ("multivariate_ll", "regions_ll", "c0gamma_ll")
        for row in csv.DictReader((folder / f"{file}.csv").read_text().splitlines()):
            method, dataset = key(row)
            dataset = SHORT.get(dataset, "energy2" if several and dataset == "energy" else dataset)
            if row["value"] == "":
                assert dataset not in table[method]
                continue
            assert table[method][dataset] == (float(row["value"]), float(row["se"]) if row["se"] else None)
            count += 1
        assert count == sum(len(row) for row in table.values()), file


def test_methods_are_the_settings_of_their_names():
    found = {name: settings(build(0, 2)) for name, build in METHODS.items()}
    assert len({repr(sorted(one.items())) for one in found.values()}) == len(METHODS)  # one name for one setting
    paper = found["paper"]
    assert paper.keys() == {"base", "margin", "structure", "stages", "subsample", "penalty", "weights", "resolution"}
    assert found["rotated"] == paper | {"rotations": 12}
    assert found["eta01_product"] == found["rotated_eta01"] | {"weights": "likelihood"}
    assert found["regions_hdbscan"] == found["rotated_eta01"] | {"regions": "hdbscan"}
    assert found["regions4"] == found["rotated_eta01"] | {"regions": 4}
    assert found["paper_eta01"] == paper | {"eta": 0.01}
    assert found["c0_1_gamma_1"] == paper | {"c0": 0.1, "gamma": 0.1}
    assert found["treecdf"] == {}
    assert found["treecdf_fast"] == {"effort": "fast"}
    for name, build in METHODS.items():
        rotations = getattr(build(0, 3), "rotations", None)
        assert rotations == (6 if "rotations" in found[name] else None)
        assert build(7, 2).random_state == 7


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiments_name_methods_sets_and_figures_that_exist(name):
    experiment = EXPERIMENTS[name]
    assert set(experiment.methods) <= set(METHODS)
    assert set(experiment.reference) <= set(METHODS)
    assert set(experiment.reference.values()) <= set(experiment.paper)
    in_paper = set(experiment.datasets) - {"wine"}
    assert all(in_paper <= set(row) for row in list(experiment.paper.values())[:1])
    known = SIMULATIONS if experiment.metric == "sse" else DATASETS
    assert set(experiment.datasets) <= set(known)
    # The runs of `regions` are those of a table, but that rotated flows are trained once and weighed in several ways.
    works = {scoring.score_regions, experiment.work}
    assert all(EXPERIMENTS[other].work in works for other in experiment.shares)


@pytest.fixture
def sandbox(tmp_path, monkeypatch):
    """Rows and pages in a temporary directory, tiny models instead of the real ones."""
    for module in (tables, run):
        monkeypatch.setattr(module, "Store", lambda name: Store(name, tmp_path))
    for module in (cli, figures):
        monkeypatch.setattr(module, "RESULTS", tmp_path)
    for module in (scoring, figures, fits):
        monkeypatch.setattr(module, "METHODS", TINY)
    monkeypatch.setattr(scoring, "N_SIMULATED", 150)
    monkeypatch.setattr(figures, "N_SIMULATED", 150)
    monkeypatch.setattr(fits, "N_ROWS", 150)
    scoring.warm_up.cache_clear()
    yield tmp_path
    scoring.warm_up.cache_clear()


def score(name, dataset, method, split=0):
    row = asdict(Run(dataset, split, method, split)) | tables.EXPERIMENTS[name].work(Run(dataset, split, method, split))
    tables.Store(name).append(row)
    return row


@needs_data
def test_multivariate_page_shows_all_peers_and_shares_rows(sandbox):
    for k in range(2):
        one, several = (score("multivariate", "energy2", method, k) for method in TINY)
        assert "pit_ks" in one["metrics"]
        assert "pit_ks" not in several["metrics"]
        assert "cell_log_lik" not in one["metrics"]
        assert several["settings"]["rotations"] == 2
    assert report.write_reports(["multivariate", "regions", "c0gamma"], sandbox) == ["multivariate", "c0gamma"]
    page = (sandbox / "multivariate.md").read_text()
    for peer in paper_tables.MULTIVARIATE:
        assert f"| paper: {peer} |" in page
    assert "| energy2 | rotated | 2 |" in page
    assert "1.84 ± 0.04" in page
    assert "cell score" not in page
    assert "| energy2 | paper | 2 |" in (sandbox / "c0gamma.md").read_text()


@needs_data
def test_grid_recorded_sets_get_a_cell_score(sandbox, monkeypatch):
    everything = prepared("temperature", 0)
    monkeypatch.setattr(scoring, "prepared", lambda name, k: [part[:200] for part in everything])
    found = [score("multivariate", "temperature", method)["metrics"] for method in TINY]
    assert all(np.isfinite(one["cell_log_lik"]) for one in found)
    assert all(one["cell_log_lik"] != one["log_lik"] for one in found)
    assert "cell score" in "\n".join(report.experiment_page("multivariate", sandbox))


@needs_data
@pytest.mark.parametrize("weights", ["stacked", "likelihood", "mean_likelihood"])
def test_regions_weigh_shared_flows_as_the_estimator_does(sandbox, monkeypatch, weights):
    x, y, x_test, y_test = prepared("energy2", 0)
    regions = KMeans(3, n_init=1, random_state=0).fit(x)

    def flows(random_state, d):
        return TINY["rotated"](random_state, d).set_params(weights="equal")

    def weighed(random_state, d):
        return TINY["rotated"](random_state, d).set_params(weights=weights, regions=regions)

    monkeypatch.setattr(scoring, "METHODS", {"rotated_eta01": flows, "weighed": weighed})
    scoring._rotated_flows.cache_clear()
    row = scoring.score_regions(Run("energy2", 0, "weighed", 5))
    scoring.score_regions(Run("energy2", 0, "weighed", 5))
    assert scoring._rotated_flows.cache_info().hits == 1
    aside = scoring._rotated_flows("energy2", 0, 5)[-1]
    assert aside.sum() == 23
    model = weighed(5, 2).fit(x[~aside], y[~aside], X_val=x[aside], y_val=y[aside])
    assert np.isclose(row["metrics"]["log_lik"], model.score(x_test, y_test), rtol=1e-9)
    assert len(np.unique(model.mixture_.log_weights, axis=0)) > 1
    assert row["settings"]["weights"] == weights
    assert np.isfinite(row["metrics"]["energy_score"])


def test_simulations_page_links_the_figures_of_the_sets_with_rows(sandbox, capsys):
    assert cli.main(["figures", "squares"]) == 0
    assert capsys.readouterr().out == "docs/results/squares.png\nno rows yet\n"
    assert list(sandbox.iterdir()) == [sandbox / "squares.png"]
    for method in TINY:
        score("simulations", "squares", method)
    page = "\n".join(report.experiment_page("simulations", sandbox))
    assert "(squares.png)" in page
    assert "(elastic_ring.png)" not in page
    assert "| squares | rotated | 1 |" in page
    assert "0.055 ± 0.001" in page
    for peer in paper_tables.SIMULATIONS:
        assert f"| paper: {peer} |" in page


def test_figures_hold_the_densities_of_the_fits(sandbox):
    found = figures.fitted_densities("half_gaussian")
    assert list(found) == ["one flow", "12 rotations"]
    x, y = SIMULATIONS["half_gaussian"].sample(150, np.random.default_rng(0))
    model = TINY["rotated"](0, 2).fit(x, y)
    for k, x0 in enumerate(X_VALUES):
        for i, j in ((10, 40), (32, 31)):
            at = simulations.GRID[[i, j]][None]
            assert np.isclose(found["12 rotations"][k, i, j], np.exp(model.log_prob([[x0]], at)[0]))
            truth = SIMULATIONS["half_gaussian"].density(x0, at)[0]
            assert np.isclose(figures.true_density("half_gaussian")[k, i, j], truth)


@pytest.mark.parametrize("name", SIMULATIONS)
def test_figures_are_small_files(name, tmp_path):
    noise = np.random.default_rng(0).lognormal(0.0, 0.2, (4, 64, 64))
    rough = figures.true_density(name) * noise
    figures.draw(name, {"one flow": rough, "12 rotations": rough}, tmp_path / "one.png")
    assert 10_000 < (tmp_path / "one.png").stat().st_size < 150_000


def test_ensemble_part_times_every_simulation(sandbox, monkeypatch, capsys):
    monkeypatch.setattr(fits, "ENSEMBLE_JOBS", 1)
    run.run_parts(["g"])
    assert "g  2 rotations on squares, 150 rows, 1 processes: " in capsys.readouterr().out
    (row,) = Store("speed", sandbox).read()
    assert set(row["raw"]) == set(SIMULATIONS)
    figure = {record["what"]: record["value"] for record in row["measures"]}
    assert figure["elastic_ring: 2 fits of the paper's own, one core"] == 2 * 580
    faster = 2 * 580 / row["raw"]["elastic_ring"]["seconds"]
    assert np.isclose(figure["elastic_ring: times faster than these"], faster, rtol=1e-4)
    assert "| g | squares: SSE of the rotations (one seed) |" in "\n".join(report.speed_page(sandbox))
