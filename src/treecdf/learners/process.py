"""A Gaussian process: the best learner of smooth relations on few rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import minimize

from treecdf.learners.protocol import Array, Cheap, Ints

_ROOT5 = np.sqrt(5.0)
_START = (np.log(2.0), 0.0, -1.5, -1.0)  # log length scale, signal, noise, slope; also the means of the priors
_PRECISION = (0.5, 0.1, 0.1, 0.1)
_BOUNDS = ((-3.0, 6.0), (-4.0, 4.0), (-7.0, 2.0), (-6.0, 3.0))
_NOISE_FACTORS = (0.5, 1.0, 2.0, 4.0)
_JITTER = 1e-9
_CHUNK_ROWS = 4096


@dataclass(frozen=True)
class GaussianProcess(Cheap):
    """Matern-5/2 with a length scale for each covariate, plus a linear kernel.

    The marginal likelihood of `n_tuning` rows sets the kernel; then all rows are seen through `n_inducing` of them.
    With no more rows than that it is the exact process.
    """

    n_tuning: int = 400
    n_inducing: int = 1000
    max_iter: int = 60

    @property
    def kind(self) -> str:
        """Errors of its kind are alike."""
        return "process"

    @property
    def name(self) -> str:
        """For people."""
        return "Gaussian process"

    def cross_fit(
        self, x: Array, y: Array, weight: Array, fold: Ints, rng: np.random.Generator
    ) -> tuple[FittedProcess, Array]:
        """By leaving out one fold at a time; the kernel is tuned once."""
        order = rng.permutation(len(x))
        tuning = order[: self.n_tuning]
        log_params = _tune(x[tuning], y[tuning], weight[tuning], self.max_iter)
        return _fit(x, y, weight, log_params, x[order[: self.n_inducing]], fold)


@dataclass(frozen=True)
class FittedProcess:
    """The process as a linear model of features: the kernel against the inducing rows, whitened, and the covariates."""

    log_params: Array
    inducing: Array
    whiten: Array  # lower Cholesky factor of the inducing rows' kernel
    factor: Array  # lower Cholesky factor of the features' penalised Gram matrix
    coefficients: Array
    noise: float

    def features(self, x: Array) -> Array:
        """Features (n, inducing + q)."""
        kernel = _matern(self.inducing, x, self.log_params)[0]
        smooth = solve_triangular(self.whiten, kernel, lower=True, check_finite=False)
        return np.vstack([smooth, np.exp(self.log_params[-1]) * x.T]).T

    def solved(self, gram: Array, moment: Array, noise: float) -> FittedProcess:
        """The same features with the coefficients that these moments of training rows give."""
        factor = _cholesky(gram + noise * np.eye(len(gram)))
        coefficients = cho_solve((factor, True), moment, check_finite=False)
        return replace(self, factor=factor, coefficients=coefficients, noise=noise)

    def __call__(self, x: Array) -> Array:
        """Mean and log standard deviation (n, 2)."""
        parts = [self.predict(self.features(x[i : i + _CHUNK_ROWS])) for i in range(0, len(x), _CHUNK_ROWS)]
        return np.concatenate(parts) if parts else np.empty((0, 2))

    def predict(self, features: Array) -> Array:
        """Mean and log standard deviation (n, 2) of new outcomes: noise, coefficients, and what features cannot say."""
        leverage = (solve_triangular(self.factor, features.T, lower=True, check_finite=False) ** 2).sum(axis=0)
        explained = (features[:, : len(self.inducing)] ** 2).sum(axis=1)
        unknown = np.maximum(np.exp(2 * self.log_params[-3]) - explained, 0.0)
        variance = self.noise * (1 + leverage) + unknown
        return np.column_stack([features @ self.coefficients, np.log(variance) / 2])


def _fit(
    x: Array, y: Array, weight: Array, log_params: Array, inducing: Array, fold: Ints
) -> tuple[FittedProcess, Array]:
    """The process of all rows, and mean and log standard deviation (n, 2) of each row by a process without its fold."""
    kernel = _matern(inducing, inducing, log_params)[0]
    kernel[np.diag_indices_from(kernel)] += _JITTER * kernel[0, 0]
    unfitted = FittedProcess(log_params, inducing, _cholesky(kernel), np.zeros((0, 0)), np.zeros(0), 1.0)
    features = unfitted.features(x)
    moments = [_moments(features[fold == f], y[fold == f], weight[fold == f]) for f in range(int(fold.max()) + 1)]
    gram, moment = sum(part[0] for part in moments), sum(part[1] for part in moments)
    best_error, best_noise, best_output = np.inf, 0.0, np.zeros((len(x), 2))
    for factor in _NOISE_FACTORS:
        noise = float(factor * np.exp(2 * log_params[-2]))
        output = np.empty((len(x), 2))
        for f, (own_gram, own_moment) in enumerate(moments):
            model = unfitted.solved(gram - own_gram, moment - own_moment, noise)
            output[fold == f] = model.predict(features[fold == f])
        error = float(weight @ (output[:, 0] - y) ** 2)
        if error < best_error:
            best_error, best_noise, best_output = error, noise, output
    return unfitted.solved(gram, moment, best_noise), best_output


def _moments(features: Array, y: Array, weight: Array) -> tuple[Array, Array]:
    return features.T @ (weight[:, None] * features), features.T @ (weight * y)


def _cholesky(matrix: Array) -> Array:
    return np.asarray(np.linalg.cholesky(matrix), np.float64)


def _matern(x: Array, z: Array, log_params: Array) -> tuple[Array, Array]:
    """Kernel (n, m) and minus twice its derivative by the squared scaled distance."""
    scales, signal = np.exp(log_params[:-3]), np.exp(2 * log_params[-3])
    a, b = x / scales, z / scales
    squared = np.maximum((a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * (a @ b.T), 0.0)
    distance = _ROOT5 * np.sqrt(squared)
    decay = signal * np.exp(-distance)
    return (1 + distance + (5 / 3) * squared) * decay, (5 / 3) * (1 + distance) * decay


def _tune(x: Array, y: Array, weight: Array, max_iter: int) -> Array:
    """Log parameters of the highest marginal likelihood, with weak priors."""
    n, q = x.shape
    repeats = [q, 1, 1, 1]
    prior, precision = np.repeat(_START, repeats), np.repeat(_PRECISION, repeats)
    squared = [(column[:, None] - column) ** 2 for column in x.T]
    linear = x @ x.T

    def loss(log_params: Array) -> tuple[float, Array]:
        smooth, slope = _matern(x, x, log_params)
        straight = np.exp(2 * log_params[-1]) * linear
        noise = np.exp(2 * log_params[-2]) / weight
        kernel = smooth + straight
        kernel[np.diag_indices(n)] += noise + _JITTER
        try:
            factor = cho_factor(kernel, lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            return 1e10, np.zeros_like(log_params)
        alpha = cho_solve(factor, y, check_finite=False)
        inner = cho_solve(factor, np.eye(n), check_finite=False) - np.outer(alpha, alpha)
        slope *= inner
        gradient = np.array(
            [0.5 * np.vdot(slope, part) * np.exp(-2 * p) for part, p in zip(squared, log_params, strict=False)]
            + [np.vdot(inner, smooth), noise @ np.diag(inner), np.vdot(inner, straight)]
        )
        away = log_params - prior
        value = 0.5 * y @ alpha + np.log(np.diag(factor[0])).sum() + 0.5 * precision @ away**2
        return float(value), gradient + precision * away

    bounds = [pair for pair, k in zip(_BOUNDS, repeats, strict=True) for _ in range(k)]
    return minimize(loss, prior, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": max_iter}).x
