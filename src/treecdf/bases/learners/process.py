"""A Gaussian process: the best learner of smooth relations on few rows."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.linalg.lapack import dpotri
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from treecdf._common.telling import tell
from treecdf._common.typing import Array, Ints
from treecdf._kernels.processes import add_process
from treecdf.bases.learners.grouping import means_of_rows
from treecdf.bases.learners.protocol import AlwaysTried

_ROOT5 = np.sqrt(5.0)
_START = (np.log(2.0), 0.0, -1.5, -1.0)  # log length scale, signal, noise, slope; also the means of the priors
_PRECISION = (0.5, 0.1, 0.1, 0.1)  # of the priors of these, in the same order
_BOUNDS = ((-3.0, 6.0), (-4.0, 4.0), (-7.0, 2.0), (-6.0, 3.0))  # of these, in the same order
_SHARE_OF_TUNING = 0.6  # of the time of a cross-fit, roughly, for the line of progress
_NOISE_FACTORS = (0.5, 1.0, 2.0, 4.0)  # of the tuned noise variance; out-of-fold rows decide
_JITTER = 1e-9  # added to the diagonal of kernels, so that rows at the same place do not make them singular
_MANY_ROWS = 20_000  # rows from which on features are made piece by piece
_PIECE_ROWS = 512
_ROWS_OF_PRODUCT = 4096
_NO_KERNEL = 1e10  # loss where the kernel matrix cannot be decomposed


@dataclass(frozen=True)
class GaussianProcess(AlwaysTried):
    """A process with a Matern-5/2 kernel, a length scale for each covariate, plus a linear kernel.

    The marginal likelihood of a sample of the rows sets the kernel; then all rows are seen through inducing rows. With
    no more rows than `n_inducing` it is the exact process.

    Parameters
    ----------
    n_tuning : int, default 400
        Rows that the kernel is tuned on at most.
    n_inducing : int, default 1000
        Inducing rows at most; time grows with their square times the number of rows.
    max_iter : int, default 60
        Steps of L-BFGS when the kernel is tuned.
    holds_rows : bool, default True
        Whether inducing rows are training rows; else they are means of five training rows or more.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.linspace(-2, 2, 60)[:, None]
    >>> fold = np.arange(60) % 5
    >>> predict, left_out = GaussianProcess().cross_fit(x, np.sin(x[:, 0]), np.ones(60), fold, np.random.default_rng(0))
    >>> left_out.shape
    (60,)
    >>> bool(abs(predict(np.array([[1.0]]))[0] - np.sin(1.0)) < 0.01)
    True
    """

    n_tuning: int = 400
    n_inducing: int = 1000
    max_iter: int = 60
    holds_rows: bool = True

    @property
    def kind(self) -> str:
        """The word "process"."""
        return "process"

    @property
    def name(self) -> str:
        """The learner's name in the summary of a model."""
        return "Gaussian process"

    def cross_fit(
        self, x: Array, y: Array, weight: Array, fold: Ints, rng: np.random.Generator, best: float = np.inf
    ) -> tuple[FittedProcess, Array]:
        """The process of all rows, and out-of-fold predictions (n,); the kernel is tuned once. See `Learner`."""
        order = rng.permutation(len(x))
        tuning = order[: self.n_tuning]
        log_params = _tune(x[tuning], y[tuning], weight[tuning], self.max_iter)
        inducing = x[order[: self.n_inducing]] if self.holds_rows else means_of_rows(x, self.n_inducing)
        return _fit(x, y, weight, log_params, inducing, fold)


@dataclass(frozen=True)
class FittedProcess:
    """The posterior mean: kernels against the inducing rows, and a plane."""

    log_params: Array  # (q + 3,): log length scales, signal, noise, slope
    inducing: Array  # (m, q)
    weights: Array  # (m,)
    slopes: Array  # (q,)

    def __call__(self, x: Array) -> Array:
        """Predictions (n,) of standardised covariates x (n, q)."""
        scales, inducing, weights = self._scaled
        mean = x @ self.slopes
        add_process(x / scales, inducing, weights, mean)
        return mean

    @cached_property
    def _scaled(self) -> tuple[Array, Array, Array]:
        """Length scales (q,), inducing rows (q, m) in their units, weights (m,) times the signal; made once."""
        scales, signal = np.exp(self.log_params[:-3]), np.exp(2 * self.log_params[-3])
        return scales, np.ascontiguousarray((self.inducing / scales).T), signal * self.weights


