"""Ridge regression on polynomials of the covariates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement
from math import comb
from typing import Any

import numpy as np

from treecdf._common.telling import each_fold
from treecdf._common.typing import Array, Bools, Ints
from treecdf.bases.learners.protocol import AlwaysTried

_RIDGES = np.logspace(-3, 4, 15)  # penalties of squared standardised slopes that are tried
_ROWS_TOGETHER = 256  # rows that are predicted together: some hundred products of these stay in the cache
_MANY_ROWS = 20_000  # rows from which on products are made piece by piece, and only their sums are kept
_PIECE_ROWS = 1024
_TINY = 1e-12  # of the largest squared singular value: smaller ones are none
_NO_SPREAD = 1e-9  # standard deviation below which a product is a constant
_NAMES = ("linear", "quadratic", "cubic")


@dataclass(frozen=True)
class Polynomial(AlwaysTried):
    """Ridge regression on all products of at most `degree` covariates; the penalty has the smallest out-of-fold error.

    Beyond the range of the training rows a line goes on; covariates of curves are held at its ends.

    Parameters
    ----------
    degree : int
        1, 2 or 3.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(100, 2))
    >>> y = x[:, 0] * x[:, 1]
    >>> fold = np.arange(100) % 5
    >>> predict, left_out = Polynomial(2).cross_fit(x, y, np.ones(100), fold, np.random.default_rng(0))
    >>> left_out.shape
    (100,)
    >>> bool(np.allclose(predict(x), y, atol=0.01))
    True
    """

    degree: int

    @property
    def kind(self) -> str:
        """The word "polynomial"."""
        return "polynomial"

    @property
    def name(self) -> str:
        """The learner's name in the summary of a model."""
        return _NAMES[self.degree - 1]

    def n_features(self, q: int) -> int:
        """Number of products of q covariates."""
        return comb(q + self.degree, self.degree) - 1

    def cross_fit(
        self, x: Array, y: Array, weight: Array, fold: Ints, rng: np.random.Generator, best: float = np.inf
    ) -> tuple[FittedPolynomial, Array]:
        """The regression on all rows, and out-of-fold predictions (n,); see `Learner.cross_fit`."""
        low, high = x.min(axis=0), x.max(axis=0)
        if len(x) > _MANY_ROWS:
            center, scale, slopes, level, found = _fit_many(x, y, weight, fold, self.degree)
            return FittedPolynomial(self.degree, low, high, center, scale, slopes, level), found
        features, center, scale = self._features(x, weight)
        (left_out,), (chosen,) = _left_out(features, [y], weight, fold)
        coefficients, offset = _Path.of(features, weight).solve(y)
        fitted = FittedPolynomial(self.degree, low, high, center, scale, coefficients[chosen], float(offset[chosen, 0]))
        return fitted, left_out

    def left_out(self, x: Array, targets: Sequence[Array], weight: Array, fold: Ints) -> list[Array]:
        """Out-of-fold predictions (n,) of each of several outcomes (n,), for little more than the price of one."""
        return _left_out(self._features(x, weight)[0], targets, weight, fold)[0]

    def _features(self, x: Array, weight: Array) -> tuple[Array, Array, Array]:
        """Standardised products (n, p), and their means and standard deviations (p,), infinite for constants."""
        raw = _products(x, self.degree)
        share = weight / weight.sum()
        center = share @ raw
        scale = np.sqrt(share @ (raw - center) ** 2)
        scale[scale < _NO_SPREAD] = np.inf
        return (raw - center) / scale, center, scale


@dataclass(frozen=True)
class FittedPolynomial:
    """A polynomial of covariates; those of curves are held at the ends (q,) of their training range."""

    degree: int
    low: Array
    high: Array
    center: Array  # means of the products
    scale: Array  # standard deviations of the products; infinite for constants
    coefficients: Array
    offset: float

    def __call__(self, x: Array) -> Array:
        """Predictions (n,) of standardised covariates x (n, q)."""
        # A covariate that is held while one that goes along with it is not would move a line far from the rows.
        held = x if self.degree == 1 else np.clip(x, self.low, self.high)
        found = np.empty(len(x))
        for i in range(0, len(x), _ROWS_TOGETHER):
            features = _products(held[i : i + _ROWS_TOGETHER], self.degree)
            features -= self.center
            features /= self.scale
            found[i : i + _ROWS_TOGETHER] = self.offset + features @ self.coefficients
        return found


@lru_cache(16)
def _choices(q: int, k: int) -> Ints:
    """All choices (p, k) of k of q columns, of which one may be chosen more than once."""
    return np.array(list(combinations_with_replacement(range(q), k)), np.int64).reshape(-1, k)


def _products(x: Array, degree: int) -> Array:
    """All products (n, p) of at most `degree` columns of x (n, q), the columns themselves first."""
    columns = [x]
    for k in range(2, degree + 1):
        chosen = _choices(x.shape[1], k)
        product = x[:, chosen[:, 0]]
        for others in chosen.T[1:]:
            product *= x[:, others]
        columns.append(product)
    return np.hstack(columns)


def _left_out(features: Array, targets: Sequence[Array], weight: Array, fold: Ints) -> tuple[list[Array], list[int]]:
    """Out-of-fold predictions (n,) of each target (n,), and the number of the penalty that suits it best."""
    found = np.empty((len(targets), len(_RIDGES), len(features)))
    for f in each_fold(int(fold.max()) + 1):
        here, others = fold == f, fold != f
        path = _Path.of(features[others], weight[others])
        for own, y in zip(found, targets, strict=True):
            coefficients, offset = path.solve(y[others])
            own[:, here] = offset + coefficients @ features[here].T
    chosen = [int(np.argmin((own - y) ** 2 @ weight)) for own, y in zip(found, targets, strict=True)]
    return [own[k] for own, k in zip(found, chosen, strict=True)], chosen


