"""Log ratios of compositions: of every taxon present to the total of those before it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treecdf._common.typing import Array, Bools, Ints
from treecdf.flows.mixture import Mixture

_LARGEST_LOG_RATIO = 300.0  # log ratios beyond are held: abundances stay positive numbers
_FAR = 3.0  # standard deviations: features beyond are held
_SMALLEST = 1e-300  # abundance of what is present


@dataclass(frozen=True)
class Ratios:
    """Logs of compositions of K taxa in order, up to a constant of each row."""

    present: Bools  # (n, K)
    log_y: Array  # (n, K); 0 where absent
    log_total: Array  # (n, K): of the taxa before this one; 0 if none is present
    follows: Bools  # (n, K): present, and so is an earlier one

    @staticmethod
    def of(y: Array) -> Ratios:
        """The ratios of compositions y (n, K)."""
        present = y > 0
        log_y = np.log(np.where(present, y, 1.0))
        before = np.cumsum(np.hstack([np.zeros((len(y), 1)), y[:, :-1]]), axis=1)
        return Ratios(present, log_y, np.log(np.where(before > 0, before, 1.0)), _follows(present))

    @staticmethod
    def unknown(present: Bools) -> Ratios:
        """Ratios to be set by `put`, of taxa that are present (n, K)."""
        return Ratios(present, np.zeros(present.shape), np.zeros(present.shape), _follows(present))

    def log_ratio(self, k: int) -> Array:
        """Log ratios (n,) of taxon k to the total of those before it."""
        return self.log_y[:, k] - self.log_total[:, k]

    def features(self, k: int) -> Array:
        """Features (n, K + k) that the ratio of taxon k is predicted from.

        All presences, and the logs of the taxa before it relative to their total (NaN where absent).
        """
        before = np.where(self.present[:, :k], self.log_y[:, :k] - self.log_total[:, [k]], np.nan)
        return np.hstack([self.present, before])

    def put(self, k: int, rows: Ints, log_ratio: Array) -> None:
        """Set the ratios of taxon k in some rows: those where it follows others."""
        clipped = np.clip(log_ratio, -_LARGEST_LOG_RATIO, _LARGEST_LOG_RATIO)
        self.log_y[rows, k] = self.log_total[rows, k] + clipped
        if k + 1 < self.log_total.shape[1]:
            self.log_total[:, k + 1] = self.log_total[:, k]
            self.log_total[rows, k + 1] += np.logaddexp(0.0, clipped)

    def abundances(self) -> Array:
        """Compositions (n, K)."""
        log_y = np.where(self.present, self.log_y, -np.inf)
        y = np.exp(log_y - log_y.max(axis=1, keepdims=True))
        y = np.where(self.present, np.maximum(y, _SMALLEST), 0.0)
        return y / y.sum(axis=1, keepdims=True)


def _follows(present: Bools) -> Bools:
    """Whether a taxon is present and an earlier one is too, (n, K)."""
    return present & (np.cumsum(present, axis=1) > 1)


@dataclass(frozen=True)
class Link:
    """p(log ratio of a taxon | x, features): a linear prediction first, then a flow given x and that."""

    center: Array  # means of effects and features
    scale: Array  # standard deviations of effects and features
    slopes: Array  # of the linear prediction
    flow: Mixture

    def draw(self, u: Array, x: Array, effects: Array, features: Array) -> Array:
        """Log ratios (n,) made of uniforms u (n,) at covariates x, effects and features of the same rows."""
        return self.flow.draw(u[:, None, None], self._given(x, effects, features))[:, 0, 0]

    def log_prob(self, log_ratio: Array, x: Array, effects: Array, features: Array) -> Array:
        """Log densities (n,) of log ratios (n,) at covariates x, effects and features of the same rows."""
        return self.flow.log_prob(log_ratio[:, None, None], self._given(x, effects, features))[:, 0]

    def _given(self, x: Array, effects: Array, features: Array) -> Array:
        """Covariates (n, q + 1) of the flow: x and the linear prediction."""
        z = standardized(np.hstack([effects, features]), self.center, self.scale)
        return np.column_stack([x, z @ self.slopes])


def standardized(raw: Array, center: Array, scale: Array) -> Array:
    """Features in standard deviations, held where far off; unknown ones (NaN) are 0."""
    return np.clip(np.where(np.isnan(raw), 0.0, (raw - center) / scale), -_FAR, _FAR)
