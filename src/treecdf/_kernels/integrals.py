"""Integrals and quantiles of CDFs that are known at points: cubics between them, as in `flows/curve.py`."""

import math

import numpy as np

from treecdf._kernels.compiling import inlined_kernel, ordered_kernel

_N_STEPS = 60  # of root finding on a cubic; five are usual
_FINE = 1e-12  # of an interval: where root finding ends


@ordered_kernel
def scaled_units(y, cdf, center, unit):
    """unit (n,) <- a typical distance of the central half of each row from its center (n,)."""
    for i in range(y.shape[0]):
        central, widest = 0.0, 0.0
        for k in range(y.shape[1]):
            away = abs(y[i, k] - center[i])
            widest = max(widest, away)
            if 0.2 < cdf[i, k] < 0.8:
                central = max(central, away)
        unit[i] = central if central > 1e-12 * widest else (1e-3 * widest if widest > 0 else 1.0)


@inlined_kernel
def _area(length, rise, away, value, slope):
    """Integral over an interval of a function with these values and slopes at its ends; exact for cubics in asinh."""
    left = slope[0] * rise[0] * rise[0] + value[0] * away[0]
    right = slope[1] * rise[1] * rise[1] + value[1] * away[1]
    return length / 2.0 * (value[0] * rise[0] + value[1] * rise[1]) + length * length / 12.0 * (left - right)


@inlined_kernel
def _held(density, unit, cdf_rise, length):
    """The slope of a CDF in units, held where a cubic with steeper ends would not ascend."""
    most = 3.0 * cdf_rise / length
    slope = density * unit
    return slope if slope <= most else most  # an infinite or missing density is held, too


@ordered_kernel
def curve_moments(y, cdf, density, center, unit, mean, std):
    """mean, std (n,) <- moments of curves at points y (n, m), in units (n,) away from a point `center` of each."""
    for i in range(y.shape[0]):
        first, second = 0.0, 0.0
        before = (y[i, 0] - center[i]) / unit[i]
        angle, rise = math.asinh(before), math.hypot(1.0, before)
        for k in range(1, y.shape[1]):
            after = (y[i, k] - center[i]) / unit[i]
            if after <= before:
                continue
            next_angle, next_rise = math.asinh(after), math.hypot(1.0, after)
            step, length = cdf[i, k] - cdf[i, k - 1], after - before
            is_below = after <= 0.0
            sign = 1.0 if is_below else -1.0
            mass = (
                cdf[i, k - 1] if is_below else 1.0 - cdf[i, k - 1],
                cdf[i, k] if is_below else 1.0 - cdf[i, k],
            )
            slope = (
                sign * _held(density[i, k - 1], unit[i], step, length),
                sign * _held(density[i, k], unit[i], step, length),
            )
            away, rises, width = (before, after), (rise, next_rise), next_angle - angle
            far = abs(before), abs(after)
            moment = 2.0 * far[0] * mass[0], 2.0 * far[1] * mass[1]
            change = 2.0 * (far[0] * slope[0] - sign * mass[0]), 2.0 * (far[1] * slope[1] - sign * mass[1])
            first -= sign * _area(width, rises, away, mass, slope)
            second += _area(width, rises, away, moment, change)
            before, angle, rise = after, next_angle, next_rise
        mean[i] = center[i] + unit[i] * first
        std[i] = unit[i] * math.sqrt(max(second - first * first, 0.0))


@ordered_kernel
def curve_crps(y, cdf, density, truth, unit, crps):
    """crps (n,) <- integrals of squared differences of curves at points y (n, m) from steps at `truth` (n,).

    The truth is among the points; distances from it are in units (n,).
    """
    for i in range(y.shape[0]):
        total = 0.0
        before = (y[i, 0] - truth[i]) / unit[i]
        angle, rise = math.asinh(before), math.hypot(1.0, before)
        for k in range(1, y.shape[1]):
            after = (y[i, k] - truth[i]) / unit[i]
            if after <= before:
                continue
            next_angle, next_rise = math.asinh(after), math.hypot(1.0, after)
            step, length = cdf[i, k] - cdf[i, k - 1], after - before
            is_below = after <= 0.0
            sign = 2.0 if is_below else -2.0
            mass = (
                cdf[i, k - 1] if is_below else 1.0 - cdf[i, k - 1],
                cdf[i, k] if is_below else 1.0 - cdf[i, k],
            )
            change = (
                sign * mass[0] * _held(density[i, k - 1], unit[i], step, length),
                sign * mass[1] * _held(density[i, k], unit[i], step, length),
            )
            square = mass[0] * mass[0], mass[1] * mass[1]
            total += _area(next_angle - angle, (rise, next_rise), (before, after), square, change)
            before, angle, rise = after, next_angle, next_rise
        crps[i] = unit[i] * total


