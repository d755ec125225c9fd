"""The benchmark of predictions: it asks a fitted model every question and prints a line of each."""

import numpy as np
import pytest

from benchmarks import use
from treecdf import TreeFlowRegressor


@pytest.fixture
def small(monkeypatch):
    """Two tables of 60 rows in place of the published ones, and quick fits."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    outcomes = {"power": x[:, 0] + rng.normal(size=60), "energy2": x + rng.normal(size=(60, 2))}
    monkeypatch.setattr(use, "prepared", lambda name, k: (x, outcomes[name], x, outcomes[name]))
    monkeypatch.setattr(use, "N_SINGLE", 2)
    monkeypatch.setattr(TreeFlowRegressor, "fit", _quick_fit(TreeFlowRegressor.fit))


def _quick_fit(fit):
    return lambda model, x, y: fit(model.set_params(effort="fast", max_trees=1), x, y)


@pytest.mark.usefixtures("small")
def test_every_answer_has_a_line(capsys):
    lines = use.run_use(["power", "energy2"], n_rows=30)
    answers = {name: [line[1] for line in lines if line[0] == name] for name in ("power", "energy2")}
    assert {"log density", "mean", "crps", "three quantiles", "100 samples", "one interval"} <= set(answers["power"])
    assert {"log density", "mean", "100 samples", "one predict"} <= set(answers["energy2"])
    assert "crps" not in answers["energy2"]
    assert all(float(line[3]) > 0 for line in lines)
    assert [line[3] for line in lines if line[1] == "log density"] == ["1.0", "1.0"]
    printed = capsys.readouterr().out
    assert printed.count("\n") >= len(lines) + 2
    for library in ("lightgbm", "ngboost"):
        assert use._has(library) != (f"{library} is not installed" in printed)
