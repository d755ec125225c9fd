"""Which taxa are present: a chain of logistic regressions on the covariates and the presences before."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve
from scipy.special import expit, log_expit
from sklearn.exceptions import ConvergenceWarning

from treecdf._common.numerics import counted_quantiles
from treecdf._common.typing import Array, Bools, Ints
from treecdf.data.scaling import Standardizer

_KNOTS = (0.1, 0.3, 0.5, 0.7, 0.9)  # quantiles of a covariate at which its effect may bend
_MOST_EFFECTS = 60  # effects of all covariates together, about; with many covariates there are fewer knots
_RIDGE_OF_LINES = 1.0  # penalty of straight effects of the covariates
_RIDGE_OF_BENDS = 60.0  # penalty of their hinges: a dozen persons tell little of bends (ADR 36)
_RIDGE_OF_COMMON_BENDS = 10.0  # the same for richness, to which all taxa add
_RIDGES = (3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)  # penalties of effects of other taxa; left-out rows choose
_TRIED_TAXA = 25  # taxa whose left-out rows choose the penalty
_FAR = 10.0  # log odds of left-out rows are judged up to here
_NEWTON_STEPS = 30  # steps of a logistic regression at most; about six are usual
_CONVERGED = 1e-8  # share of the loss that a step gains at which a logistic regression ends
_RIDGE_OF_INTERCEPT = 0.01  # a little, for labels that are all alike


@dataclass(frozen=True)
class Effects:
    """The covariates, standardised, and their hinges at quantiles of the training rows; held beyond their range."""

    standardize: Standardizer
    low: Array  # (q,): range of the standardised training covariates
    high: Array
    knots: tuple[Array, ...]  # of each covariate, where its hinges begin

    @staticmethod
    def fit(x: Array, weight: Array) -> Effects:
        """Range and knots of training covariates x (n, q) with weights (n,)."""
        standardize = Standardizer.fit(x, weight)
        z = standardize(x)
        n_knots = min(len(_KNOTS), max(0, _MOST_EFFECTS // x.shape[1] - 1))
        levels = _KNOTS if n_knots == len(_KNOTS) else np.arange(1, n_knots + 1) / (n_knots + 1)
        knots = tuple(_inner(np.unique(counted_quantiles(column, levels, weight)), column) for column in z.T)
        return Effects(standardize, z.min(axis=0), z.max(axis=0), knots)

    @property
    def width(self) -> int:
        """p, the number of effects."""
        return len(self.low) + sum(map(len, self.knots))

    @property
    def ridge(self) -> Array:
        """Penalties (p,) of the effects on presences."""
        return self.penalties(_RIDGE_OF_BENDS)

    def penalties(self, of_bends: float) -> Array:
        """Penalties (p,) of lines and hinges."""
        return np.repeat([_RIDGE_OF_LINES, of_bends], [len(self.low), self.width - len(self.low)])

    def __call__(self, x: Array) -> Array:
        """Effects (n, p) of covariates x (n, q)."""
        z = np.clip(self.standardize(x), self.low, self.high)
        hinges = [np.maximum(column[:, None] - knots, 0.0) for column, knots in zip(z.T, self.knots, strict=True)]
        return np.hstack([z, *hinges])


@dataclass(frozen=True)
class EffectsWithTrend:
    """Effects of the covariates, and the trend of richness that they have: one curve that all taxa share.

    A taxon alone says too little of where its own curve bends, and is held to nearly straight lines.
    """

    own: Effects
    trend: Array  # (p,): slopes of standardised richness on the own effects

    @staticmethod
    def fit(x: Array, weight: Array, present: Bools) -> EffectsWithTrend:
        """Of training covariates x (n, q) with weights (n,) and presences (n, K)."""
        own = Effects.fit(x, weight)
        effects, richness, share = own(x), present.sum(axis=1), weight / weight.sum()
        mean, middle = share @ effects, share @ richness
        scale = np.sqrt(share @ (effects - mean) ** 2)
        scale[scale < 1e-9] = np.inf
        spread = float(np.sqrt(share @ (richness - middle) ** 2))
        standardized = (richness - middle) / (spread if spread >= 1e-9 else np.inf)
        z = (effects - mean) / scale
        penalty = np.diag(own.penalties(_RIDGE_OF_COMMON_BENDS))
        trend = solve((z.T * weight) @ z + penalty, z.T @ (weight * standardized), assume_a="pos")
        return EffectsWithTrend(own, trend / scale)

    @property
    def width(self) -> int:
        """p + 1, the number of effects."""
        return self.own.width + 1

    @property
    def ridge(self) -> Array:
        """Penalties (p + 1,) of the effects on presences."""
        return np.append(self.own.ridge, _RIDGE_OF_LINES)

    def __call__(self, x: Array) -> Array:
        """Effects (n, p + 1) of covariates x (n, q)."""
        effects = self.own(x)
        return np.column_stack([effects, effects @ self.trend])


def _inner(knots: Array, z: Array) -> Array:
    """The knots that lie inside the range of a covariate z (n,)."""
    return knots[(knots > z.min()) & (knots < z.max())]


@dataclass(frozen=True)
class Presence:
    """p(present | x) as a chain: log odds of a taxon are linear in the effects and in the presences of taxa before it.

    The last taxon is present for certain if no other is, because a composition has at least one taxon.
    """

    order: Ints  # of the K taxa: those whose presence says most come first
    intercept: Array  # (K,), in this order
    slopes: tuple[Array, ...]  # of the features of each, (p + 1 + k,)
    largest: float  # log odds at most: what was never seen in n rows is not impossible

    @staticmethod
    def fit(effects: Array, own: Array, present: Bools, fold: Ints, weight: Array) -> Presence:
        """One logistic regression for each taxon, from effects (n, p) and presences (n, K).

        No taxon may be always absent. own (p,) are penalties of the effects. Rows of the same fold (n,) are left out
        together when the penalty of the other taxa is chosen; weights (n,) count rows.
        """
        order = np.argsort(np.abs(weight @ present / weight.sum() - 0.5), kind="stable")
        sorted_present = present[:, order]
        ridge = _best_ridge(effects, own, sorted_present, fold, weight)
        fits = [_fit_taxon(effects, sorted_present, k, _penalties(own, ridge, k), weight) for k in range(len(order))]
        intercept, slopes = np.array([fit[0] for fit in fits]), tuple(fit[1] for fit in fits)
        return Presence(order, intercept, slopes, float(np.log(4 * max(weight.sum(), 1.0))))

    def _log_odds(self, k: int, effects: Array, earlier: Bools) -> Array:
        """Log odds (n,) of the k-th taxon in order, given presences of the taxa before it (n, k)."""
        odds = self.intercept[k] + _features(effects, earlier) @ self.slopes[k]
        odds = np.clip(odds, -self.largest, max(self.largest, self.intercept[k]))
        return np.where(earlier.any(axis=1), odds, np.inf) if k == len(self.order) - 1 else odds

    def log_prob(self, effects: Array, present: Bools) -> Array:
        """Log probabilities (n,) of presences (n, K)."""
        present = present[:, self.order]
        total = np.zeros(len(effects))
        for k in range(len(self.order)):
            odds = self._log_odds(k, effects, present[:, :k])
            total += log_expit(np.where(present[:, k], odds, -odds))
        return total

    def chances(self, effects: Array, present: Bools) -> Array:
        """Probability (n, K) that each taxon is present, given which of those before it in the chain are (n, K)."""
        present = present[:, self.order]
        chance = np.empty(present.shape)
        for k in range(len(self.order)):
            chance[:, k] = expit(self._log_odds(k, effects, present[:, :k]))
        return chance[:, np.argsort(self.order)]

    def draw(self, effects: Array, u: Array) -> tuple[Bools, Array]:
        """Presences (n, K) made of uniforms u (K, n), and the probability (n, K) each was drawn with."""
        present, chance = np.zeros((len(effects), len(self.order)), bool), np.empty((len(effects), len(self.order)))
        for k in range(len(self.order)):
            chance[:, k] = expit(self._log_odds(k, effects, present[:, :k]))
            present[:, k] = u[k] < chance[:, k]
        back = np.argsort(self.order)
        return present[:, back], chance[:, back]


def _features(effects: Array, earlier: Bools) -> Array:
    """Effects, the share of earlier taxa present, and their presences: (n, p + 1 + k)."""
    share = earlier.mean(axis=1, keepdims=True) if earlier.shape[1] else np.zeros((len(effects), 1))
    return np.hstack([effects, share, earlier])


def _penalties(own: Array, ridge: float, k: int) -> Array:
    """Penalties (p + 1 + k,) of the features of the k-th taxon."""
    return np.concatenate([own, [_RIDGE_OF_LINES], np.full(k, ridge)])


def _fit_taxon(effects: Array, present: Bools, k: int, ridge: Array, weight: Array) -> tuple[float, Array]:
    """Intercept and slopes of the k-th taxon."""
    features = _features(effects, present[:, :k])
    if present[:, k].all():
        # A row in which one of the taxa that were always present is absent has probability 1 / (n + 2).
        chance = 1 / (weight.sum() + 2) / present.all(axis=0).sum()
        return float(np.log1p(-chance) - np.log(chance)), np.zeros(features.shape[1])
    return logistic(features, present[:, k], ridge, weight)


def _best_ridge(effects: Array, own: Array, present: Bools, fold: Ints, weight: Array) -> float:
    """The penalty of effects of other taxa under which the presences of left-out rows are most likely."""
    varied = np.flatnonzero(~present.all(axis=0))[1:]
    if not len(varied):
        return _RIDGES[-1]
    tried = varied[np.unique(np.linspace(0, len(varied) - 1, _TRIED_TAXA).astype(int))]
    best, best_ridge = -np.inf, _RIDGES[-1]
    for ridge in reversed(_RIDGES):
        total = sum(_left_out(effects, present, k, _penalties(own, ridge, k), fold, weight) for k in tried)
        if total <= best:
            break  # the likelihood of left-out rows has one hill
        best, best_ridge = total, ridge
    return best_ridge


def _left_out(effects: Array, present: Bools, k: int, ridge: Array, fold: Ints, weight: Array) -> float:
    """Log-likelihood of the k-th taxon's presence in rows left out."""
    total = 0.0
    for train, test in splits(fold):
        intercept, slopes = _fit_taxon(effects[train], present[train], k, ridge, weight[train])
        odds = np.clip(intercept + _features(effects[test], present[test, :k]) @ slopes, -_FAR, _FAR)
        total += float(weight[test] @ log_expit(np.where(present[test, k], odds, -odds)))
    return total


