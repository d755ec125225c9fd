"""Correlations between samples of one subject, through the uniform numbers that draws are made of.

Every sample is drawn from uniforms, one for the presence of each taxon and one for its log ratio. Between samples of
different subjects they are independent. Between two samples of one subject, a time `gap` apart, the normal scores of a
taxon's uniforms have the correlation

    lasting + passing * exp(-gap / scale),

with parameters of its own for each taxon's presence and ratio. Each sample by itself keeps its distribution given the
covariates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import eval_hermitenorm, factorial, ndtr, ndtri

from treecdf._common.typing import Array, Bools, Ints

_N_BINS = 10  # of gaps, with as many pairs each
_N_SCALES = 30  # tried, from the shortest gap to the longest
_PRIOR_PAIRS = 10.0  # that all taxa together count for in each bin of one taxon
_MOST = 0.98  # of a correlation
_TERMS = 12  # of the series for the covariance of two indicators
_EDGE = 1e-6  # uniforms are held off 0 and 1 by this
_TINY = 1e-10  # on diagonals, so that roots exist


@dataclass(frozen=True)
class Memory:
    """The correlation of normal scores of two samples of one subject, as a function of the time between them."""

    lasting: Array  # (K,), and so are the others: one for each taxon
    passing: Array
    scale: Array

    def __call__(self, gap: Array) -> Array:
        """Correlations (K, ...) of samples that are a time `gap` apart."""
        shape = (-1,) + (1,) * gap.ndim
        lasting, passing, scale = (part.reshape(shape) for part in (self.lasting, self.passing, self.scale))
        return lasting + passing * np.exp(-gap / scale)

    def stronger(self, power: float) -> Memory:
        """Stronger correlations with the same shape over time.

        One minus the correlation at gap 0 is raised to a power above one.
        """
        total = self.lasting + self.passing
        factor = np.minimum(1 - (1 - total) ** power, _MOST) / np.maximum(total, _TINY)
        return Memory(self.lasting * factor, self.passing * factor, self.scale)

    @staticmethod
    def none(n_taxa: int) -> Memory:
        """No correlation: samples are independent."""
        return Memory(np.zeros(n_taxa), np.zeros(n_taxa), np.ones(n_taxa))

    @staticmethod
    def fit(gap: Array, correlation: Array, weight: Array) -> Memory:
        """Least squares over bins: mean gaps (bins,), correlations and weights (bins, K)."""
        found = Memory.none(correlation.shape[1])
        best = np.full(correlation.shape[1], np.inf)
        longest = max(float(gap.max()), 1e-300)
        shortest = max(float(gap[gap > 0].min(initial=longest)), 1e-3 * longest)
        for scale in np.geomspace(shortest, 3 * longest, _N_SCALES):
            shape = np.exp(-gap / scale)[:, None]
            for lasting, passing in _candidates(shape, correlation, weight):
                loss = (weight * (lasting + passing * shape - correlation) ** 2).sum(axis=0)
                better = (lasting >= 0) & (passing >= 0) & (loss < best)
                best[better], found.scale[better] = loss[better], scale
                found.lasting[better], found.passing[better] = lasting[better], passing[better]
        shrink = np.minimum(1.0, _MOST / np.maximum(found.lasting + found.passing, _MOST))
        return Memory(found.lasting * shrink, found.passing * shrink, found.scale)


def _candidates(shape: Array, y: Array, weight: Array) -> list[tuple[Array, Array]]:
    """Least squares of y (bins, K) on 1 and shape (bins, 1), on each alone, and nothing: (K,) and (K,) each."""
    total, zero = weight.sum(axis=0) + _TINY, np.zeros(y.shape[1])
    means = [(weight * part).sum(axis=0) / total for part in (shape, y, shape * shape, shape * y)]
    s, m, ss, sm = means
    slope = (sm - s * m) / np.maximum(ss - s * s, _TINY)
    return [(m - slope * s, slope), (m, zero), (zero, sm / np.maximum(ss, _TINY)), (zero, zero)]


@dataclass(frozen=True)
class Subjects:
    """The correlations between samples of one subject, in their presences and in their log ratios."""

    presence: Memory
    ratio: Memory
    has_times: bool = False  # whether it was learnt from times, and so must be asked with them

    @staticmethod
    def fit(subject: Ints, time: Array, presence: tuple[Bools, Array], scores: Array) -> Subjects:
        """From subjects and times (n,), presences with their probabilities, and normal scores of ratios (n, K).

        Scores are NaN where there is no ratio. Without a pair of samples of one subject draws are independent.
        """
        first, second = pairs(subject)
        n_taxa = scores.shape[1]
        if not len(first):
            return Subjects(Memory.none(n_taxa), Memory.none(n_taxa))
        gap = np.abs(time[first] - time[second])
        bins = np.array_split(np.argsort(gap, kind="stable"), min(_N_BINS, len(gap)))
        residual, terms = presence[0] - presence[1], indicator_series(presence[1])
        z = _standardized(scores)
        known = np.isfinite(z)
        z = np.where(known, z, 0.0)
        of_presence, of_ratio, n_pairs = [], [], []
        for rows in bins:
            a, b = first[rows], second[rows]
            prior = _PRIOR_PAIRS / len(rows)
            wanted = _with_prior((residual[a] * residual[b]).sum(axis=0), prior)
            series = np.array([_with_prior((term[a] * term[b]).sum(axis=0), prior) for term in terms])
            of_presence.append(_solved(series, wanted))
            n_both = (known[a] & known[b]).sum(axis=0)
            product = (z[a] * z[b]).sum(axis=0)
            mean = product.sum() / max(n_both.sum(), 1)
            of_ratio.append((product + _PRIOR_PAIRS * mean) / (n_both + _PRIOR_PAIRS))
            n_pairs.append(n_both + _PRIOR_PAIRS)
        at = np.array([gap[rows].mean() for rows in bins])
        sizes = np.array([[len(rows)] for rows in bins]) * np.ones(n_taxa)
        ratio = np.clip(of_ratio, 0.0, _MOST)
        return Subjects(
            Memory.fit(at, np.array(of_presence), sizes), Memory.fit(at, ratio, np.array(n_pairs, dtype=np.float64))
        )

    def stronger(self, power: float) -> Subjects:
        """Stronger correlations between samples of one subject, the more the larger the power; 1 changes nothing."""
        return Subjects(self.presence.stronger(power), self.ratio.stronger(power), self.has_times)

    def uniforms(
        self, subject: Ints, time: Array, shape: tuple[int, int], rng: np.random.Generator
    ) -> tuple[Array, Array]:
        """Uniforms (taxa, n * draws) of presences and of ratios, for shape (draws, taxa); draws of a row adjoin."""
        n_draws, n_taxa = shape
        found = []
        for memory in (self.presence, self.ratio):
            normal = rng.standard_normal((n_taxa, len(subject), n_draws))
            for s in np.unique(subject):
                rows = np.flatnonzero(subject == s)
                correlation = memory(np.abs(time[rows][:, None] - time[rows]))
                correlation[:, np.arange(len(rows)), np.arange(len(rows))] = 1.0 + _TINY
                normal[:, rows] = np.linalg.cholesky(correlation) @ normal[:, rows]
            found.append(np.clip(ndtr(normal), _EDGE, 1 - _EDGE).reshape(n_taxa, -1))
        return found[0], found[1]


def pairs(subject: Ints) -> tuple[Ints, Ints]:
    """Rows of all pairs of samples of one subject, each pair once."""
    found = [np.empty((2, 0), np.int64)]
    for s in np.unique(subject):
        rows = np.flatnonzero(subject == s)
        found.append(rows[np.array(np.triu_indices(len(rows), 1))])
    first, second = np.concatenate(found, axis=1)
    return first, second


def indicator_series(chance: Array) -> list[Array]:
    """Functions of the chances of indicators whose products, times powers of r, sum to a covariance.

    Two indicators of normal scores below their thresholds, of correlation r, have the covariance of the sum over k of
    f[k] * g[k] * r**(k + 1), with f of the one and g of the other (Mehler's formula).
    """
    height = ndtri(np.clip(chance, _EDGE, 1 - _EDGE))
    density = np.exp(-(height**2) / 2) / np.sqrt(2 * np.pi)
    return [density * eval_hermitenorm(k, height) / np.sqrt(float(factorial(k + 1))) for k in range(_TERMS)]


def normal_scores(u: Array) -> Array:
    """Normal scores of uniforms."""
    scores: Array = ndtri(np.clip(u, _EDGE, 1 - _EDGE))
    return scores


def _standardized(scores: Array) -> Array:
    """Scores (n, K) with mean 0 and variance 1 in each column; those of NaN or of one row stay NaN."""
    known = np.isfinite(scores)
    n = np.maximum(known.sum(axis=0), 1)
    centred = scores - np.where(known, scores, 0.0).sum(axis=0) / n
    spread = np.sqrt((np.where(known, centred, 0.0) ** 2).sum(axis=0) / n)
    standardized: Array = np.where(spread > 0, centred / np.maximum(spread, 1e-300), np.nan)
    return standardized


def _with_prior(sums: Array, share: float) -> Array:
    """Sums (K,) of each taxon plus a share of their mean, as a prior."""
    return sums + share * sums.mean()


def _solved(series: Array, wanted: Array) -> Array:
    """Correlations r (K,) from 0 to nearly 1 at which sums of series[k] * r**(k + 1) are as wanted, by halving."""
    powers = np.arange(1, len(series) + 1)[:, None]
    low, high = np.zeros(len(wanted)), np.full(len(wanted), _MOST)
    for _ in range(40):
        middle = (low + high) / 2
        is_less = (series * middle**powers).sum(axis=0) < wanted
        low, high = np.where(is_less, middle, low), np.where(is_less, high, middle)
    return (low + high) / 2
