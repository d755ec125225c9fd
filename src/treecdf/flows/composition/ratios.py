"""Log ratios of compositions: of every taxon that is present to the total of those before it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treecdf._common.typing import Array, Bools, Ints
from treecdf.flows.mixture import Mixture

_LARGEST_LOG_RATIO = 300.0  # log ratios beyond are held: abundances stay positive numbers
_FAR = 3.0  # standard deviations: features beyond are held
_SMALLEST = 1e-300  # abundance of what is present
_MOST_BELOW = 1 - 1e-9  # probability of ratios of less than half a read, at most


@dataclass(frozen=True)
class Ratios:
    """Logs of compositions of K taxa in order, up to an additive constant for each row."""

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
        """Features (n, K) for predicting the ratio of taxon k.

        They are the logs of the taxa before it relative to their total, and presences of itself and the others. Taxa
        before it that are absent are given half of the smallest abundance that is present.
        """
        if not k:
            return self.present.astype(np.float64)
        before = np.where(self.present[:, :k], self.log_y[:, :k] - self.log_total[:, [k]], 0.0)
        least = before.min(axis=1, keepdims=True) + np.log(0.5)
        return np.hstack([np.where(self.present[:, :k], before, least), self.present[:, k:]])

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
    """Whether a taxon and at least one earlier taxon are present, (n, K)."""
    return present & (np.cumsum(present, axis=1) > 1)


def order_of_chain(y: Array, weight: Array) -> Ints:
    """Columns of compositions y (n, taxa) that are not always zero: the abundant and steady ones first.

    By the mean less the standard deviation of their logs (ADR 36). Ratios are to the total of those before, and what
    is steady makes a total that little strays from; a taxon that blooms in some samples has a ratio of its own. Where
    a taxon is absent it has half of the smallest abundance of the sample.
    """
    seen = np.flatnonzero(y.any(axis=0))
    present = y[:, seen] > 0
    log_y = np.log(np.where(present, y[:, seen], 1.0))
    least = np.where(present, log_y, np.inf).min(axis=1, keepdims=True) + np.log(0.5)
    log_y = np.where(present, log_y, least)
    log_y -= log_y.mean(axis=1, keepdims=True)
    share = weight / weight.sum()
    mean = share @ log_y
    order: Ints = seen[np.argsort(np.sqrt(share @ (log_y - mean) ** 2) - mean, kind="stable")]
    return order


@dataclass(frozen=True)
class Link:
    """p(log ratio of a taxon | x, features): a linear prediction first, then a flow given x and that."""

    center: Array  # means of effects and features
    scale: Array  # standard deviations of effects and features
    slopes: Array  # of the linear prediction
    flow: Mixture

    def draw(self, u: Array, given: Array, floor: Array | None) -> Array:
        """Log ratios (n,) made of independent uniforms u (n,), given that they are not below floors (n,).

        `given` (n, q + 1) are the flow's covariates. A uniform first picks the member of the flow; what is left of it
        is the level within this member.
        """
        members = self.flow.members
        below = np.zeros((len(u), len(members)))
        if floor is not None:
            for j, member in enumerate(members):
                below[:, j] = member.forward_and_log_det(floor[:, None, None], given)[0][:, 0, 0]
        below = np.minimum(below, _MOST_BELOW)
        mass = np.exp(self.flow.log_weights_at(given)) * (1 - below)
        reached = np.cumsum(mass, axis=1) / mass.sum(axis=1, keepdims=True)
        picked = (u[:, None] > reached[:, :-1]).sum(axis=1)
        start = np.column_stack([np.zeros(len(u)), reached])
        drawn = np.empty(len(u))
        for j, member in enumerate(members):
            rows = np.flatnonzero(picked == j)
            level = np.clip((u[rows] - start[rows, j]) / (start[rows, j + 1] - start[rows, j]), 0.0, 1.0)
            level = below[rows, j] + (1 - below[rows, j]) * level
            drawn[rows] = member.draw(level[:, None, None], given[rows])[:, 0, 0]
        return drawn

    def quantile(self, u: Array, given: Array, floor: Array | None) -> Array:
        """Log ratios as by `draw`, but equal levels give similar ratios: exact quantiles of a flow of many members.

        With two members, the usual flow and one for what is beyond its range, the second only has the highest levels,
        so that `draw` does the same.
        """
        if len(self.flow.members) <= 2:
            return self.draw(u, given, floor)
        if floor is not None:
            below = self._below(floor, given)
            u = below + (1 - below) * u
        return self.flow.inverse(u[:, None, None], given)[:, 0, 0]

    def level(self, log_ratio: Array, given: Array, floor: Array | None) -> Array:
        """Levels (n,) of log ratios (n,): their CDF among those that are not below floors (n,)."""
        u = self.flow.forward_and_log_det(log_ratio[:, None, None], given)[0][:, 0, 0]
        if floor is not None:
            below = self._below(floor, given)
            u = np.clip((u - below) / (1 - below), 0.0, 1.0)
        return u

    def log_prob(self, log_ratio: Array, given: Array, floor: Array | None) -> Array:
        """Log densities (n,) of log ratios (n,), which are not below floors (n,) if there are any."""
        log_prob = self.flow.log_prob(log_ratio[:, None, None], given)[:, 0]
        if floor is None:
            return log_prob
        inside = log_prob - np.log1p(-self._below(floor, given))
        return np.where(log_ratio < floor, -np.inf, inside)

    def _below(self, floor: Array, given: Array) -> Array:
        """Probability (n,) of log ratios below floors (n,)."""
        u = self.flow.forward_and_log_det(floor[:, None, None], given)[0][:, 0, 0]
        return np.minimum(u, _MOST_BELOW)

    def given(self, x: Array, effects: Array, features: Array) -> Array:
        """Covariates (n, q + 1) of the flow: x and the linear prediction."""
        z = standardized(np.hstack([effects, features]), self.center, self.scale)
        return np.column_stack([x, z @ self.slopes])


def standardized(raw: Array, center: Array, scale: Array) -> Array:
    """Features in standard deviations from the mean, held at a limit if they are far off."""
    return np.clip((raw - center) / scale, -_FAR, _FAR)
