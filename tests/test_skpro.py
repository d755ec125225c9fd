"""The adapter to skpro passes skpro's own checks and says what the model says."""

import re
from pathlib import Path

import numpy as np
import pytest

from treecdf import TreeFlowRegressor

pd = pytest.importorskip("pandas")
metrics = pytest.importorskip("skpro.metrics")
utils = pytest.importorskip("skpro.utils")
adapter = pytest.importorskip("treecdf.skpro")

pytestmark = pytest.mark.filterwarnings("default")  # skpro's own


@pytest.mark.parametrize("kind", [adapter.TreeFlowDistribution, adapter.TreeFlowProba])
def test_checks_of_skpro(kind):
    results = utils.check_estimator(kind, verbose=False)
    assert len(results) > 50
    assert {name: result for name, result in results.items() if result != "PASSED"} == {}


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"a": rng.normal(size=300), "b": pd.Categorical(rng.choice(["u", "v"], size=300))})
    x.loc[::7, "a"] = np.nan
    y = pd.DataFrame({"z": x["a"].fillna(0.0) + (x["b"] == "u") + 0.5 * rng.normal(size=300)})
    return x, y, adapter.TreeFlowProba(TreeFlowRegressor(effort="fast", random_state=0)).fit(x, y)


def test_scores_equal_those_of_the_model(fitted):
    x, y, model = fitted
    distribution = model.regressor_.predict_distribution(x)
    predicted = model.predict_proba(x)
    assert metrics.LogLoss()(y, predicted) == pytest.approx(-distribution.logpdf(y["z"].to_numpy()).mean())
    assert metrics.CRPS()(y, predicted) == pytest.approx(distribution.crps(y["z"].to_numpy()).mean(), rel=1e-3)
    np.testing.assert_allclose(predicted.mean()["z"], distribution.mean(), atol=1e-3)
    np.testing.assert_allclose(model.predict_quantiles(x, [0.1, 0.9]), distribution.icdf([0.1, 0.9]))


def test_energy_is_the_mean_distance_of_two_draws(fitted):
    x, _, model = fitted
    predicted = model.predict_proba(x.iloc[:4])
    one, other = (model.regressor_.sample(x.iloc[:4], 20_000, random_state=k) for k in range(2))
    np.testing.assert_allclose(predicted.energy()["energy"], np.abs(one - other).mean(axis=1), rtol=0.05)


@pytest.mark.parametrize("name", ["atoms", "grid", "both"])
def test_energies_count_what_was_recorded(name):
    """With atoms and on a grid, against brute force."""
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"a": rng.normal(size=400)})
    latent = x["a"].to_numpy() + rng.normal(size=400)
    rounded = np.round(latent) if name != "atoms" else latent
    y = pd.DataFrame({"z": np.where(rng.random(400) < 0.4, 0.0, rounded) if name != "grid" else rounded})
    own = {"atoms": {"atoms": [0.0]}, "grid": {"resolution": 1.0}, "both": {"atoms": [0.0], "resolution": 1.0}}[name]
    settings = {"effort": "fast", "max_trees": 3, "random_state": 0, **own}
    predicted = adapter.TreeFlowProba(TreeFlowRegressor(**settings)).fit(x, y).predict_proba(x.iloc[:4])
    one, other = (predicted.distribution.sample(100_000, random_state=k) for k in range(2))
    np.testing.assert_allclose(predicted.energy()["energy"], np.abs(one - other).mean(axis=1), rtol=0.02)
    for point in (0.0, 0.7):
        at = pd.DataFrame({"z": np.full(4, point)}, index=x.index[:4])
        np.testing.assert_allclose(predicted.energy(at)["energy"], np.abs(one - point).mean(axis=1), rtol=0.02)


def test_rows_are_chosen_by_name(fitted):
    x, y, model = fitted
    predicted = model.predict_proba(x)
    some = y.iloc[[8, 3, 250]]
    np.testing.assert_allclose(predicted.log_pdf(some), predicted.log_pdf(y).loc[some.index])
    assert predicted.iloc[5, 0].cdf(y.iloc[5, 0]) == pytest.approx(predicted.cdf(y).iloc[5, 0])


def test_page_runs():
    page = (Path(__file__).parent.parent / "docs/skpro.md").read_text()
    names = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block, names)
    assert names["predicted"].shape == (300, 1)
