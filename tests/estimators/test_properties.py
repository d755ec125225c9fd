"""Random tables and settings, 500 of them: `python -m tests.properties` draws more."""

import dataclasses

import numpy as np
import pytest

from tests.properties import Case, check, run_batch
from treecdf import ConditionalDistribution, TreeFlowRegressor

PLAIN = Case(
    seed=0,
    n=30,
    columns=(("normal", 0), ("ties", 3)),
    outcomes=(("normal", -3),),
    stages=(("logistic", 3),),
    settings={"base": "box", "max_trees": 2},
)


@pytest.mark.parametrize("number", range(5))
def test_random_tables(number):
    _, outcomes, failures = run_batch(number)
    assert not failures
    assert outcomes["fitted"] > 50


def test_one_row_is_refused_and_two_are_not():
    assert check(dataclasses.replace(PLAIN, n=1)) == "refused"
    assert check(dataclasses.replace(PLAIN, n=2)) == "fitted"


# Slips that the laws must see


def test_a_density_that_is_not_the_slope_of_the_cdf_is_seen(monkeypatch):
    logpdf = ConditionalDistribution.logpdf
    monkeypatch.setattr(ConditionalDistribution, "logpdf", lambda self, y: logpdf(self, y) + 0.01)
    with pytest.raises(AssertionError, match="slope"):
        check(PLAIN)


def test_a_cdf_that_does_not_undo_the_quantiles_is_seen(monkeypatch):
    icdf = ConditionalDistribution.icdf
    monkeypatch.setattr(ConditionalDistribution, "icdf", lambda self, p: icdf(self, 0.999 * np.asarray(p)))
    with pytest.raises(AssertionError, match=r"CDF of quantiles|end"):
        check(PLAIN)


def test_a_warning_is_seen(monkeypatch):
    log_prob = TreeFlowRegressor.log_prob
    monkeypatch.setattr(TreeFlowRegressor, "log_prob", lambda self, x, y: log_prob(self, x, y) + np.log(np.zeros(1)))
    with pytest.raises(RuntimeWarning, match="divide by zero"):
        check(PLAIN)
