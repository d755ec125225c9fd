"""A log scale that is linear in x: what few rows can tell of how noise grows, before trees refine it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treecdf._common.typing import Array
from treecdf.bases.mean import TrainingRows

_PENALTIES = (3.0, 30.0, 300.0)  # of squared slopes, in rows
_STEPS = 15  # of Newton's method at most
_DEGREES = 5.0  # of freedom of the likelihood: outliers pull little
_CURVATURE = 2 * _DEGREES / (_DEGREES + 3)  # expected curvature of its logarithm in the log scale
_LONGEST_STEP = 1.0  # of a log scale
_SETTLED = 1e-3  # of a log scale: a smaller step is the last one
_WORTH_SLOPES = 2.0  # nats, all rows together, that slopes have to gain over one scale for all


@dataclass(frozen=True)
class LinearScale:
    """Slopes of a log scale; its values are held within the range that training rows have."""

    slopes: Array  # (q,); all 0 if one scale serves all rows as well
    offset: float
    ends: tuple[float, float]

    @staticmethod
    def constant(q: int) -> LinearScale:
        """One scale for all rows of q covariates."""
        return LinearScale(np.zeros(q), 0.0, (0.0, 0.0))

    @property
    def has_slopes(self) -> bool:
        """Whether the scale depends on x."""
        return bool(self.slopes.any())

    @staticmethod
    def cross_fit(rows: TrainingRows, residuals: Array) -> tuple[LinearScale, Array]:
        """Relative log scales for new rows, and out-of-fold ones (n,) of the training rows.

        residuals (n,) are out-of-fold errors of the location; the penalty of the slopes is the one under which rows of
        other folds are most likely.
        """
        constant = np.zeros(len(residuals))
        best = _loss(residuals, _fit_constant(rows, residuals), rows.weight) - _WORTH_SLOPES
        chosen, left_out = 0.0, constant
        for penalty in _PENALTIES:
            found = np.empty(len(residuals))
            for f in range(int(rows.fold.max()) + 1):
                learns = rows.fold != f
                intercept, slopes = _fit(rows.x[learns], residuals[learns], rows.weight[learns], penalty)
                found[~learns] = intercept + rows.x[~learns] @ slopes
            loss = _loss(residuals, found, rows.weight)
            if loss < best:
                best, chosen, left_out = loss, penalty, found
        if chosen == 0:
            return LinearScale.constant(rows.x.shape[1]), constant
        _, slopes = _fit(rows.x, residuals, rows.weight, chosen)
        mean = float(rows.weight @ left_out / rows.weight.sum())
        return _centred(rows, slopes, left_out - mean)

    def __call__(self, x: Array) -> Array:
        """Relative log scales (n,) at standardised covariates x (n, q)."""
        return np.clip(x @ self.slopes - self.offset, *self.ends)


def _centred(rows: TrainingRows, slopes: Array, left_out: Array) -> tuple[LinearScale, Array]:
    """Slopes whose mean over the rows is 0, and the out-of-fold values within their ends."""
    ends = float(left_out.min()), float(left_out.max())
    offset = float(rows.weight @ (rows.x @ slopes) / rows.weight.sum())
    return LinearScale(slopes, offset, ends), left_out


def _fit_constant(rows: TrainingRows, residuals: Array) -> Array:
    """Out-of-fold log scales (n,) that do not depend on x."""
    found = np.empty(len(residuals))
    for f in range(int(rows.fold.max()) + 1):
        learns = rows.fold != f
        found[~learns] = _fit(np.empty((int(learns.sum()), 0)), residuals[learns], rows.weight[learns], 1.0)[0]
    return found


def _fit(x: Array, residuals: Array, weight: Array, penalty: float) -> tuple[float, Array]:
    """Intercept and slopes (q,) of the log scale of the highest penalised likelihood, by Newton's method."""
    design = np.column_stack([np.ones(len(x)), x])
    ridge = np.full(design.shape[1], penalty)
    ridge[0] = 0.0
    matrix = _CURVATURE * (design.T * weight) @ design + np.diag(ridge)
    beta = np.zeros(design.shape[1])
    size = np.median(np.abs(residuals))
    beta[0] = np.log(size if size > 0 else max(float(np.abs(residuals).max()), 1e-300))
    inverse = np.linalg.inv(matrix)  # the same for all steps: the curvature is the expected one
    for _ in range(_STEPS):
        square = (residuals * np.exp(-np.clip(design @ beta, -300, 300))) ** 2
        pull = (_DEGREES + 1) / (1 + _DEGREES / np.maximum(square, 1e-300)) - 1
        step = inverse @ (design.T @ (weight * pull) - ridge * beta)
        largest = float(np.abs(design @ step).max())
        beta += step * min(1.0, _LONGEST_STEP / max(largest, 1e-12))
        if largest < _SETTLED:
            break
    return float(beta[0]), beta[1:]


def _loss(residuals: Array, log_scale: Array, weight: Array) -> float:
    """Negative log-likelihood of all residuals (n,), up to a constant."""
    square = (residuals * np.exp(-log_scale)) ** 2
    return float(weight @ (log_scale + (_DEGREES + 1) / 2 * np.log1p(square / _DEGREES)))
