"""The lasso: linear regression on the few covariates that matter, for tables of many columns."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from treecdf._common.telling import each_fold
from treecdf._common.typing import Array, Ints
from treecdf.bases.learners.polynomial import FittedPolynomial
from treecdf.bases.learners.protocol import AlwaysTried
from treecdf.bases.learners.screening import most_correlated

_N_PENALTIES = 40  # from the one that leaves no covariate down to 1/200 of it
_SMALLEST_PENALTY = 1 / 200  # of the largest
_MOST_RELAXED = 100  # covariates at most whose slopes are estimated again without the penalty
_RELAXED_SHARE = 1 / 3  # of the rows: so many such covariates at most
_SHARES = (1.0, 0.5, 0.0)  # of the penalised slopes in the mean of penalised and unpenalised ones
_RIDGE = 1e-6  # of the unpenalised slopes, so that collinear covariates have some
_TOLERANCE = 1e-3  # of coordinate descent, as share of the outcome's sum of squares


@dataclass(frozen=True)
class Lasso(AlwaysTried):
    """Linear regression under a penalty of absolute slopes, relaxed.

    The penalty leaves most covariates out. It also shrinks the slopes of those it keeps; so these are estimated once
    more without it. Out-of-fold rows choose the penalty, and one of the two kinds of slopes or their mean.
    Beyond the range of the training rows the covariates are held at its ends.

    Parameters
    ----------
    max_columns : int, default 1000
        Covariates at most that the penalty chooses from: those that are most correlated with the outcome.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(100, 200))
    >>> fold = np.arange(100) % 5
    >>> predict, left_out = Lasso().cross_fit(x, x[:, 7], np.ones(100), fold, np.random.default_rng(0))
    >>> bool(np.abs(left_out - x[:, 7]).max() < 0.1)
    True
    """

    max_columns: int = 1000

    @property
    def kind(self) -> str:
        """The word "lasso"."""
        return "lasso"

    @property
    def name(self) -> str:
        """The learner's name in the summary of a model."""
        return "lasso"

    def cross_fit(
        self, x: Array, y: Array, weight: Array, fold: Ints, rng: np.random.Generator, best: float = np.inf
    ) -> tuple[FittedPolynomial, Array]:
        """The regression on all rows, and out-of-fold predictions (n,); see `Learner.cross_fit`."""
        share = weight / weight.sum()
        center = share @ x
        scale = np.sqrt(share @ (x - center) ** 2)
        scale[scale < 1e-9] = np.inf
        features = (x - center) / scale
        largest = float(np.abs((share * (y - share @ y)) @ features).max())
        penalties = max(largest, 1e-300) * np.geomspace(1, _SMALLEST_PENALTY, _N_PENALTIES)
        left_out = np.empty((len(_SHARES) * _N_PENALTIES, len(x)))
        for f in each_fold(int(fold.max()) + 1):
            here, others = fold == f, fold != f
            columns, slopes, offsets = self._path(features[others], y[others], weight[others], penalties)
            left_out[:, here] = offsets + slopes @ features[np.ix_(here, columns)].T
        chosen = int(np.argmin((left_out - y) ** 2 @ weight))
        columns, slopes, offsets = self._path(features, y, weight, penalties)
        coefficients = np.zeros(x.shape[1])
        coefficients[columns] = slopes[chosen]
        low, high = x.min(axis=0), x.max(axis=0)
        return FittedPolynomial(1, low, high, center, scale, coefficients, float(offsets[chosen, 0])), left_out[chosen]

    def _path(self, features: Array, y: Array, weight: Array, penalties: Array) -> tuple[Ints, Array, Array]:
        """The columns (k,) looked at, and under every penalty and share their slopes (m, k) and the offset (m, 1)."""
        columns = most_correlated(features, y, weight, self.max_columns)
        # Late: its import takes a tenth of a second, and most fits go without it.
        from sklearn.linear_model import lasso_path

        share = weight / weight.sum()
        x = features[:, columns]
        mean, offset = share @ x, float(share @ y)
        root = np.sqrt(share * len(y))
        x, target = np.asfortranarray((x - mean) * root[:, None]), (y - offset) * root
        with warnings.catch_warnings():
            # To end at max_iter is no failure: the out-of-fold error chooses among what was reached.
            warnings.simplefilter("ignore", ConvergenceWarning)
            slopes = lasso_path(x, target, alphas=penalties, tol=_TOLERANCE, max_iter=200)[1].T
        relaxed = np.array([_relax(x, target, own) for own in slopes])
        slopes = np.vstack([share * slopes + (1 - share) * relaxed for share in _SHARES])
        return columns, slopes, (offset - slopes @ mean)[:, None]


def _relax(x: Array, y: Array, slopes: Array) -> Array:
    """The slopes (k,) without the penalty, of the covariates that it left; the same slopes if there are too many."""
    kept = np.flatnonzero(slopes)
    if not 0 < len(kept) <= min(_MOST_RELAXED, _RELAXED_SHARE * len(y)):
        return slopes
    own = x[:, kept]
    relaxed = np.zeros_like(slopes)
    relaxed[kept] = np.linalg.solve(own.T @ own + _RIDGE * len(y) * np.eye(len(kept)), own.T @ y)
    return relaxed
