"""The entry for ScoringBench, with stand-ins for the two classes of its that it uses."""

import sys
import types

import numpy as np
import pytest
from scipy import stats

from benchmarks.scoringbench import LEVELS, wrapper_class

X = np.random.default_rng(0).normal(size=(200, 2))
Y = X[:, 0] + 0.5 * np.random.default_rng(1).normal(size=200)


class ProbabilisticWrapper:
    def _set_train_range(self, y):
        self._y_train_range = float(np.min(y)), float(np.max(y))


class DistributionPrediction:
    @classmethod
    def from_multi_quantile(cls, q, alphas, mean=None, *, train_range):
        made = cls()
        made.q, made.alphas, made.mean, made.train_range = q, alphas, mean, train_range
        return made


@pytest.fixture
def scoringbench(monkeypatch):
    base = types.ModuleType("scoringbench.univariate.wrappers.base")
    base.ProbabilisticWrapper, base.DistributionPrediction = ProbabilisticWrapper, DistributionPrediction
    names = "scoringbench", "scoringbench.univariate", "scoringbench.univariate.wrappers"
    for name in names:
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, base.__name__, base)


def test_the_entry_hands_over_quantiles_mean_and_range(scoringbench):
    model = wrapper_class()(effort="fast", max_trees=0).fit(X[:150], Y[:150])
    found = model.predict_distribution(X[150:])
    assert found.q.shape == (50, len(LEVELS))
    assert (np.diff(found.q, axis=1) > 0).all()
    assert found.train_range == (Y[:150].min(), Y[:150].max())
    np.testing.assert_array_equal(found.mean, model.predict(X[150:]))
    pit = [np.interp(y, q, found.alphas) for y, q in zip(Y[150:], found.q, strict=True)]
    assert stats.kstest(pit, "uniform").pvalue > 0.001