def splits(fold: Ints) -> Iterator[tuple[Bools, Bools]]:
    """Training and left-out rows of each fold."""
    for f in np.unique(fold):
        yield fold != f, fold == f


def logistic(features: Array, label: Bools, ridge: Array, weight: Array) -> tuple[float, Array]:
    """Intercept and slopes (p,) of a logistic regression with penalty ridge (p,) / 2 of squared standardised slopes.

    Weights (n,) count rows.

    Newton's method with steps that are halved until they do not raise the loss, which is convex; to end at the limit
    is a warning.
    """
    total = weight.sum()
    mean = weight @ features / total
    scale = np.sqrt(weight @ (features - mean) ** 2 / total)
    scale[scale < 1e-9] = np.inf
    z = np.column_stack([np.ones(len(label)), (features - mean) / scale])
    penalty = np.append(_RIDGE_OF_INTERCEPT, ridge)
    share = (weight @ label + 0.5) / (total + 1)
    beta = np.zeros(z.shape[1])
    beta[0] = np.log(share / (1 - share))
    value = _logistic_loss(z, label, beta, penalty, weight)
    for _ in range(_NEWTON_STEPS):
        chance = expit(z @ beta)
        gradient = z.T @ (weight * (chance - label)) + penalty * beta
        hessian = (z * (weight * chance * (1 - chance))[:, None]).T @ z + np.diag(penalty)
        step = solve(hessian, gradient, assume_a="pos")
        while (trial := _logistic_loss(z, label, beta - step, penalty, weight)) > value + 1e-9 * abs(value):
            step /= 2
        beta, gain, value = beta - step, value - trial, trial
        if gain < _CONVERGED * abs(value):
            break
    else:
        warnings.warn(
            f"A logistic regression of presences did not converge in {_NEWTON_STEPS} steps: the last gained "
            f"{gain:.1g} of a loss of {value:.3g}.",
            ConvergenceWarning,
            stacklevel=2,
        )
    slopes = beta[1:] / scale
    return float(beta[0] - slopes @ mean), slopes


def _logistic_loss(z: Array, label: Bools, beta: Array, penalty: Array, weight: Array) -> float:
    """Minus the log-likelihood of labels (n,) with weights (n,) plus the penalty of beta (1 + p,)."""
    odds = z @ beta
    return float(-(weight @ log_expit(np.where(label, odds, -odds))) + penalty @ beta**2 / 2)
