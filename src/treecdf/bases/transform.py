"""A monotone transform of one outcome: standardised, and straightened if it is skewed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from treecdf._common.numerics import FAR
from treecdf._common.typing import Array
from treecdf.bases.rotation import length_of_constant

_WIDE = 30.0  # ratio of 95 % to 5 % quantile from which on logarithms are worth a try
_MARGIN = 1.0  # standard deviations beyond the training outcomes


@dataclass(frozen=True)
class Transform:
    """y -> z = (y - center) / scale -> Yeo-Johnson with exponent `power`; 1 leaves z as it is.

    With a `unit` above 0, y -> asinh((y - origin) / unit) comes first, which is the logarithm of large numbers. Beyond
    `ends` of z it goes on as a straight line, so that mean and variance exist.
    """

    center: float
    scale: float
    power: float = 1.0
    origin: float = 0.0
    unit: float = 0.0
    ends: tuple[float, float] = (-np.inf, np.inf)

    @staticmethod
    def fit(y: Array, weight: Array, power: float = 1.0) -> Transform:
        """By mean and standard deviation of training outcomes y (n,)."""
        low, high = y.min(), y.max()
        middle, half = low / 2 + high / 2, high / 2 - low / 2
        share = weight / weight.sum()
        part = (y - middle) / (half or 1.0)
        mean = float(share @ part)
        scale = float(half * np.sqrt(share @ (part - mean) ** 2))
        return Transform(float(middle + half * mean), scale or float(length_of_constant(middle)), power)

    @staticmethod
    def fit_log(y: Array, weight: Array, origin: float) -> Transform | None:
        """The same after logarithms of distances from `origin`; None if these are of one order of magnitude."""
        distance = np.abs(y - origin)
        low, high = np.quantile(distance, [0.05, 0.95])
        if not (low > 0 and high / low > _WIDE and np.isfinite(high)):
            return None
        unit = float(low / 10)
        logs = np.arcsinh((y - origin) / unit)
        plain = Transform.fit(logs, weight)
        z = (logs - plain.center) / plain.scale
        return replace(plain, origin=origin, unit=unit, ends=(float(z.min()) - _MARGIN, float(z.max()) + _MARGIN))

    @property
    def name(self) -> str:
        """For people."""
        if self.unit > 0:
            return "logarithm"
        return "none" if self.power == 1 else f"Yeo-Johnson {self.power:g}"

    def forward(self, y: Array) -> tuple[Array, Array]:
        """Transformed outcomes and the logs of the derivative."""
        if self.unit > 0:
            return self._log_forward(y)
        with np.errstate(over="ignore"):
            z = np.clip((y - self.center) / self.scale, -FAR, FAR)
        if self.power == 1:
            return z, np.full(z.shape, -np.log(self.scale))
        upper, lower = self.power, 2 - self.power
        log_size = np.log1p(np.abs(z))
        grown = np.where(z >= 0, _box_cox(log_size, upper), -_box_cox(log_size, lower))
        log_slope = np.where(z >= 0, upper - 1, lower - 1) * log_size
        return np.clip(grown, -FAR, FAR), log_slope - np.log(self.scale)

    def inverse(self, g: Array) -> Array:
        """Inverse of `forward`; infinite where g is beyond its range."""
        if self.unit > 0:
            return self._log_inverse(g)
        if self.power != 1:
            upper, lower = self.power, 2 - self.power
            g = np.where(g >= 0, _un_box_cox(np.maximum(g, 0.0), upper), -_un_box_cox(np.maximum(-g, 0.0), lower))
        with np.errstate(over="ignore"):
            return self.center + self.scale * g

    def _log_forward(self, y: Array) -> tuple[Array, Array]:
        with np.errstate(over="ignore"):
            part = np.clip((y - self.origin) / self.unit, -FAR, FAR)
        z = (np.arcsinh(part) - self.center) / self.scale
        log_slope = -np.log(np.hypot(1.0, part)) - np.log(self.unit) - np.log(self.scale)
        for end, is_beyond in zip(self.ends, (z < self.ends[0], z > self.ends[1]), strict=True):
            y_end, log_rise = self._line(end)
            with np.errstate(over="ignore"):
                straight = np.clip(end + (y - y_end) * np.exp(-log_rise), -FAR, FAR)
            z, log_slope = np.where(is_beyond, straight, z), np.where(is_beyond, -log_rise, log_slope)
        return z, log_slope

    def _log_inverse(self, g: Array) -> Array:
        inside = np.clip(g, *self.ends)
        y = self.origin + self.unit * np.sinh(self.center + self.scale * inside)
        for end, is_beyond in zip(self.ends, (g < self.ends[0], g > self.ends[1]), strict=True):
            y_end, log_rise = self._line(end)
            with np.errstate(over="ignore"):
                y = np.where(is_beyond, y_end + (g - end) * np.exp(log_rise), y)
        return y

    def _line(self, end: float) -> tuple[float, float]:
        """The outcome at an end, and the log of its derivative there."""
        at = self.center + self.scale * end
        log_rise = np.log(np.cosh(at)) + np.log(self.unit) + np.log(self.scale)
        return float(self.origin + self.unit * np.sinh(at)), float(log_rise)


def _box_cox(log_size: Array, power: float) -> Array:
    """((1 + a)^power - 1) / power, from log(1 + a)."""
    if power == 0:
        return log_size
    with np.errstate(over="ignore"):
        return np.expm1(power * log_size) / power


def _un_box_cox(g: Array, power: float) -> Array:
    if power == 0:
        with np.errstate(over="ignore"):
            return np.expm1(g)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        inside = 1 + power * g
        return np.where(inside > 0, np.expm1(np.log(np.maximum(inside, 1e-320)) / power), np.inf)
