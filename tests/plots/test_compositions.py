"""Pictures of compositions show what they say."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from treecdf import CompositionalFlow
from treecdf.plots import AbundanceDisplay, OrdinationDisplay, PrevalenceDisplay
from treecdf.plots.ordination import coordinates

TAXA = ["bifido", "ecoli", "dorea", "rothia"]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    age = rng.uniform(0, 3, 300)
    raw = rng.gamma(20.0, size=(300, 4)) * np.column_stack([np.exp(-age), np.ones(300), np.ones(300) / 3, age])
    raw[:, 2] *= rng.random(300) < 0.2 + 0.25 * age  # dorea arrives with age
    counts = np.array([rng.multinomial(1000, row / row.sum()) for row in raw])
    x = pd.DataFrame({"age": age, "milk": np.where(rng.random(300) < 0.5, "a", "b")})
    return x, pd.DataFrame(counts, columns=TAXA)


@pytest.fixture(scope="module")
def model(data):
    return CompositionalFlow(counts=True, random_state=0).fit(*data)


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


def test_stacked_abundances_are_means_and_sum_to_one(data, model):
    x, y = data
    shown = AbundanceDisplay.from_estimator(model, x, "age", n_taxa=3, n_grid=7)
    assert shown.taxa[-1] == "others"
    assert set(shown.taxa[:3]) < set(TAXA)
    np.testing.assert_allclose(shown.abundance.sum(axis=1), 1)
    young = (x["age"] < 0.5).to_numpy()
    k = shown.taxa.index("ecoli")
    assert shown.abundance[0, k] == pytest.approx((y["ecoli"] / 1000)[young].mean(), abs=0.1)
    assert len(shown.ax_.patches) == 7 * 4
    top = max(bar.get_y() + bar.get_height() for bar in shown.ax_.patches)
    assert top == pytest.approx(1)
    levels = AbundanceDisplay.from_estimator(model, x, "milk", n_draws=20)
    assert levels.values == ["a", "b"]


def test_prevalence_follows_the_truth(data, model):
    x, _ = data
    shown = PrevalenceDisplay.from_estimator(model, x, "age", taxa=["dorea", 0], n_grid=5)
    assert shown.taxa == ["dorea", "bifido"]
    np.testing.assert_allclose(shown.prevalence[:, 0], 0.2 + 0.25 * np.linspace(0, 3, 5), atol=0.15)
    assert (shown.prevalence[:, 1] > 0.97).all()
    free = PrevalenceDisplay.from_estimator(model, x, "age", n_grid=5)
    assert free.taxa[0] == "dorea"  # its presence depends most on age
    assert [line.get_label() for line in free.ax_.lines] == free.taxa
    with pytest.raises(ValueError, match="Expected taxa to be numbers below 4 or names"):
        PrevalenceDisplay.from_estimator(model, x, "age", taxa=["blautia"])


def test_principal_coordinates(data, model):
    x, y = data
    shown = OrdinationDisplay.from_estimator(model, x[:60], y[:60])
    assert shown.real.shape == shown.drawn.shape == (60, 2)
    np.testing.assert_allclose(np.vstack([shown.real, shown.drawn]).mean(axis=0), 0, atol=1e-10)
    assert shown.share[0] >= shown.share[1] > 0
    assert [text.get_text() for text in shown.ax_.get_legend().get_texts()] == ["real", "drawn"]


def test_coordinates_keep_distances_of_few_points():
    """Three points of compositions on a line of Bray-Curtis distances."""
    y = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    points, share = coordinates(y, 1)
    np.testing.assert_allclose(np.sort(points[:, 0]), [-0.5, 0, 0.5], atol=1e-12)
    assert share[0] == pytest.approx(1)
