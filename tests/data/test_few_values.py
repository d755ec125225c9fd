"""Which outcomes are taken as ones of few values, and which values may occur."""

import numpy as np
import pytest

from treecdf.data.few_values import closed_grid, find_values
from treecdf.data.grids import ClosedGrid, ListedValues

RNG = np.random.default_rng(0)
N = 1000


def found(y):
    return find_values(np.asarray(y, dtype=float), len(y))


GRADES = np.clip(np.round(5.6 + 0.9 * RNG.normal(size=N)), 3, 8)
COUNTS = RNG.poisson(np.exp(RNG.normal(size=N)))
ON_A_GRID = {
    "grades": (GRADES, 1.0),
    "counts": (COUNTS, 1.0),
    "counts up to 30": (RNG.poisson(15, N), 1.0),
    "prices": (np.round(RNG.gamma(3, 3, N)) + 0.99, 1.0),
    "ages": (RNG.integers(18, 80, N), 1.0),
    "percentages": (5 * RNG.binomial(20, 0.4, N), 5.0),
    "likert": (RNG.integers(1, 6, N), 1.0),
    "two values": (RNG.integers(0, 2, N), 1.0),
    "tenths": (np.round(2 * RNG.normal(size=N), 1) * 1.0, 0.1),
    "a long tail": (np.append(RNG.poisson(2, N - 2), [400, 9000]), 1.0),
    "few rows": (RNG.integers(1, 6, 20), 1.0),
}
CONTINUOUS = {
    "normal": RNG.normal(size=N),
    "counts up to 10000": np.round(np.exp(RNG.uniform(0, 9, N))),
    "two hundred values": np.round(50 * RNG.normal(size=N)),
    "many zeros": np.where(RNG.random(N) < 0.4, 0.0, RNG.gamma(2, 1, N)),
    "one value": np.zeros(N),
    "nine rows": np.arange(9) % 2,
    "rows of their own": np.arange(30),
    "a far outlier": np.append(RNG.normal(size=N - 1), 1e13),
    "cents": np.round(RNG.gamma(2, 50, N), 2),
}


@pytest.mark.parametrize("name", ON_A_GRID)
def test_values_in_even_steps_are_found_whatever_origin_and_unit(name):
    y, step = ON_A_GRID[name]
    for origin, unit in ((0, 1), (-17.3, 0.37), (1e4, 1000), (5, -2)):
        grid = found(origin + unit * y)
        assert isinstance(grid, ClosedGrid)
        assert grid.step[0] == pytest.approx(step * abs(unit))
        own = np.sort(found(y).ends * unit + origin)
        np.testing.assert_allclose(grid.ends, own)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_other_outcomes_have_a_density(name):
    assert found(CONTINUOUS[name]) is None
    assert found(3.3 - 0.01 * CONTINUOUS[name]) is None


@pytest.mark.parametrize("values", [[1, 2, 5, 10], [1, 2, 3, 5, 8, 13], [101, 205, 330, 411.5], [0.99, 1.99, 4.99]])
def test_few_values_at_uneven_distances_are_listed(values):
    y = RNG.choice(values, N)
    assert isinstance(found(y), ListedValues)
    assert found(y).values.tolist() == values
    assert found(RNG.choice(np.sort(RNG.normal(size=300)), N)) is None  # many of them are no list
    assert found(np.repeat(RNG.normal(size=20), 3)) is None  # nor are rows that come three times


def test_the_order_of_the_rows_does_not_matter():
    for y in (GRADES, COUNTS):
        one, other = found(y), found(RNG.permutation(y))
        assert (one.origin, one.step, one.ends.tolist()) == (other.origin, other.step, other.ends.tolist())


def test_ends_are_where_the_next_value_was_to_be_expected():
    assert found(COUNTS).ends.tolist() == [0, np.inf]
    assert found(RNG.integers(1, 6, N)).ends.tolist() == [1, 5]
    assert found(np.round(3 * RNG.normal(size=N))).ends.tolist() == [-np.inf, np.inf]
    assert found(RNG.integers(0, 2, N)).ends.tolist() == [0, 1]
    assert closed_grid(np.array([0.0] * 30 + [1.0]), 1.0).ends.tolist() == [0, 1]


def test_cells_of_closed_grids_and_lists():
    grid = ClosedGrid(np.array([0.0]), np.array([1.0]), np.array([0.0, 5.0]))
    y = np.array([[-3.0], [0.2], [2.5001], [9.0]])
    assert grid.round(y).ravel().tolist() == [0, 0, 3, 5]
    assert grid.edge(y).ravel().tolist() == [-np.inf, 0.5, 2.5, np.inf]
    assert grid.edge(np.array([[5.0], [0.0]])).ravel().tolist() == [np.inf, 0.5]
    assert grid.edge_below(np.array([[0.0], [5.0]])).ravel().tolist() == [-np.inf, 4.5]
    assert [end.ravel().tolist() for end in grid.cell(np.array([[0.0], [5.0]]))] == [[-np.inf, 4.5], [0.5, np.inf]]
    assert grid.is_beyond(y).ravel().tolist() == [True, False, False, True]
    listed = ListedValues(np.array([1.0, 2.0, 5.0, 10.0]))
    y = np.array([[-3.0], [1.4], [1.6], [3.6], [99.0]])
    assert listed.round(y).ravel().tolist() == [1, 1, 2, 5, 10]
    assert listed.edge(y).ravel().tolist() == [-np.inf, 1.5, 1.5, 3.5, np.inf]
    assert listed.edge_below(np.array([[1.0], [5.0]])).ravel().tolist() == [-np.inf, 3.5]
    assert [end.ravel().tolist() for end in listed.sides(np.array([[1.0], [10.0]]))] == [[0.5, 7.5], [1.5, 12.5]]
    assert listed.is_beyond(y).ravel().tolist() == [True, False, False, False, True]
    inside = listed.spread(np.full((500, 1), 5.0), np.random.default_rng(0))
    assert 3.5 <= inside.min() < 3.6
    assert 7.4 < inside.max() <= 7.5
