"""The literal algorithms beside ours: truths, runs and their page."""

from dataclasses import asdict
from functools import partial

import numpy as np
import pytest
from scipy.stats import kstest

from benchmarks import cli, literal
from benchmarks.rows import Run, Store

FEW = {"max_trees": 1, "grid_size": 1}


@pytest.mark.parametrize("name", literal.TRUTHS)
def test_truths_are_the_densities_of_their_rows(name):
    problem = literal.draw_problem(name, 0)
    x_train = problem.train[0]
    np.testing.assert_allclose([x_train.mean(axis=0), x_train.std(axis=0)], [[0, 0], [1, 1]], atol=1e-12)
    assert [len(part[0]) for part in (problem.train, problem.validation, problem.test)] == [200, 100, 4000]

    rng = np.random.default_rng(0)
    x = rng.normal(size=(1, 2))
    u = literal.draw_outcomes(name, np.repeat(x, 2000, axis=0), rng)
    grid = (np.arange(20_000) + 0.5) / 20_000
    density = np.exp(literal.true_log_density(name, np.repeat(x, len(grid), axis=0), grid))
    assert abs(density.mean() - 1) < 1e-6
    assert kstest(u, lambda at: np.interp(at, grid, np.cumsum(density) / len(grid))).pvalue > 1e-3


@pytest.fixture
def sandbox(tmp_path, monkeypatch):
    """Rows and page in a temporary directory; flows of a few small trees."""
    for module in (literal, cli):
        monkeypatch.setattr(module, "Store", lambda name: Store(name, tmp_path))
    monkeypatch.setattr(cli, "RESULTS", tmp_path)
    small = {name: partial(fit, **FEW) for name, fit in literal.METHODS.items()}
    monkeypatch.setattr(literal, "METHODS", small)
    return tmp_path


@pytest.mark.parametrize("method", literal.METHODS)
def test_a_run_scores_a_flow_on_fresh_rows(sandbox, method):
    found = literal.score_run(Run("straight", 1, method, 0))
    metrics = found["metrics"]
    assert metrics["trees"] == 2
    assert 0 < metrics["log_lik"] < metrics["truth_log_lik"]
    assert metrics["truth_log_lik"] == pytest.approx(literal.draw_problem("straight", 1).truth.mean())
    assert found["seconds"]["fit_cpu"] > 0


def test_the_page_has_differences_and_speed_of_sets_that_are_complete(sandbox, monkeypatch, capsys):
    level = {"paper": 0.52, "exhaustive": 0.5, "literal": 0.49}
    seconds = {"paper": 2.0, "exhaustive": 10.0, "literal": 500.0}

    def score(runs, work, store, limit):
        assert work is literal.score_run
        for run in runs:
            shift = 0.01 * (run.seed - 2) if run.method in literal.OURS else 0.0
            metrics = {"log_lik": level[run.method] + shift, "truth_log_lik": 0.7, "trees": 50}
            times = {"fit": 1.0, "fit_cpu": seconds[run.method]}
            store.append(asdict(run) | {"metrics": metrics, "seconds": times, "commit": "c"})

    monkeypatch.setattr(cli, "run_all", score)
    assert cli.main(["literal", "--methods", "paper,exhaustive"]) == 0
    assert capsys.readouterr().out == "no rows yet\n"
    assert cli.main(["literal", "--methods", "literal", "--splits", "2"]) == 0
    assert len(Store("literal", sandbox).read()) == 3 * (5 + 5 + 2)
    page = (sandbox / "literal.md").read_text()
    assert "**250 times faster**" in page
    assert "| bent 0 | 0.700 | 0.490 | 0.500 ± 0.016 | 0.520 ± 0.016 |" in page
    assert "bent 1" not in page, "the second set of rows has no flow of ours"
    assert "| ours, `paper()` | +0.030 ± 0.000 |" in page
    assert "36 runs" in page