def _fit(
    x: Array, y: Array, weight: Array, log_params: Array, inducing: Array, fold: Ints
) -> tuple[FittedProcess, Array]:
    """The process of all rows, and predictions (n,) of each row by a process without its fold.

    It is linear in features: the kernel against the inducing rows, whitened, and the covariates.
    """
    kernel = _matern(inducing, inducing, log_params)[0]
    kernel[np.diag_indices_from(kernel)] += _JITTER * kernel[0, 0]
    whiten = np.asarray(np.linalg.cholesky(kernel), np.float64)
    n_folds = int(fold.max()) + 1
    parts: list[Any] = [fold == f for f in range(n_folds)]
    order = None
    if len(x) > _MANY_ROWS:  # fold by fold, so that no part is copied
        order = np.argsort(fold, kind="stable")
        x, y, weight = x[order], y[order], weight[order]
        ends = np.searchsorted(fold[order], np.arange(n_folds + 1))
        parts = [slice(a, b) for a, b in pairwise(ends)]
    features = _features(x, inducing, log_params, whiten)
    grams = [_gram(features[here], weight[here], order is not None) for here in parts]
    moments = [features[here].T @ (weight[here] * y[here]) for here in parts]
    gram, moment = np.sum(grams, axis=0), np.sum(moments, axis=0)
    best_error, best_noise, best = np.inf, 1.0, np.zeros(len(x))
    for k, factor in enumerate(_NOISE_FACTORS):
        tell(f"noise {k + 1} of {len(_NOISE_FACTORS)}, {len(parts)} folds", _SHARE_OF_TUNING + 0.1 * k)
        noise = float(factor * np.exp(2 * log_params[-2]))
        left_out = np.empty(len(x))
        for here, own_gram, own_moment in zip(parts, grams, moments, strict=True):
            left_out[here] = features[here] @ _solve(gram - own_gram, moment - own_moment, noise)
        error = float(weight @ (left_out - y) ** 2)
        if error < best_error:
            best_error, best_noise, best = error, noise, left_out
    coefficients = _solve(gram, moment, best_noise)
    weights = solve_triangular(whiten, coefficients[: len(inducing)], lower=True, trans="T", check_finite=False)
    slopes = np.exp(log_params[-1]) * coefficients[len(inducing) :]
    if order is not None:
        best = best[np.argsort(order)]
    return FittedProcess(log_params, inducing, weights, slopes), best


def _gram(features: Array, weight: Array, is_many: bool) -> Array:
    """Weighted sums (p, p) of the products of features (n, p), of many rows piece by piece."""
    if not is_many:
        return np.asarray(features.T @ (weight[:, None] * features))
    gram, root = np.zeros((features.shape[1],) * 2), np.sqrt(weight)[:, None]
    for i in range(0, len(features), _ROWS_OF_PRODUCT):
        part = features[i : i + _ROWS_OF_PRODUCT] * root[i : i + _ROWS_OF_PRODUCT]
        gram += part.T @ part  # of the same array twice: half of it is worked out
    return gram


def _features(x: Array, inducing: Array, log_params: Array, whiten: Array) -> Array:
    """The kernel of rows x (n, q) against the inducing rows (m, q), whitened, and the covariates, (n, m + q).

    Of many rows it is made piece by piece: arrays that stay in the cache are several times as fast.
    """
    if len(x) <= _MANY_ROWS:
        smooth = solve_triangular(whiten, _matern(inducing, x, log_params)[0], lower=True, check_finite=False).T
        return np.hstack([smooth, np.exp(log_params[-1]) * x])
    m = len(inducing)
    features = np.empty((len(x), m + x.shape[1]))
    features[:, m:] = np.exp(log_params[-1]) * x
    for i in range(0, len(x), _PIECE_ROWS):
        part = _matern(inducing, x[i : i + _PIECE_ROWS], log_params)[0]
        features[i : i + _PIECE_ROWS, :m] = solve_triangular(whiten, part, lower=True, check_finite=False).T
    return features


