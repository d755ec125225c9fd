"""The CDF of one outcome on a grid of points at every row: what moments, the CRPS and quantiles are made of.

The exact CDF and density are taken at each point. Between two points the CDF is a cubic that has these values and
slopes at both ends, with slopes held where it would not ascend. Integrals of it are sums over the intervals. Their
error falls with the fourth power of the spacing, with the square of it where a tree cuts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from treecdf._common.typing import Array, Bools, Ints

# Outcomes (n, m) that ascend at each row -> CDF and density (n, m)
Ask = Callable[[Array, Bools | slice], tuple[Array, Array]]

_LARGEST_STEP = 0.1  # of the CDF between two points; where it is larger more points are taken
_N_MORE = 48  # points that a row gets then
_N_STEPS = 30  # of root finding on the cubics, of which few are needed
# What lines between densities leave over of the CDF, times the length, in units of the range of the central half
_LARGEST_ERROR = 1e-3
# Passes in which a row may get more points, where the CDF rises fast and where trees cut: for integrals, for brackets
# of quantiles, and for means over many curves
FINE, STEEP, ROUGH = (3, 2), (3, 0), (0, 0)


@dataclass(frozen=True)
class Curve:
    """CDF and density (n, m) of one outcome at points y (n, m), which ascend at each row and may repeat."""

    y: Array
    cdf: Array
    density: Array

    @staticmethod
    def trace(ask: Ask, points: Array, passes: tuple[int, int] = FINE) -> Curve:
        """The curve at points (n, m), in any order, and at more: in passes where the CDF rises fast, and at kinks."""
        y = np.sort(points, axis=1)
        curve = Curve(y, *ask(y, slice(None)))
        for choose in (*(Curve._steep,) * passes[0], *(Curve._kinked,) * passes[1]):
            rows, more = choose(curve)
            if rows.any():
                curve = curve._with_more(ask, rows, more)
        return curve

    def _steep(self) -> tuple[Bools, Array]:
        """Rows (n,) where the CDF has large steps, and points (k, m) for these rows, at even levels."""
        rows = np.asarray((np.diff(self.cdf, axis=1) > _LARGEST_STEP).any(axis=1))
        own = self.take(rows)
        levels = np.tile((np.arange(_N_MORE) + 0.5) / _N_MORE, (len(own.y), 1))
        near = own.brackets(np.clip(levels, own.cdf[:, :1], own.cdf[:, -1:]))[2]
        return rows, np.where(np.isfinite(near), near, own.y[:, -1:])

    def _kinked(self) -> tuple[Bools, Array]:
        """Rows (n,) where kinks of the CDF matter, and points (k, m) in the middle of the worst intervals of these.

        With a density that is a straight line the CDF would rise by the mean of its ends times the length.
        """
        away, _ = self._scaled(self.y[np.arange(len(self.y)), self._middle()])
        length = np.diff(away, axis=1)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            straight = (self.density[:, 1:] / 2 + self.density[:, :-1] / 2) * np.diff(self.y, axis=1)
            error = length * np.fmin(np.abs(np.diff(self.cdf, axis=1) - straight), np.diff(self.cdf, axis=1))
        rows = np.sqrt((error**2).sum(axis=1)) > _LARGEST_ERROR
        worst = np.argpartition(error[rows], -_N_MORE, axis=1)[:, -_N_MORE:]
        y = self.y[rows]
        return rows, (np.take_along_axis(y, worst, axis=1) / 2 + np.take_along_axis(y, worst + 1, axis=1) / 2)

    @staticmethod
    def join(parts: Sequence[Curve]) -> Curve:
        """The curves of all parts, one below the other; rows with fewer points repeat their last."""
        m = max((part.y.shape[1] for part in parts), default=1)

        def padded(values: Array) -> Array:
            return np.pad(values, ((0, 0), (0, m - values.shape[1])), mode="edge")

        if not parts:
            return Curve(*(np.empty((0, m)) for _ in range(3)))
        fields = ((part.y, part.cdf, part.density) for part in parts)
        return Curve(*(np.vstack([padded(values) for values in field]) for field in zip(*fields, strict=True)))

    def moments(self) -> tuple[Array, Array]:
        """Mean and standard deviation (n,)."""
        middle = self._middle()
        rows = np.arange(len(self.y))
        center = self.y[rows, middle]
        away, unit = self._scaled(center)
        below = np.arange(self.y.shape[1] - 1) < middle[:, None]  # intervals below the center
        mass, slope = self._masses(below, away)
        sign = np.where(below, -1.0, 1.0)
        first = sign * _integral(away, mass, slope)
        ends = np.abs(away[:, :-1]), np.abs(away[:, 1:])
        moment = tuple(2 * end * own for end, own in zip(ends, mass, strict=True))
        change = tuple(2 * (end * s + sign * own) for end, s, own in zip(ends, slope, mass, strict=True))
        second = _integral(away, moment, change)
        mean = first.sum(axis=1)
        std = np.sqrt(np.maximum(second.sum(axis=1) - mean**2, 0.0))
        return center + unit * mean, unit * std

    def crps(self, truth: Array) -> Array:
        """Continuous ranked probability score (n,) of outcomes truth (n,), which must be among the points."""
        away, unit = self._scaled(truth)
        below = self.y[:, 1:] <= truth[:, None]
        mass, slope = self._masses(below, away)
        square = tuple(own**2 for own in mass)
        change = tuple(2 * own * s for own, s in zip(mass, slope, strict=True))
        return unit * _integral(away, square, change).sum(axis=1)

    def take(self, rows: Ints | Bools) -> Curve:
        """The curve at some rows."""
        return Curve(self.y[rows], self.cdf[rows], self.density[rows])

    def at(self, y: Array) -> tuple[Array, Array]:
        """CDF and density (n, k) of the cubics at outcomes y (n, k); beyond the points 0 or 1, and 0."""
        right = _places(self.y, y)
        inside = (right > 0) & (right < self.y.shape[1])
        share, (start, end, first, last), length = self._cubics(np.clip(right, 1, self.y.shape[1] - 1), y)
        rest = 1 - share
        # Bernstein's form: four numbers that ascend, so that the CDF does
        inner = start + first / 3, end - last / 3
        cdf = rest**3 * start + 3 * rest**2 * share * inner[0] + 3 * rest * share**2 * inner[1] + share**3 * end
        steps = inner[0] - start, inner[1] - inner[0], end - inner[1]
        rise = 3 * (rest**2 * steps[0] + 2 * rest * share * steps[1] + share**2 * steps[2])
        with np.errstate(divide="ignore", invalid="ignore"):
            density = np.where(inside & (length > 0), np.maximum(rise, 0.0) / length, 0.0)
        return np.where(
            inside, cdf, np.where(right > 0, 1.0, np.where(y < self.y[:, :1], 0.0, self.cdf[:, :1]))
        ), density

    def quantiles(self, levels: Array) -> Array:
        """Outcomes (n, k) where the cubics reach levels (n, k); the outermost points for levels beyond them."""
        low, high, near = self.brackets(np.clip(levels, self.cdf[:, :1], self.cdf[:, -1:]))
        low = np.where(np.isnan(low), self.y[:, :1], low)
        high, near = np.where(np.isnan(high), low, high), np.where(np.isnan(near), low, near)
        for _ in range(_N_STEPS):
            value, slope = self.at(near)
            low, high = np.where(value <= levels, near, low), np.where(value > levels, near, high)
            with np.errstate(divide="ignore", invalid="ignore"):
                step = near - (value - levels) / slope
            near = np.where((step > low) & (step < high), step, low / 2 + high / 2)
        return near

    def with_point(self, y: Array) -> Curve:
        """The curve with one more point (n,) at each row."""
        order = np.argsort(np.column_stack([self.y, y]), axis=1, kind="stable")
        cdf, density = self.at(y[:, None])
        pairs = (self.y, y[:, None]), (self.cdf, cdf), (self.density, density)
        return Curve(*(np.take_along_axis(np.hstack(pair), order, axis=1) for pair in pairs))

    def _cubics(self, right: Ints, y: Array) -> tuple[Array, tuple[Array, Array, Array, Array], Array]:
        """Of the intervals that end at points `right` (n, k): where y is in them, ends and slopes, lengths."""
        (low, high), (start, end), (first, last) = (
            [np.take_along_axis(values, k, axis=1) for k in (right - 1, right)]
            for values in (self.y, self.cdf, self.density)
        )
        length, rise = high - low, end - start
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            share = np.clip(np.nan_to_num((y - low) / length), 0.0, 1.0)
            first, last = (np.fmin(slope * length, 3 * rise) for slope in (first, last))
        return share, (start, end, first, last), length

    def brackets(self, levels: Array) -> tuple[Array, Array, Array]:
        """For levels (n, k) the neighbouring points below and above their quantiles, and what is near these.

        All three are NaN where a level is beyond the points.
        """
        at = _places(self.cdf, levels)
        inside = (at > 0) & (at < self.cdf.shape[1])
        right = np.clip(at, 1, self.cdf.shape[1] - 1)
        low, high = (np.take_along_axis(self.y, k, axis=1) for k in (right - 1, right))
        below, above = (np.take_along_axis(self.cdf, k, axis=1) for k in (right - 1, right))
        with np.errstate(invalid="ignore", divide="ignore"):
            share = (levels - below) / (above - below)
        near = low + np.nan_to_num(share) * (high - low)
        return tuple(np.where(inside, values, np.nan) for values in (low, high, near))  # type: ignore[return-value]

    def _middle(self) -> Ints:
        """Number (n,) of the first point whose CDF is at least a half, or of the last point."""
        return np.minimum((self.cdf < 0.5).sum(axis=1), self.y.shape[1] - 1)

    def _scaled(self, center: Array) -> tuple[Array, Array]:
        """Distances (n, m) of the points from a center (n,), in units (n,) of a typical one of the central half."""
        with np.errstate(over="ignore", invalid="ignore"):
            away = self.y - center[:, None]
            central = np.where((self.cdf > 0.2) & (self.cdf < 0.8), np.abs(away), 0.0).max(axis=1)
            widest = np.abs(away).max(axis=1)
            unit = np.where(central > 1e-12 * widest, central, np.where(widest > 0, 1e-3 * widest, 1.0))
            return away / unit[:, None], unit

    def _masses(self, below: Bools, away: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        """At both ends of every interval (n, m - 1): the CDF if it is below the center, else 1 - CDF, and its slope."""
        length = np.diff(away, axis=1)
        rise = np.diff(self.cdf, axis=1)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            most = np.where(length > 0, 3 * rise / length, 0.0)  # a cubic with steeper ends would not ascend
            unit = np.diff(self.y, axis=1) / length
            scaled = [np.fmin(own * unit, most) for own in (self.density[:, :-1], self.density[:, 1:])]
        sign = np.where(below, 1.0, -1.0)
        mass = tuple(np.where(below, own, 1 - own) for own in (self.cdf[:, :-1], self.cdf[:, 1:]))
        return mass, (sign * scaled[0], sign * scaled[1])  # type: ignore[return-value]

    def _with_more(self, ask: Ask, rows: Bools, more: Array) -> Curve:
        """The curve with more points (k, m) at k chosen rows; the others repeat their last point."""
        own, y = self.take(rows), np.sort(more, axis=1)
        found = ask(y, rows)
        order = np.argsort(np.hstack([own.y, y]), axis=1, kind="stable")
        parts = []
        for old, before, new in zip(
            (self.y, self.cdf, self.density), (own.y, own.cdf, own.density), (y, *found), strict=True
        ):
            whole = np.hstack([old, np.repeat(old[:, -1:], _N_MORE, axis=1)])
            whole[rows] = np.take_along_axis(np.hstack([before, new]), order, axis=1)
            parts.append(whole)
        parts[1] = np.maximum.accumulate(parts[1], axis=1)  # rounding must not let it descend
        return Curve(*parts)


def _places(cdf: Array, levels: Array) -> Ints:
    """Numbers (n, k) of the first points whose CDF (n, m) is at least each level (n, k)."""
    found = [np.searchsorted(own, level) for own, level in zip(cdf, levels, strict=True)]
    return np.reshape(np.array(found, np.int64), levels.shape)


def _integral(away: Array, value: tuple[Array, ...], slope: tuple[Array, ...]) -> Array:
    """Integrals (n, m - 1) over the intervals between points away (n, m) of functions with these ends and slopes.

    The variable is z, away = sinh z: in it heavy tails are smooth. The rule is exact for cubics in z.
    """
    length, rise = np.diff(np.arcsinh(away), axis=1), np.hypot(1.0, away)
    with np.errstate(invalid="ignore", over="ignore"):
        left = slope[0] * rise[:, :-1] ** 2 + value[0] * away[:, :-1]
        right = slope[1] * rise[:, 1:] ** 2 + value[1] * away[:, 1:]
        area = length / 2 * (value[0] * rise[:, :-1] + value[1] * rise[:, 1:]) + length**2 / 12 * (left - right)
    return np.where(length > 0, area, 0.0)
