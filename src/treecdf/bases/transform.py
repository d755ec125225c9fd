"""A monotone transform of one outcome: standardised, and straightened if it is skewed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import boxcox1p

from treecdf._common.numerics import FAR, weighted_moments, weighted_quantile
from treecdf._common.typing import Array
from treecdf._kernels.outcomes import transform_outcomes
from treecdf.bases.rotation import length_of_constant

_WIDE = 30.0  # ratio of the 95 % to the 5 % quantile of distances from which on logarithms are tried (ADR 15)
_WIDEST = 0.9  # a scale over the inner nine tenths of the outcomes at most: 3 times that of a normal distribution
_MARGIN = (
    1.0  # transformed standard deviations beyond the training outcomes where a curve goes over into a straight line
)


@dataclass(frozen=True)
class OutcomeTransform:
    """y -> z = (y - center) / scale -> Yeo-Johnson with exponent `power`; 1 leaves z as it is.

    With a `unit` above 0, y -> asinh((y - origin) / unit) comes first, which is the logarithm of large numbers. Beyond
    `ends` of the transformed outcome it goes on as a straight line: tails of y are those of the components, and mean
    and variance exist where theirs do.
    """

    center: float
    scale: float
    power: float = 1.0
    origin: float = 0.0
    unit: float = 0.0
    ends: tuple[float, float] = (-np.inf, np.inf)

    @staticmethod
    def fit(y: Array, weight: Array, power: float = 1.0) -> OutcomeTransform:
        """Center and scale by the weighted mean and standard deviation of training outcomes y (n,).

        If few outcomes make up most of the standard deviation, by the median and the inner nine tenths.
        """
        moments = weighted_moments(y, weight)
        low, middle, high = (weighted_quantile(y, weight, level) for level in (0.05, 0.5, 0.95))
        widest = _WIDEST * (high - low)
        if 0 < widest < moments.std:
            return OutcomeTransform(middle, widest, power)._straight_beyond(y)
        scale = float(moments.std) or float(length_of_constant(moments.middle))
        return OutcomeTransform(float(moments.mean), scale, power)._straight_beyond(y)

    @staticmethod
    def fit_log(y: Array, weight: Array, origin: float) -> OutcomeTransform | None:
        """The same after logarithms of distances from `origin`; None if these are of one order of magnitude."""
        distance = np.abs(y - origin)
        low, high = np.quantile(distance, [0.05, 0.95])
        if not (low > 0 and high / low > _WIDE and np.isfinite(high)):
            return None
        unit = float(low / 10)
        logs = np.arcsinh((y - origin) / unit)
        plain = OutcomeTransform.fit(logs, weight)
        return replace(plain, origin=origin, unit=unit)._straight_beyond(y)

    def _straight_beyond(self, y: Array) -> OutcomeTransform:
        """The same with `ends` a little beyond the training outcomes y (n,); a straight line needs none."""
        if self.power == 1 and self.unit == 0:
            return self
        g = self._curved(y)[0]
        return replace(self, ends=(float(g.min()) - _MARGIN, float(g.max()) + _MARGIN))

    @property
    def name(self) -> str:
        """The transform's name in the summary of a model: "none", "logarithm" or "Yeo-Johnson" and its power."""
        if self.unit > 0:
            return "logarithm"
        return "none" if self.power == 1 else f"Yeo-Johnson {self.power:g}"

    def forward(self, y: Array) -> tuple[Array, Array]:
        """Transformed outcomes and the logs of the derivative, both of the shape of y."""
        g, log_slope = self._curved(y)
        for k, is_beyond in enumerate((g < self.ends[0], g > self.ends[1])):
            if is_beyond.any():
                end, (y_end, log_rise) = self.ends[k], self._lines[k]
                with np.errstate(over="ignore"):
                    straight = np.clip(end + (y - y_end) * np.exp(-log_rise), -FAR, FAR)
                g, log_slope = np.where(is_beyond, straight, g), np.where(is_beyond, -log_rise, log_slope)
        return g, log_slope

    def inverse(self, g: Array) -> Array:
        """Inverse of `forward`; infinite where g is beyond its range."""
        y = self._curved_inverse(np.clip(g, *self.ends))
        for k, is_beyond in enumerate((g < self.ends[0], g > self.ends[1])):
            if is_beyond.any():
                end, (y_end, log_rise) = self.ends[k], self._lines[k]
                with np.errstate(over="ignore"):
                    y = np.where(is_beyond, y_end + (g - end) * np.exp(log_rise), y)
        return y

    @cached_property
    def numbers(self) -> tuple[tuple[float, ...], Array, Array]:
        """The transform as kernels know it: curve, ends, and a line beyond each end; made once."""
        curve = self.center, self.scale, self.power, self.origin, self.unit
        lines = np.array(self._lines)
        with np.errstate(over="ignore"):
            lines[:, 1] = np.exp(lines[:, 1])
        return tuple(map(float, curve)), np.array(self.ends), lines

    def _curved(self, y: Array) -> tuple[Array, Array]:
        """`forward` as if there were no `ends`."""
        if self.unit > 0:
            with np.errstate(over="ignore"):
                part = np.clip((y - self.origin) / self.unit, -FAR, FAR)
            log_slope = -np.log(np.hypot(1.0, part)) - np.log(self.unit) - np.log(self.scale)
            return (np.arcsinh(part) - self.center) / self.scale, log_slope
        with np.errstate(over="ignore"):
            z = np.clip((y - self.center) / self.scale, -FAR, FAR)
        if self.power == 1:
            return z, np.full(z.shape, -np.log(self.scale))
        upper, lower = self.power, 2 - self.power
        size = np.abs(z)
        with np.errstate(over="ignore"):
            grown = np.where(z >= 0, boxcox1p(size, upper), -boxcox1p(size, lower))
        log_slope = np.where(z >= 0, upper - 1, lower - 1) * np.log1p(size)
        return np.clip(grown, -FAR, FAR), log_slope - np.log(self.scale)

    def forward_and_slope(self, y: Array) -> tuple[Array, Array | float]:
        """Transformed outcomes and the derivative, a number if it is the same everywhere."""
        if self.power != 1 or self.unit > 0:
            g, slope = np.empty(y.shape), np.empty(y.shape)
            transform_outcomes(np.ascontiguousarray(y).reshape(-1), *self.numbers, g.reshape(-1), slope.reshape(-1))
            return g, slope
        with np.errstate(over="ignore"):
            return np.minimum(np.maximum((y - self.center) / self.scale, -FAR), FAR), 1 / self.scale

    def _curved_inverse(self, g: Array) -> Array:
        """`inverse` as if there were no `ends`."""
        if self.unit > 0:
            return np.asarray(self.origin + self.unit * np.sinh(self.center + self.scale * g))
        if self.power != 1:
            with np.errstate(over="ignore"):
                grown = _inverse_boxcox1p(np.abs(g), np.where(g >= 0, self.power, 2 - self.power))
            g = np.where(g >= 0, grown, -grown)
        with np.errstate(over="ignore"):
            return np.asarray(self.center + self.scale * g)

    @cached_property
    def _lines(self) -> list[tuple[float, float]]:
        """The outcome at each end, and the log of its derivative there; worked out once."""
        return [self._line(end) if np.isfinite(end) else (0.0, 0.0) for end in self.ends]

    def _line(self, end: float) -> tuple[float, float]:
        """The outcome at an end, and the log of its derivative there."""
        y_end = self._curved_inverse(np.array(end))
        return float(y_end), -float(self._curved(y_end)[1])


def _inverse_boxcox1p(g: Array, power: Array) -> Array:
    """Inverse of `boxcox1p` at g of at least 0, for powers from 0 to 2, each with its own.

    SciPy's own differs in the last bit of about half of all numbers, and so would outcomes that models give.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(1 + power * g) / power
    return np.expm1(np.where(power == 0, g, logs))
