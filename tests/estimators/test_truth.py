"""Fits to known densities: never better than the truth, calibrated, and closer to it the more rows there are."""

from functools import cache

import pytest

from tests.truth import ERRORS, LEVEL, LOST, RATE, TRUTHS, compare, lost_to_chance, rate

ROWS = (1000, 10_000)  # `python -m tests.truth` goes on to 100,000
every_truth = pytest.mark.parametrize("name", TRUTHS)


@cache
def lines(name):
    return [compare(name, n) for n in ROWS]


@every_truth
def test_a_fit_is_not_better_than_the_truth(name):
    for line in lines(name):
        assert line.gap > -ERRORS * line.error


@every_truth
def test_the_pit_is_uniform(name):
    for line in lines(name):
        assert line.level > LEVEL


@every_truth
def test_the_gap_closes_as_rows_come_in(name):
    assert rate(lines(name)) >= RATE


@every_truth
def test_what_does_not_depend_on_x_has_its_marginal_density(name):
    assert lost_to_chance(name) < LOST
