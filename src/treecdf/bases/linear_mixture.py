"""A small mixture whose locations, log scales and logits of weights are linear in the covariates.

For few rows of many correlated units, such as samples of a dozen persons: strong penalties keep the components
together unless the rows say otherwise, and there is nothing to choose.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp, ndtr

from treecdf._common.typing import Array
from treecdf._kernels.tails import NORMAL
from treecdf.bases.conditional import Conditional
from treecdf.bases.reach import Reach
from treecdf.bases.transform import OutcomeTransform

N_COMPONENTS = 3
_START = np.array([-1.0, 0.0, 1.0])  # locations in standard deviations of the residual, where the search begins
_NARROWER = 0.3  # how much smaller log scales are than that of the residual there
_SMALLEST_LOG_SCALE, _LARGEST_LOG_SCALE = -3.0, 1.5  # for standardised outcomes
_PENALTY_OF_LOCATION = 100.0  # of squared slopes, in rows; ADR 36
_PENALTY = 30.0  # of squared slopes of log scales and logits
_PENALTY_OF_LEVEL = 1.0  # of squared distances from where the search begins, at the mean of the covariates
_MOST_STEPS = 100  # of L-BFGS
_SMALLEST_MASS = 1e-12  # between the ends


@dataclass(frozen=True)
class LinearMixture:
    """Scores of J components at standardised covariates: log scales, logits of the weights, locations."""

    slopes: Array  # (3 J, 1 + q), the levels first

    @property
    def n_components(self) -> int:
        """J, the number of components."""
        return len(self.slopes) // 3

    @property
    def is_line(self) -> bool:
        """False: there are several locations."""
        return False

    def __call__(self, x: Array) -> Array:
        """Scores (n, 3 J) at standardised covariates x (n, q)."""
        scores: Array = _design(x) @ self.slopes.T
        return scores

    def describe(self) -> Iterator[str]:
        """How many components there are."""
        yield f"mixture of {self.n_components} components that are linear in the covariates"


def fit_linear_mixture(
    x: Array, y: Array, weight: Array, bound: tuple[float, float], low: Array | None = None
) -> Conditional:
    """The base of outcomes y (n,) between bounds, given standardised covariates x (n, q), by penalised likelihood.

    The last covariate is expected to be a prediction of y: locations begin with the slope that it has. Outcomes
    cannot be below `low` (n,), if that is given: likelihoods are of what is left above.
    """
    transform = OutcomeTransform.fit(y, weight)
    z = transform.forward(y)[0]
    ends = transform.forward(np.array(bound))[0]
    lower = np.full(len(z), ends[0]) if low is None else np.maximum(transform.forward(low)[0], ends[0])
    rows = _Rows(_design(x), z, lower, float(ends[1]), weight)
    start = _start(rows)
    found = minimize(rows.loss, start.ravel(), (start.ravel(),), "L-BFGS-B", jac=True, options={"maxiter": _MOST_STEPS})
    return Conditional(
        transform,
        LinearMixture(found.x.reshape(start.shape)),
        NORMAL,
        floor=_SMALLEST_LOG_SCALE,
        log_broad=-float(np.log(weight.sum() + 1)),
        bound=(float(ends[0]), float(ends[1])),
        support=bound,
        range=(x.min(axis=0), x.max(axis=0)),
        typical=(np.zeros(2), np.ones(2)),
        reach=Reach.nowhere(x.shape[1]),
        widest=0.0,
    )


def _design(x: Array) -> Array:
    """Ones and the covariates, (n, 1 + q)."""
    return np.column_stack([np.ones(len(x)), x])


def _start(rows: _Rows) -> Array:
    """Scores (3 J, 1 + q) to begin with: normals beside one another around the line through the last covariate."""
    prediction = rows.design[:, -1]
    slope = float((rows.weight * prediction) @ rows.z) / max(float(rows.weight @ prediction**2), 1.0)
    spread = np.sqrt(rows.weight @ (rows.z - slope * prediction) ** 2 / rows.weight.sum())
    start = np.zeros((3, N_COMPONENTS, rows.design.shape[1]))
    start[0, :, 0] = np.clip(np.log(max(spread, 1e-300)) - _NARROWER, _SMALLEST_LOG_SCALE, _LARGEST_LOG_SCALE)
    start[2, :, 0] = spread * _START
    start[2, :, -1] += slope
    return start.reshape(3 * N_COMPONENTS, -1)


@dataclass(frozen=True)
class _Rows:
    """Training rows: what slopes multiply (n, 1 + q), outcomes (n,) and their lower (n,) and upper ends."""

    design: Array
    z: Array
    lower: Array
    upper: float
    weight: Array

    def loss(self, slopes: Array, start: Array) -> tuple[float, Array]:
        """Minus the penalised log-likelihood of slopes (3 J * (1 + q),), and its gradient."""
        width = self.design.shape[1]
        raw = self.design @ slopes.reshape(-1, width).T
        log_scale, logits, location = np.split(raw, 3, axis=1)
        log_scale = np.clip(log_scale, _SMALLEST_LOG_SCALE, _LARGEST_LOG_SCALE)
        location = np.clip(location, self.lower.min(), self.upper)
        log_weight = logits - logsumexp(logits, axis=1, keepdims=True)
        scale, share = np.exp(log_scale), np.exp(log_weight)
        t, t_low, t_high = ((end - location) / scale for end in (self.z[:, None], self.lower[:, None], self.upper))
        log_density = log_weight - t**2 / 2 - log_scale - np.log(2 * np.pi) / 2
        log_total = logsumexp(log_density, axis=1)
        # from the nearer side: a difference of numbers close to one has few digits
        inside = np.where(t_low > 0, ndtr(-t_low) - ndtr(-t_high), ndtr(t_high) - ndtr(t_low))
        mass = np.maximum((share * inside).sum(axis=1), _SMALLEST_MASS)
        of_row, of_mass = np.exp(log_density - log_total[:, None]), share / mass[:, None]
        at_low, at_high = (np.exp(-(end**2) / 2) / np.sqrt(2 * np.pi) for end in (t_low, t_high))
        slope = np.stack(
            [
                of_row * (t**2 - 1) - of_mass * (t_low * at_low - t_high * at_high),
                of_row - of_mass * inside,
                (of_row * t - of_mass * (at_low - at_high)) / scale,
            ]
        )
        slope[0] *= log_scale == raw[:, :N_COMPONENTS]
        slope[2] *= location == raw[:, 2 * N_COMPONENTS :]
        gradient = np.tensordot(slope * self.weight[:, None], self.design, axes=(1, 0)).ravel()
        penalty, away = _penalties(width), slopes - start
        value = -(self.weight @ (log_total - np.log(mass))) + penalty @ away**2 / 2
        return float(value), penalty * away - gradient


def _penalties(width: int) -> Array:
    """Penalties (3 J * width,) of squared distances from where the search begins."""
    penalty = np.full((3, N_COMPONENTS, width), _PENALTY)
    penalty[2] = _PENALTY_OF_LOCATION
    penalty[:, :, 0] = _PENALTY_OF_LEVEL
    return penalty.ravel()
