"""Classifiers whose log-odds are linear in x: logistic regression, and the constant as its simplest case."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import logit

from treecdf._common.typing import Array
from treecdf._common.validation import check_setting, is_int, is_real
from treecdf._kernels.losses import logistic_loss
from treecdf._kernels.newton import STEP, newton_advance
from treecdf._kernels.transform import LINEAR
from treecdf.data.basis import FEATURE_BASES, Basis
from treecdf.training.classifiers.protocol import NodeFits, Passes, Splits, fit_together, share_log_lik
from treecdf.training.sources.operations import Sums
from treecdf.training.sources.rows import Rows

_LOW_DIMENSION = 3  # most covariates with which basis="auto" takes hinges


@dataclass(frozen=True)
class Constant:
    """A node classifier that ignores the covariates: the share of the left child.

    Examples
    --------
    >>> from treecdf import Constant, Stage
    >>> Stage(Constant(), max_depth=3).classifier
    Constant()
    """

    def kind(self, q: int) -> tuple[int, ...]:
        """(LINEAR, 0): log-odds without slopes."""
        return LINEAR, 0

    def search_basis(self, q: int) -> Basis:
        """No features."""
        return Basis.empty()

    fit_basis = search_basis

    def fit(self, rows: Rows, splits: Splits, rng: np.random.Generator) -> NodeFits:
        """The logit of each node's share, theta (k, 1)."""
        return NodeFits(logit(splits.share)[:, None], share_log_lik(splits.left_weight, splits.weight))


@dataclass(frozen=True)
class Logistic:
    """A node classifier that is a logistic regression with an L2 penalty on its slopes.

    Parameters
    ----------
    C : float, default 1.0
        Inverse strength of the penalty, as in scikit-learn.
    basis : {"linear", "hinges", "cubic", "auto"}, default "linear"
        What the log-odds are linear in. "linear": the covariates. "hinges": the covariates and five hinges of each,
        between one standard deviation below and above its mean. "cubic": powers of the covariates up to the third.
        "auto": hinges for up to three covariates, linear for more.
    tol : float, default 1e-4
        Training of a node ends when no derivative of its mean loss is larger.
    max_iter : int, default 100
        Most Newton steps.

    Examples
    --------
    >>> from treecdf import Logistic, Stage
    >>> Stage(Logistic(C=0.1, basis="hinges"), max_depth=4).max_depth
    4
    """

    C: float = 1.0
    basis: str = "linear"
    tol: float = 1e-4
    max_iter: int = 100

    def __post_init__(self) -> None:
        check_setting("C", self.C, is_real(self.C) and self.C > 0, "a number above 0")
        check_setting("basis", self.basis, self.basis in (*FEATURE_BASES, "auto"), f"one of {(*FEATURE_BASES, 'auto')}")
        check_setting("tol", self.tol, is_real(self.tol) and self.tol > 0, "a number above 0")
        check_setting("max_iter", self.max_iter, is_int(self.max_iter) and self.max_iter >= 1, "an integer above 0")

    def kind(self, q: int) -> tuple[int, ...]:
        """(LINEAR, the place of the basis in FEATURE_BASES)."""
        return LINEAR, list(FEATURE_BASES).index(self._basis_name(q))

    def search_basis(self, q: int) -> Basis:
        """The features of the log-odds, with their penalty; `fit` sees the same ones."""
        return FEATURE_BASES[self._basis_name(q)](q, ridge=1 / self.C)

    fit_basis = search_basis

    def _basis_name(self, q: int) -> str:
        if self.basis != "auto":
            return self.basis
        return "hinges" if q <= _LOW_DIMENSION else "linear"

    def fit(self, rows: Rows, splits: Splits, rng: np.random.Generator) -> NodeFits:
        """Intercept and slopes theta (k, 1 + p), by Newton's method."""
        return fit_together(rows, [self.passes(rows, splits, rng)])[0]

    def passes(self, rows: Rows, splits: Splits, rng: np.random.Generator, labels: int = 0) -> Passes:
        """As `fit`, where the rows have labels of this number.

        The first step is that of the score test, so it needs no pass over the rows. On wide tables only the features
        of the score test have slopes; those of the others are 0.
        """
        if splits.features is not None:
            basis = self.fit_basis(rows.n_covariates).take(splits.features)
            rows.arrange(splits.axis, splits.cut, basis, labels)
        k, n_parameters = len(splits.axis), 1 + splits.gradient.shape[1]
        point = np.zeros((k, n_parameters))
        point[:, 0] = logit(splits.share)
        log_lik = share_log_lik(splits.left_weight, splits.weight)
        step = np.zeros(k, STEP)
        direction, step["slope"] = self._first_step(splits)
        step["value"], step["length"] = -log_lik, 1.0
        trial = point + direction
        active, weight = splits.has_both.astype(np.int64), splits.weight
        while active.any():
            shapes = [(k,), (k, n_parameters), (k, n_parameters, n_parameters)]
            sums = yield Sums(logistic_loss, "node", (active, trial), shapes, labels)
            newton_advance(active, step, point, direction, trial, *sums, 1 / self.C, weight, self.tol, self.max_iter)
        fitted = 0.5 / self.C * (point[:, 1:] ** 2).sum(axis=1) - step["value"]
        return NodeFits(self._all_slopes(point, rows, splits), np.where(splits.has_both, fitted, log_lik))

    def _all_slopes(self, point: Array, rows: Rows, splits: Splits) -> Array:
        """Intercept and slopes (k, 1 + p) of all features, from those of the score test."""
        if splits.features is None:
            return point
        theta = np.zeros((len(point), 1 + len(self.fit_basis(rows.n_covariates))))
        theta[:, 0], theta[:, 1 + splits.features] = point[:, 0], point[:, 1:]
        return theta

    def _first_step(self, splits: Splits) -> tuple[Array, Array]:
        """Newton step (k, 1 + p) from the share with zero slopes, and the derivative (k,) of the loss along it."""
        m, share, gradient = splits.moments, splits.share, splits.gradient
        curvature = (share * (1 - share))[:, None] * m.scatter + 1 / self.C
        rotated = (gradient[:, None, :] @ m.rotation)[:, 0] / curvature
        slopes = (m.rotation @ rotated[:, :, None])[:, :, 0]
        # Moving the slopes alone would move the mean log-odds; the intercept holds it.
        intercept = -np.einsum("kq,kq->k", slopes, m.mean)
        return np.column_stack([intercept, slopes]), -np.einsum("kq,kq->k", slopes, gradient)
