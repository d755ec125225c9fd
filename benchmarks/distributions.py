"""What a benchmark asks of a predicted distribution, for models that have none of their own."""

import numpy as np
from scipy.special import beta
from scipy.stats import norm, t

N_LEVELS = 200  # of the quantiles that stand for a distribution in its CRPS
_LARGEST_DF = 1e6  # beyond, a Student is a normal to six digits; an infinite one would give 0 / 0


class Quantiles:
    """One distribution a row, known by `cdf` and `icdf`; its CRPS is the mean pinball loss of the quantiles."""

    def cdf(self, y: np.ndarray) -> np.ndarray:
        """P(Y <= y) for y (n,) or (n, m)."""
        raise NotImplementedError

    def icdf(self, levels: np.ndarray) -> np.ndarray:
        """Quantiles (n, m) of levels (m,)."""
        raise NotImplementedError

    def pit(self, y: np.ndarray) -> np.ndarray:
        """P(Y <= y) for y (n,)."""
        return self.cdf(y)

    def crps(self, y: np.ndarray) -> np.ndarray:
        """CRPS (n,)."""
        levels = (np.arange(N_LEVELS) + 0.5) / N_LEVELS
        error = y[:, None] - self.icdf(levels)
        return 2.0 * np.mean(np.maximum(levels * error, (levels - 1.0) * error), axis=1)


class Normal(Quantiles):
    """Normal distributions of mean (n,) and standard deviation (n,)."""

    def __init__(self, mean: np.ndarray, std: np.ndarray):
        self._mean, self._std = mean, std

    def cdf(self, y):
        """P(Y <= y) for y (n,) or (n, m)."""
        return norm.cdf(y, _like(y, self._mean), _like(y, self._std))

    def icdf(self, levels):
        """Quantiles (n, m) of levels (m,)."""
        return self._mean[:, None] + self._std[:, None] * norm.ppf(levels)

    def crps(self, y):
        """CRPS (n,) in closed form."""
        return _mean_distance(y - self._mean, self._std) - self._std / np.sqrt(np.pi)


class Student(Quantiles):
    """Student distributions of df > 1, location and scale, each (n,)."""

    def __init__(self, df: np.ndarray, loc: np.ndarray, scale: np.ndarray):
        self._df, self._loc, self._scale = df, loc, scale

    def cdf(self, y):
        """P(Y <= y) for y (n,) or (n, m)."""
        return t.cdf(y, *(_like(y, part) for part in (self._df, self._loc, self._scale)))

    def icdf(self, levels):
        """Quantiles (n, m) of levels (m,)."""
        return t.ppf(levels, self._df[:, None], self._loc[:, None], self._scale[:, None])

    def crps(self, y):
        """CRPS (n,) in closed form."""
        df, z = np.minimum(self._df, _LARGEST_DF), (y - self._loc) / self._scale
        to_outcome = z * (2 * t.cdf(z, df) - 1) + 2 * t.pdf(z, df) * (df + z**2) / (df - 1)
        between = 2 * np.sqrt(df) / (df - 1) * beta(0.5, df - 0.5) / beta(0.5, df / 2) ** 2
        return self._scale * (to_outcome - between)


class NormalMixture(Quantiles):
    """Mixtures of k normals with weights, means and standard deviations (n, k)."""

    def __init__(self, weights: np.ndarray, means: np.ndarray, stds: np.ndarray):
        self._weights, self._means, self._stds = weights, means, stds

    def cdf(self, y):
        """P(Y <= y) for y (n,) or (n, m)."""
        parts = zip(self._weights.T, self._means.T, self._stds.T, strict=True)
        return sum(_like(y, w) * norm.cdf(y, _like(y, mean), _like(y, std)) for w, mean, std in parts)

    def icdf(self, levels):
        """Quantiles (n, m) of levels (m,), by bisection between those of the parts."""
        ends = self._means[:, None, :] + self._stds[:, None, :] * norm.ppf(levels)[None, :, None]
        low, high = ends.min(axis=2), ends.max(axis=2)
        for _ in range(60):
            middle = (low + high) / 2
            below = self.cdf(middle) < levels
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return (low + high) / 2

    def crps(self, y):
        """CRPS (n,) in closed form."""
        w, mean, var = self._weights, self._means, self._stds**2
        to_outcome = (w * _mean_distance(y[:, None] - mean, self._stds)).sum(axis=1)
        apart = mean[:, :, None] - mean[:, None, :]
        between = _mean_distance(apart, np.sqrt(var[:, :, None] + var[:, None, :]))
        return to_outcome - 0.5 * np.einsum("ni,nij,nj->n", w, between, w)


class Empirical(Quantiles):
    """m points (n, m) that stand for a distribution: independent draws, or its quantiles at equal steps."""

    def __init__(self, points: np.ndarray, draws: bool):
        self._points, self._draws = np.sort(points, axis=1), draws

    def cdf(self, y):
        """Share of the points at or below y (n,)."""
        return np.mean(self._points <= y[:, None], axis=1)

    def icdf(self, levels):
        """Quantiles (n, m) of levels (m,)."""
        return np.quantile(self._points, levels, axis=1).T

    def pit(self, y):
        """Uniform where the outcome is one more draw: its rank among the points, ties broken at random."""
        below = np.sum(self._points < y[:, None], axis=1)
        equal = np.sum(self._points == y[:, None], axis=1)
        place = np.random.default_rng(0).random(len(y))
        return (below + place * (equal + 1)) / (self._points.shape[1] + 1)

    def crps(self, y):
        """CRPS (n,), without bias for draws."""
        m = self._points.shape[1]
        to_outcome = np.abs(self._points - y[:, None]).mean(axis=1)
        between = 2.0 * self._points @ (2.0 * np.arange(m) - m + 1)
        return to_outcome - between / (2 * m * (m - 1 if self._draws else m))


class JointDensity:
    """The density of several outcomes given the rows x, of a model that has `log_prob`."""

    def __init__(self, model, x: np.ndarray):
        self._model, self._x = model, x

    def logpdf(self, y: np.ndarray) -> np.ndarray:
        """Log density (n, m) of y (n, m, d)."""
        n, m, d = y.shape
        return self._model.log_prob(np.repeat(self._x, m, axis=0), y.reshape(n * m, d)).reshape(n, m)


def _like(y: np.ndarray, values: np.ndarray) -> np.ndarray:
    return values[:, None] if np.ndim(y) == 2 else values


def _mean_distance(mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """E|Z| of a normal Z."""
    z = mean / std
    return std * (2 * norm.pdf(z) + z * (2 * norm.cdf(z) - 1))
