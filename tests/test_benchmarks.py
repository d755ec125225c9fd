"""Benchmarks: registry, simulated densities, store, metrics. Data tests are skipped where no data is."""

import csv
import os
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm
from scipy.stats.qmc import Sobol

from benchmarks import metrics, paper_tables, rows, simulations
from benchmarks.datasets import DATASETS, load, prepared, split
from benchmarks.machine import ROOT
from benchmarks.rows import Run, Store
from benchmarks.simulations import SIMULATIONS, X_VALUES

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
    assert np.isclose(metrics.cell_log_lik(Gaussian(), y, 1e-3), norm.logpdf(y).mean(), atol=1e-3)
    assert metrics.pit_ks(norm.cdf(y)) < 0.02


def test_energy_score_of_one_outcome_is_its_crps():
    rng = np.random.default_rng(0)
    y = rng.normal(size=2000)
    crps = y * (2 * norm.cdf(y) - 1) + 2 * norm.pdf(y) - 1 / np.sqrt(np.pi)
    score = metrics.energy_score(rng.normal(size=(2000, 100, 1)), y[:, None])
    assert abs(score - crps.mean()) < 0.01


SHORT = {
    "bostonHousing": "boston",
    "power-plant": "power",
    "protein-tertiary-structure (dequantized)": "protein",
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
