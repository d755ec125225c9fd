"""Kernels as plain Python, so that coverage sees them (.ci/coverage): they give the numbers of the compiled ones."""

import os
import subprocess
import sys

import numpy as np
import pytest
from numba import config

import treecdf.flows.tree
import treecdf.training.classifiers.linear
import treecdf.training.classifiers.mlp
import treecdf.training.growing.grower
from treecdf import MLP, BoostedTrees, Constant, Logistic, Stage, TreeFlowRegressor
from treecdf.bases.learners import BoostedMean, Polynomial

pytestmark = [
    pytest.mark.skipif(not config.DISABLE_JIT, reason="needs NUMBA_DISABLE_JIT=1"),
    pytest.mark.filterwarnings(
        "ignore:(overflow encountered in exp|divide by zero|invalid value):RuntimeWarning"
    ),  # compiled kernels overflow in silence
]

BOX = {"base": "box", "structure": "joint"}
MODELS = {
    "constant": {**BOX, "stages": [Stage(Constant(), 3)]},
    "logistic": {**BOX, "stages": [Stage(Logistic(), 3)]},
    "hinges": {**BOX, "stages": [Stage(Logistic(basis="hinges"), 2)]},
    "cubic": {**BOX, "stages": [Stage(Logistic(basis="cubic"), 2)]},
    "mlp": {**BOX, "stages": [Stage(MLP((2, 2), max_iter=12), 2)]},
    "trees": {**BOX, "stages": [Stage(BoostedTrees(rounds=2, max_depth=2), 3)]},
    "exhaustive": {**BOX, "stages": [Stage(Logistic(), 2)], "split_search": "exhaustive", "grid_size": 3},
    "conditional": {"base": [Polynomial(1), BoostedMean(2, rate=0.3, max_rounds=5)], "stages": [Stage(Constant(), 2)]},
    "bounded": {"base": [Polynomial(1)], "stages": [Stage(Constant(), 2)], "bounds": (-20, 20)},
}


def answers(name):
    """Log densities, quantiles and the CDF at a few rows of a small model, as one array."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2))
    y = np.sin(x[:, 0]) + 0.5 * rng.normal(size=40)
    model = TreeFlowRegressor(random_state=0, max_trees=2, effort="fast", **MODELS[name]).fit(x, y)
    distribution = model.predict_distribution(x[:6])
    quantiles = distribution.icdf([1e-6, 0.2, 0.7])
    return np.column_stack([model.log_prob(x[:6], y[:6]), quantiles, distribution.cdf(quantiles)])


@pytest.fixture(autouse=True)
def _records(monkeypatch):
    """Rows of tables with attributes, as compiled kernels have them."""
    for module in (
        treecdf.training.classifiers.linear,
        treecdf.training.classifiers.mlp,
        treecdf.training.growing.grower,
        treecdf.flows.tree,
    ):
        for name in ("STEP", "LINE", "NODE"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, np.dtype((np.record, getattr(module, name))))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """The answers of compiled kernels by model, all from one process that is not this one."""
    path = tmp_path_factory.mktemp("compiled") / "answers.npz"
    code = f"""
import numpy
from tests.kernels.test_uncompiled import MODELS, answers
numpy.savez({str(path)!r}, **{{name: answers(name) for name in MODELS}})
"""
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "NUMBA_DISABLE_JIT": "0"})
    return np.load(path)


@pytest.mark.parametrize("name", MODELS)
def test_the_numbers_are_those_of_compiled_kernels(name, compiled):
    np.testing.assert_allclose(answers(name), compiled[name], rtol=1e-6, atol=1e-8)