@ordered_kernel
def find_places(values, wanted, places):
    """places (n, k) <- numbers of the first of ascending values (n, m) that are at least as large as wanted (n, k)."""
    for i in range(wanted.shape[0]):
        for k in range(wanted.shape[1]):
            first, end = 0, values.shape[1]
            while first < end:
                middle = (first + end) // 2
                if values[i, middle] < wanted[i, k]:
                    first = middle + 1
                else:
                    end = middle
            places[i, k] = first


@ordered_kernel
def curve_quantiles(y, cdf, density, levels, places, low, high, near):
    """low, high, near (n, k) <- the points around the quantiles of levels (n, k), and the quantiles of the cubics.

    places (n, k): the first points whose CDF is at least the level. All three are NaN if there is none, or none below.
    """
    for i in range(levels.shape[0]):
        for k in range(levels.shape[1]):
            right = places[i, k]
            if right == 0 or right == y.shape[1]:
                low[i, k], high[i, k], near[i, k] = np.nan, np.nan, np.nan
                continue
            begin, end = y[i, right - 1], y[i, right]
            below, rise = cdf[i, right - 1], cdf[i, right] - cdf[i, right - 1]
            low[i, k], high[i, k] = begin, end
            length, level = end - begin, levels[i, k] - below
            # The cubic in Bernstein's form: four numbers that ascend, so that it does
            a = _held(density[i, right - 1], length, rise, 1.0) / 3.0
            b = rise - _held(density[i, right], length, rise, 1.0) / 3.0
            first, last, share = 0.0, 1.0, level / rise if rise > 0 else 0.0
            for _ in range(_N_STEPS):
                rest = 1.0 - share
                value = 3.0 * rest * rest * share * a + 3.0 * rest * share * share * b + share * share * share * rise
                if value <= level:
                    first = share
                else:
                    last = share
                slope = 3.0 * (rest * rest * a + 2.0 * rest * share * (b - a) + share * share * (rise - b))
                following = share - (value - level) / slope
                if not first < following < last:
                    following = 0.5 * first + 0.5 * last
                is_there = abs(following - share) <= _FINE
                share = following
                if is_there:
                    break
            near[i, k] = min(max(begin + share * length, begin), end)


@ordered_kernel
def fill_errors(y, cdf, density, center, unit, errors, totals):
    """errors (n, m - 1) <- what straight lines between densities leave over of the rise of a CDF, times the length.

    Lengths are in units (n,), and count more far from the center (n,), as they do in the second moment. totals (n,)
    are the roots of the sums of squares.
    """
    for i in range(y.shape[0]):
        total = 0.0
        for k in range(y.shape[1] - 1):
            width, rise = y[i, k + 1] - y[i, k], cdf[i, k + 1] - cdf[i, k]
            left_over = abs(rise - (density[i, k + 1] / 2.0 + density[i, k] / 2.0) * width)
            if not left_over < rise:  # also where densities are infinite
                left_over = rise
            away = 1.0 + abs(y[i, k + 1] - center[i]) / unit[i]
            errors[i, k] = width / unit[i] * away * left_over
            total += errors[i, k] * errors[i, k]
        totals[i] = math.sqrt(total)


@ordered_kernel
def merge_points(old, new, place, merged):
    """merged (3, n, m + k) <- curves old (3, n, m) with points new (3, ., k): y, CDF and density, ascending in y.

    Row i gets the row place[i] of the new points, or none if that is negative; then it repeats its last point.
    """
    m, k = old.shape[2], new.shape[2]
    for i in range(old.shape[1]):
        a, b, row, before = 0, 0, place[i], -np.inf
        for c in range(m + k):
            if a < m and (row < 0 or b == k or not new[0, row, b] < old[0, i, a]):
                for part in range(3):
                    merged[part, i, c] = old[part, i, a]
                a += 1
            elif row >= 0:
                for part in range(3):
                    merged[part, i, c] = new[part, row, b]
                b += 1
            else:
                for part in range(3):
                    merged[part, i, c] = merged[part, i, c - 1]
            merged[1, i, c] = max(merged[1, i, c], before)  # rounding must not let it descend
            before = merged[1, i, c]