def _solve(gram: Array, moment: Array, noise: float) -> Array:
    """Coefficients (p,) from sums of products, under a prior of unit variance."""
    factor = cho_factor(gram + noise * np.eye(len(gram)), lower=True, check_finite=False)
    return cho_solve(factor, moment, check_finite=False)


def _inverse(lower: Array) -> Array:
    """The inverse (n, n) of a matrix whose Cholesky factor is the lower triangle of `lower`."""
    half = np.tril(dpotri(lower, lower=1)[0])  # the other triangle is not touched
    inverse = half + half.T
    inverse[np.diag_indices_from(inverse)] /= 2
    return inverse


def _matern(x: Array, z: Array, log_params: Array) -> tuple[Array, Array]:
    """Matern kernel (n, m) of rows x and z, and minus twice its derivative by the squared scaled distance."""
    scales, signal = np.exp(log_params[:-3]), np.exp(2 * log_params[-3])
    a, b = x / scales, z / scales
    squared = np.maximum((a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * (a @ b.T), 0.0)
    distance = _ROOT5 * np.sqrt(squared)
    decay = signal * np.exp(-distance)
    return (1 + distance + (5 / 3) * squared) * decay, (5 / 3) * (1 + distance) * decay


def _tune(x: Array, y: Array, weight: Array, max_iter: int) -> Array:
    """Log parameters (q + 3,) of the highest marginal likelihood, with weak priors.

    To end at max_iter is no failure: every step lowers the loss, and the noise is chosen again by out-of-fold rows. On
    five tables of 3 to 30 covariates, 60 steps on 400 rows were less than 1e-4 nats a row behind 2000 steps, 30 steps
    on 150 rows at most 0.0013, and their out-of-fold errors were as often smaller as larger.
    """
    n, q = x.shape
    repeats = [q, 1, 1, 1]
    prior, precision = np.repeat(_START, repeats), np.repeat(_PRECISION, repeats)
    squared = [(column[:, None] - column) ** 2 for column in x.T]
    linear = x @ x.T

    steps = 0

    def loss(log_params: Array) -> tuple[float, Array]:
        nonlocal steps
        steps += 1
        tell(f"tuning, step {steps}", _SHARE_OF_TUNING * steps / max(max_iter, steps))
        smooth, slope = _matern(x, x, log_params)
        straight = np.exp(2 * log_params[-1]) * linear
        noise = np.exp(2 * log_params[-2]) / weight
        kernel = smooth + straight
        kernel[np.diag_indices(n)] += noise + _JITTER
        try:
            factor = cho_factor(kernel, lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            return _NO_KERNEL, np.zeros_like(log_params)
        alpha = cho_solve(factor, y, check_finite=False)
        inner = _inverse(factor[0]) - np.outer(alpha, alpha)
        slope *= inner
        gradient = np.array(
            [0.5 * np.vdot(slope, part) * np.exp(-2 * p) for part, p in zip(squared, log_params, strict=False)]
            + [np.vdot(inner, smooth), noise @ np.diag(inner), np.vdot(inner, straight)]
        )
        away = log_params - prior
        value = 0.5 * y @ alpha + np.log(np.diag(factor[0])).sum() + 0.5 * precision @ away**2
        return float(value), gradient + precision * away

    bounds = [pair for pair, k in zip(_BOUNDS, repeats, strict=True) for _ in range(k)]
    found = minimize(loss, prior, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": max_iter})
    if not found.fun < _NO_KERNEL:
        warnings.warn(
            "The kernel of the Gaussian process could not be tuned (its matrix is singular); its prior is used.",
            ConvergenceWarning,
            stacklevel=2,
        )
        return prior
    return found.x
