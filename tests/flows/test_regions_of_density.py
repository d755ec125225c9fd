"""Highest-density regions and modes."""

import numpy as np
import pytest
from scipy import stats

from treecdf import TreeFlowRegressor
from treecdf.flows.regions_of_density import N_CELLS, N_MODE_CELLS, densest_cells, find_modes, levels_of_cells


def quantiles_of_two_modes(n_cells, share=0.5, apart=4.0):
    """Quantiles of a mixture of two normals at the levels of cells."""
    levels = levels_of_cells(n_cells)
    grid = np.linspace(-8, 8 + apart, 400_001)
    cdf = share * stats.norm.cdf(grid) + (1 - share) * stats.norm.cdf(grid, apart)
    return np.interp(levels, cdf, grid), levels


def test_the_region_of_a_normal_is_its_central_interval():
    levels = levels_of_cells(N_CELLS)
    for level in (0.5, 0.9, 0.98):
        (interval,), mass = densest_cells(stats.norm.ppf(levels), levels, level)
        np.testing.assert_allclose(interval, stats.norm.interval(level), atol=0.06)  # the width of an outer cell
        assert level <= mass <= level + 1 / N_CELLS + 1e-9


def test_two_modes_have_two_intervals_with_the_exact_probability():
    ends, levels = quantiles_of_two_modes(N_CELLS, 0.3, 10.0)
    intervals, mass = densest_cells(ends, levels, 0.8)
    assert len(intervals) == 2
    exact = sum(
        0.3 * np.diff(stats.norm.cdf(part))[0] + 0.7 * np.diff(stats.norm.cdf(part, 10.0))[0] for part in intervals
    )
    assert mass == pytest.approx(exact, abs=1e-6)
    assert 0.8 <= mass <= 0.8 + 1 / N_CELLS + 1e-9


@pytest.mark.parametrize(("apart", "expected"), [(0.0, [0.0]), (1.0, [0.5]), (4.0, [0.0, 4.0]), (9.0, [0.0, 9.0])])
def test_modes_are_where_the_density_peaks(apart, expected):
    found = find_modes(*quantiles_of_two_modes(N_MODE_CELLS, 0.5, apart))
    assert len(found) == len(expected)
    np.testing.assert_allclose(found, expected, atol=0.35)


@pytest.mark.parametrize("share", [0.46, 0.47, 0.48, 0.485])
def test_a_rare_mode_between_others_is_found_wherever_the_cells_end(share):
    levels, grid = levels_of_cells(N_MODE_CELLS), np.linspace(-6, 6, 400_001)
    shares, places = (share, 0.03, 0.97 - share), (-2.0, 0.0, 2.0)
    cdf = sum(part * stats.norm.cdf(grid, place, 0.2) for part, place in zip(shares, places, strict=True))
    np.testing.assert_allclose(find_modes(np.interp(levels, cdf, grid), levels), places, atol=0.2)


def test_models_give_regions_and_modes():
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(400, 1))
    y = np.where(rng.random(400) < 0.5, -2, 2) + 0.1 * rng.normal(size=400)
    d = TreeFlowRegressor(effort="fast", random_state=0).fit(x, y).predict_distribution(x[:4])
    regions, probability = d.hdr(0.8)
    assert [len(part) for part in regions] == [2] * 4
    for k, part in enumerate(regions):
        ends = np.tile(np.ravel(part), (4, 1))
        assert np.diff(d.cdf(ends)[k])[::2].sum() == pytest.approx(probability[k], abs=1e-8)
    for found in d.modes():
        np.testing.assert_allclose(found, [-2, 2], atol=0.2)
    with pytest.raises(ValueError, match="level"):
        d.hdr(1.0)
