"""Classifiers whose log-odds are linear in x: logistic regression, and the constant as its simplest case."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from treecdf._kernels.losses import logistic_loss
from treecdf.classifiers.minimise import minimise
from treecdf.classifiers.protocol import Basis, Moments, NodeFits, Splits, share_log_lik
from treecdf.rows import Rows

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Constant:
    """The share of the left child, whatever x: the unconditional tree flow."""

    hidden: tuple[int, ...] = ()

    def basis(self, q: int) -> Basis:
        """No features."""
        return Basis.empty()

    def fit(self, rows: Rows, splits: Splits, rng: np.random.Generator) -> NodeFits:
        """The logit of the share is the only parameter."""
        return NodeFits(logit(splits.share)[:, None], share_log_lik(splits.left_weight, splits.weight))

    def importance(self, theta: NDArray[Any], q: int) -> Array:
        """No covariate matters."""
        return np.zeros((len(theta), q))


@dataclass(frozen=True)
class Logistic:
    """Logistic regression with an L2 penalty on its slopes.

    C: inverse strength of the penalty, as in scikit-learn. tol: largest derivative of the mean loss at the end.
    """

    C: float = 1.0
    tol: float = 1e-4
    max_iter: int = 1000

    hidden = ()

    def basis(self, q: int) -> Basis:
        """The covariates, with the penalty of the fit."""
        return Basis.linear(q, ridge=1 / self.C)

    def fit(self, rows: Rows, splits: Splits, rng: np.random.Generator) -> NodeFits:
        """Start at the share; the score test's Hessian makes the first step a Newton step."""
        q = rows.n_covariates
        theta = np.zeros((len(splits.axis), 1 + q))
        theta[:, 0] = logit(splits.share)
        return minimise(
            rows,
            splits,
            logistic_loss,
            theta,
            np.r_[0.0, np.full(q, 1 / self.C)],
            preconditioner=_inverse_hessian(splits.moments, splits.share, 1 / self.C),
            tol=self.tol,
            max_iter=self.max_iter,
        )

    def importance(self, theta: NDArray[Any], q: int) -> Array:
        """Slopes on standardised covariates."""
        return np.abs(theta[:, 1:])


def _inverse_hessian(moments: Moments, share: Array, ridge: float) -> Array:
    """Inverse Hessian (k, 1 + q, 1 + q) of the mean penalised loss at zero slopes."""
    variance = (share * (1 - share))[:, None]
    scaled = moments.rotation * (moments.weight[:, None] / (variance * moments.scatter + ridge))[:, None, :]
    slopes = scaled @ moments.rotation.transpose(0, 2, 1)
    cross = -np.einsum("kij,kj->ki", slopes, moments.mean)
    k, q = moments.mean.shape
    inverse = np.empty((k, 1 + q, 1 + q))
    inverse[:, 1:, 1:] = slopes
    inverse[:, 0, 1:] = inverse[:, 1:, 0] = cross
    inverse[:, 0, 0] = 1 / variance[:, 0] - np.einsum("ki,ki->k", cross, moments.mean)
    return inverse