@dataclass(frozen=True)
class _Path:
    """Rows of features, decomposed once: regressions on them under every penalty.

    All slopes have the same penalty; the ridge of log ratios in `CompositionalFlow` has two, of which one is fixed, so
    it cannot share the decomposition and solves for each penalty.
    """

    weight: Array
    mean: Array
    left: Array
    values: Array
    right: Array

    @staticmethod
    def of(features: Array, weight: Array) -> _Path:
        """The decomposition of features (n, p)."""
        mean = weight / weight.sum() @ features
        return _Path(weight, mean, *_decompose((features - mean) * np.sqrt(weight)[:, None]))

    def solve(self, y: Array) -> tuple[Array, Array]:
        """Coefficients (ridges, p) and offsets (ridges, 1) of outcomes y (n,) under every penalty."""
        offset = float(self.weight / self.weight.sum() @ y)
        target = self.left.T @ ((y - offset) * np.sqrt(self.weight))
        shrunk = self.values * target / (self.values**2 + _RIDGES[:, None])
        coefficients = shrunk @ self.right
        return coefficients, (offset - coefficients @ self.mean)[:, None]


def _decompose(a: Array) -> tuple[Array, Array, Array]:
    """Singular value decomposition by the smaller of the two Gram matrices; tiny values are dropped."""
    n, p = a.shape
    if p <= n:
        squares, right = np.linalg.eigh(a.T @ a)
        kept = squares > squares.max() * _TINY
        values, right = np.sqrt(squares[kept]), right[:, kept]
        return a @ right / values, values, right.T
    squares, left = np.linalg.eigh(a @ a.T)
    kept = squares > squares.max() * _TINY
    values, left = np.sqrt(squares[kept]), left[:, kept]
    return left, values, (left / values).T @ a


def _fit_many(x: Array, y: Array, weight: Array, fold: Ints, degree: int) -> tuple[Array, Array, Array, float, Array]:
    """Center and scale (p,) of the products of many rows, coefficients (p,), offset, out-of-fold predictions (n,).

    The folds' sums of products are made once; those of all other folds are their differences from the whole.
    """
    pieces = [slice(i, i + _PIECE_ROWS) for i in range(0, len(x), _PIECE_ROWS)]
    center = np.sum([weight[s] @ _products(x[s], degree) for s in pieces], axis=0) / weight.sum()
    parts = [_Sums.of(x, y, weight, fold == f, degree, center) for f in range(int(fold.max()) + 1)]
    whole = _Sums(*(np.sum(each, axis=0) for each in zip(*(part.each for part in parts), strict=True)))
    scale = np.sqrt(np.diag(whole.gram) / whole.total)
    scale[scale < _NO_SPREAD] = np.inf
    paths = [whole.less(part).path(scale) for part in parts]
    coefficients, offset = (np.array(each) for each in zip(*paths, strict=True))
    found = np.empty((len(_RIDGES), len(x)))
    for s in pieces:
        features = (_products(x[s], degree) - center) / scale
        for f in np.unique(fold[s]):
            here = np.flatnonzero(fold[s] == f)
            found[:, s.start + here] = offset[f] + coefficients[f] @ features[here].T
    chosen = int(np.argmin((found - y) ** 2 @ weight))
    own, own_offset = whole.path(scale)
    return center, scale, own[chosen], float(own_offset[chosen, 0]), found[chosen]


@dataclass(frozen=True)
class _Sums:
    """Weighted sums over rows: of centered products, of the products of two of them, of outcomes, and of both."""

    total: float
    sum: Array  # (p,)
    gram: Array  # (p, p)
    outcome: float
    moment: Array  # (p,)

    @staticmethod
    def of(x: Array, y: Array, weight: Array, here: Bools, degree: int, center: Array) -> _Sums:
        """The sums over the rows of a mask (n,), piece by piece."""
        rows, p = np.flatnonzero(here), len(center)
        total, sums, gram, outcome, moment = 0.0, np.zeros(p), np.zeros((p, p)), 0.0, np.zeros(p)
        for i in range(0, len(rows), _PIECE_ROWS):
            own = rows[i : i + _PIECE_ROWS]
            features = _products(x[own], degree) - center
            weighted = features * weight[own, None]
            gram += weighted.T @ features
            sums += weighted.sum(axis=0)
            moment += weighted.T @ y[own]
            total += float(weight[own].sum())
            outcome += float(weight[own] @ y[own])
        return _Sums(total, sums, gram, outcome, moment)

    @property
    def each(self) -> tuple[Any, ...]:
        """All of them."""
        return self.total, self.sum, self.gram, self.outcome, self.moment

    def less(self, other: _Sums) -> _Sums:
        """Those without the rows of the other."""
        return _Sums(*(mine - its for mine, its in zip(self.each, other.each, strict=True)))

    def path(self, scale: Array) -> tuple[Array, Array]:
        """Coefficients (ridges, p) and offsets (ridges, 1) under every penalty, of products divided by `scale`."""
        mean, offset = self.sum / self.total / scale, self.outcome / self.total
        gram = self.gram / scale / scale[:, None] - self.total * np.outer(mean, mean)
        squares, right = np.linalg.eigh(gram)
        kept = squares > squares.max() * _TINY
        squares, right = squares[kept], right[:, kept]
        target = right.T @ (self.moment / scale - self.total * offset * mean)
        coefficients = target / (squares + _RIDGES[:, None]) @ right.T
        return coefficients, (offset - coefficients @ mean)[:, None]
