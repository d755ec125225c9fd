"""Kernels that took the place of many small calls of numpy, beside what these calls did."""

import numpy as np
import pytest

from treecdf._kernels.distances import fill_excess
from treecdf._kernels.integrals import fill_errors, merge_points
from treecdf.bases.transform import OutcomeTransform


def _naive_excess(x, relevance, ends, components, ends_of_scores, points, near, size):
    """`fill_excess` row by row, with whole arrays."""
    found = []
    for row in x:
        known = ~np.isnan(row)

        def beyond(values, of):
            return np.maximum(np.maximum(of[0] - values, values - of[1]), 0) / of[2]

        most = (relevance * beyond(np.where(known, row, ends[0]), ends))[known].max(initial=0)
        if known.all() and components.shape[1]:
            most = max(most, beyond(row @ components, ends_of_scores).max())
        differences = ((relevance * row)[:, None] - points)[known]
        nearest = np.sqrt((differences**2).sum(axis=0).min())
        found.append(max(most, max(nearest - near, 0) / size))
    return np.array(found)


@pytest.mark.parametrize(("n_points", "n_components"), [(1, 0), (64, 2), (150, 4)])
def test_how_far_rows_are_is_what_arrays_say(n_points, n_components):
    rng = np.random.default_rng(n_points)
    x, relevance = 3 * rng.normal(size=(40, 4)), np.array([1.0, 0.3, 0.0, 0.7])
    x[rng.random(x.shape) < 0.1] = np.nan
    x[7] = np.nan
    x[10:20, :3], x[20:24] = x[10, :3], x[20]  # runs of rows that agree in the first columns, or in all
    ends = np.stack([-np.ones(4), np.ones(4), np.full(4, 0.5)])
    components = rng.normal(size=(4, n_components))
    of_scores = np.stack([-np.ones(n_components), np.ones(n_components), np.full(n_components, 2.0)])
    points = relevance[:, None] * rng.normal(size=(4, n_points))
    known = (relevance, ends, components, of_scores, points, 0.1, 2.0)
    found = np.empty(len(x))
    fill_excess(x, *known, found)
    np.testing.assert_allclose(found, _naive_excess(x, *known), rtol=1e-12, atol=1e-12)


def _curve(rng, n, m):
    """Points, CDF and density (3, n, m) of normal-like curves, with points that repeat."""
    y = np.sort(rng.normal(size=(n, m)), axis=1)
    y[:, 3] = y[:, 2]
    return np.stack([y, 1 / (1 + np.exp(-1.7 * y)), np.exp(-(y**2) / 2)])


def test_errors_of_intervals_are_what_arrays_say():
    rng = np.random.default_rng(0)
    y, cdf, density = _curve(rng, 5, 30)
    density[1, 4] = np.inf
    center, unit = rng.normal(size=5), 0.5 + rng.random(5)
    errors, totals = np.empty((5, 29)), np.empty(5)
    fill_errors(y, cdf, density, center, unit, errors, totals)
    length = np.diff(y, axis=1) / unit[:, None]
    length *= 1 + np.abs(y[:, 1:] - center[:, None]) / unit[:, None]
    straight = (density[:, 1:] / 2 + density[:, :-1] / 2) * np.diff(y, axis=1)
    rise = np.diff(cdf, axis=1)
    expected = length * np.fmin(np.abs(rise - straight), rise)
    np.testing.assert_allclose(errors, expected, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(totals, np.sqrt((expected**2).sum(axis=1)), rtol=1e-12)


def test_points_are_merged_in_order_and_rows_without_any_repeat_their_last():
    rng = np.random.default_rng(1)
    old, new = _curve(rng, 4, 20), _curve(rng, 2, 6)
    new[0, 0, 1] = old[0, 1, 5]  # of equal points the old one comes first
    new[0, 0].sort()
    place = np.array([-1, 0, -1, 1])
    merged = np.empty((3, 4, 26))
    merge_points(old, new, place, merged)
    for i, row in enumerate(place):
        if row < 0:
            whole = np.concatenate([old[:, i], np.repeat(old[:, i, -1:], 6, axis=1)], axis=1)
        else:
            whole = np.concatenate([old[:, i], new[:, row]], axis=1)
            whole = whole[:, np.argsort(whole[0], kind="stable")]
        whole[1] = np.maximum.accumulate(whole[1])
        np.testing.assert_array_equal(merged[:, i], whole)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.5, 2.0, "logarithm"])
def test_outcomes_and_slopes_are_those_of_the_transform(power):
    y = np.exp(2 * np.random.default_rng(2).normal(size=400))
    weight = np.ones(len(y))
    transform = (
        OutcomeTransform.fit_log(y, weight, 0.0) if power == "logarithm" else OutcomeTransform.fit(y, weight, power)
    )
    sizes = np.logspace(-8, 12, 100)
    asked = np.concatenate([-sizes[::-1], [0.0], sizes, [-np.inf, np.inf, 1e305]]).reshape(2, -1)
    g, log_slope = transform.forward(asked)
    found, slope = transform.forward_and_slope(asked)
    np.testing.assert_allclose(found, g, rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(slope, np.exp(log_slope), rtol=1e-13)
