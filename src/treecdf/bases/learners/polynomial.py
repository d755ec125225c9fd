"""Ridge regression on polynomials of the covariates."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations_with_replacement
from math import comb

import numpy as np
from numpy.typing import NDArray

from treecdf._common.typing import Array, Ints
from treecdf.bases.learners.protocol import Cheap

_RIDGES = np.logspace(-3, 4, 15)


@dataclass(frozen=True)
class Polynomial(Cheap):
    """All products of at most `degree` covariates; the ridge has the smallest left-out error."""

    degree: int

    @property
    def kind(self) -> str:
        """Errors of its kind are alike."""
        return "polynomial"

    @property
    def name(self) -> str:
        """For people."""
        return ("linear", "quadratic", "cubic")[self.degree - 1]

    def n_features(self, q: int) -> int:
        """Number of products of q covariates."""
        return comb(q + self.degree, self.degree) - 1

    def cross_fit(
        self, x: Array, y: Array, weight: Array, fold: Ints, rng: np.random.Generator, best: float = np.inf
    ) -> tuple[FittedPolynomial, Array]:
        """By leaving out one fold at a time."""
        low, high = x.min(axis=0), x.max(axis=0)
        raw = _products(x, self.degree)
        share = weight / weight.sum()
        center = share @ raw
        scale = np.sqrt(share @ (raw - center) ** 2)
        scale[scale < 1e-9] = np.inf
        features = (raw - center) / scale
        left_out = np.empty((len(_RIDGES), len(x)))
        for f in range(int(fold.max()) + 1):
            here, others = fold == f, fold != f
            coefficients, own_offset = _ridge_paths(features[others], y[others], weight[others])
            left_out[:, here] = own_offset + coefficients @ features[here].T
        best = int(np.argmin((left_out - y) ** 2 @ weight))
        coefficients, offset = _ridge_paths(features, y, weight)
        fitted = FittedPolynomial(self.degree, low, high, center, scale, coefficients[best], float(offset[best, 0]))
        return fitted, left_out[best]


@dataclass(frozen=True)
class FittedPolynomial:
    """Beyond the range of the training rows the covariates are held at its ends."""

    degree: int
    low: Array
    high: Array
    center: Array
    scale: Array
    coefficients: Array
    offset: float

    def __call__(self, x: Array) -> Array:
        """Predictions (n,)."""
        features = (_products(np.clip(x, self.low, self.high), self.degree) - self.center) / self.scale
        return self.offset + features @ self.coefficients


def _products(x: Array, degree: int) -> Array:
    columns = [x]
    for k in range(2, degree + 1):
        for chosen in combinations_with_replacement(range(x.shape[1]), k):
            columns.append(x[:, list(chosen)].prod(axis=1, keepdims=True))
    return np.hstack(columns)


def _ridge_paths(features: Array, y: Array, weight: Array) -> tuple[Array, Array]:
    """Coefficients (ridges, p) and offsets (ridges, 1) of every ridge, from one decomposition."""
    share = weight / weight.sum()
    offset, mean = float(share @ y), share @ features
    root = np.sqrt(weight)
    left, values, right = _decompose((features - mean) * root[:, None])
    target = left.T @ ((y - offset) * root)
    shrunk = values * target / (values**2 + _RIDGES[:, None])
    coefficients = shrunk @ right
    return coefficients, (offset - coefficients @ mean)[:, None]


def _decompose(a: Array) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Singular value decomposition by the smaller of the two Gram matrices; tiny values are dropped."""
    n, p = a.shape
    if p <= n:
        squares, right = np.linalg.eigh(a.T @ a)
        kept = squares > squares.max() * 1e-12
        values, right = np.sqrt(squares[kept]), right[:, kept]
        return a @ right / values, values, right.T
    squares, left = np.linalg.eigh(a @ a.T)
    kept = squares > squares.max() * 1e-12
    values, left = np.sqrt(squares[kept]), left[:, kept]
    return left, values, (left / values).T @ a
