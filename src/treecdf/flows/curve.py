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
from treecdf._kernels.integrals import (
    curve_crps,
    curve_moments,
    curve_quantiles,
    fill_errors,
    find_places,
    merge_points,
    scaled_units,
)

# Outcomes (n, m) that ascend at each row -> CDF and density (n, m)
Ask = Callable[[Array, Bools | slice], tuple[Array, Array]]

_LARGEST_STEP = 0.1  # of the CDF between two points; where it is larger more points are taken
_N_MORE = 48  # points that a row gets then
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
        for choose, n_passes in ((Curve._steep, passes[0]), (Curve._kinked, passes[1])):
            for _ in range(n_passes):
                rows, more = choose(curve)
                if not rows.any():
                    break
                curve = curve._with_more(ask, rows, more)
        return curve

    def _steep(self) -> tuple[Bools, Array]:
        """Rows (n,) where the CDF has large steps, and points (k, m) for these rows, at even levels."""
        rows = np.asarray((self.cdf[:, 1:] - self.cdf[:, :-1] > _LARGEST_STEP).any(axis=1))
        if not rows.any():
            return rows, self.y[:0, :0]
        own = self.take(rows)
        levels = np.tile((np.arange(_N_MORE) + 0.5) / _N_MORE, (len(own.y), 1))
        near = own.brackets(np.clip(levels, own.cdf[:, :1], own.cdf[:, -1:]))[2]
        return rows, np.where(np.isfinite(near), near, own.y[:, -1:])

    def _kinked(self) -> tuple[Bools, Array]:
        """Rows (n,) where kinks of the CDF matter, and points (k, m) in the middle of the worst intervals of these.

        With a density that is a straight line the CDF would rise by the mean of its ends times the length.
        """
        center = self.y[np.arange(len(self.y)), self._middle()]
        errors, totals = np.empty((len(self.y), self.y.shape[1] - 1)), np.empty(len(self.y))
        fill_errors(self.y, self.cdf, self.density, center, self._unit(center), errors, totals)
        rows = totals > _LARGEST_ERROR
        worst = np.argpartition(errors[rows], -_N_MORE, axis=1)[:, -_N_MORE:]
        y, own = self.y[rows], np.arange(len(worst))[:, None]
        return rows, y[own, worst] / 2 + y[own, worst + 1] / 2

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
        center = self.y[np.arange(len(self.y)), self._middle()]
        mean, std = np.empty(len(center)), np.empty(len(center))
        curve_moments(self.y, self.cdf, self.density, center, self._unit(center), mean, std)
        return mean, std

    def crps(self, truth: Array) -> Array:
        """Continuous ranked probability score (n,) of outcomes truth (n,), which must be among the points."""
        crps = np.empty(len(truth))
        curve_crps(self.y, self.cdf, self.density, truth, self._unit(truth), crps)
        return crps

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
        near = self.brackets(np.clip(levels, self.cdf[:, :1], self.cdf[:, -1:]))[2]
        return np.where(np.isnan(near), self.y[:, :1], near)

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
        """For levels (n, k) the neighbouring points below and above their quantiles, and the quantiles of the cubics.

        All three are NaN where a level is beyond the points.
        """
        found = np.empty(levels.shape), np.empty(levels.shape), np.empty(levels.shape)
        levels = np.ascontiguousarray(levels)
        curve_quantiles(self.y, self.cdf, self.density, levels, _places(self.cdf, levels), *found)
        return found

    def _middle(self) -> Ints:
        """Number (n,) of the first point whose CDF is at least a half, or of the last point."""
        return np.minimum((self.cdf < 0.5).sum(axis=1), self.y.shape[1] - 1)

    def _unit(self, center: Array) -> Array:
        """A typical distance (n,) of the central half from a center (n,)."""
        unit = np.empty(len(center))
        scaled_units(self.y, self.cdf, center, unit)
        return unit

    def _with_more(self, ask: Ask, rows: Bools, more: Array) -> Curve:
        """The curve with more points (k, m) at k chosen rows; the others repeat their last point."""
        y = np.sort(more, axis=1)
        old, new = np.stack([self.y, self.cdf, self.density]), np.stack([y, *ask(y, rows)])
        merged = np.empty((*old.shape[:2], old.shape[2] + _N_MORE))
        merge_points(old, new, np.where(rows, np.cumsum(rows) - 1, -1), merged)
        return Curve(*merged)


def _places(cdf: Array, levels: Array) -> Ints:
    """Numbers (n, k) of the first points whose CDF (n, m) is at least each level (n, k)."""
    places = np.empty(levels.shape, np.int64)
    find_places(cdf, levels, places)
    return places
