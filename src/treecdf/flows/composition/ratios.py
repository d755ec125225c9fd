"""Log ratios of compositions: of every taxon present to the total of those before it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treecdf._common.typing import Array, Bools, Ints
from treecdf.flows.mixture import Mixture

_LARGEST_LOG_RATIO = 300.0
_FAR = 3.0  # standard deviations: features beyond are held
_SMALLEST = 1e-300  # abundance of what is present


@dataclass(frozen=True)
class Ratios:
    """Logs of compositions, up to a constant of each row, of taxa (K,) in order."""

    present: Bools  # (n, K)
    log_y: Array  # (n, K); 0 where absent
    log_total: Array  # (n, K): of the taxa before this one; 0 if none is present
    follows: Bools  # (n, K): present, and so is an earlier one

    @staticmethod
    def of(y: Array) -> Ratios:
        """From compositions y (n, K)."""
        present = y > 0
        log_y = np.log(np.where(present, y, 1.0))
        before = np.cumsum(np.hstack([np.zeros((len(y), 1)), y[:, :-1]]), axis=1)
        return Ratios(present, log_y, np.log(np.where(before > 0, before, 1.0)), _follows(present))

    @staticmethod
    def unknown(present: Bools) -> Ratios:
        """Of those present (n, K), before any ratio is known."""
        return Ratios(present, np.zeros(present.shape), np.zeros(present.shape), _follows(present))

    def log_ratio(self, k: int) -> Array:
        """Of taxon k to the total of those before it, (n,)."""
        return self.log_y[:, k] - self.log_total[:, k]

    def features(self, k: int) -> Array:
        """What is known of taxon k before its ratio is (n, K + k).

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
    """Whether a taxon is present and an earlier one is too."""
    return present & (np.cumsum(present, axis=1) > 1)


@dataclass(frozen=True)
class Link:
    """p(log ratio of a taxon | x, features): a linear location first, then a flow given x and that."""

    center: Array
    scale: Array
    slopes: Array
    flow: Mixture

    def draw(self, u: Array, x: Array, effects: Array, features: Array) -> Array:
        """Log ratios (n,) made of uniforms u (n,)."""
        return self.flow.draw(u[:, None, None], self._given(x, effects, features))[:, 0, 0]

    def log_prob(self, log_ratio: Array, x: Array, effects: Array, features: Array) -> Array:
        """Log density (n,) of log ratios (n,)."""
        return self.flow.log_prob(log_ratio[:, None, None], self._given(x, effects, features))[:, 0]

    def _given(self, x: Array, effects: Array, features: Array) -> Array:
        z = standardized(np.hstack([effects, features]), self.center, self.scale)
        return np.column_stack([x, z @ self.slopes])


def standardized(raw: Array, center: Array, scale: Array) -> Array:
    """Features in standard deviations, held where far off; unknown ones (NaN) are 0."""
    return np.clip(np.where(np.isnan(raw), 0.0, (raw - center) / scale), -_FAR, _FAR)
