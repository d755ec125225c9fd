"""What learns the components of a conditional base, and which tails they have.

Scores (n, 3 J) are what a model of J components says at n rows: log scales, logits of the weights, locations, all on
the transformed scale of the outcome.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from treecdf._common.steps import Steps
from treecdf._common.typing import Array, Ints
from treecdf._kernels.mixtures import cell_loss, mixture_loss
from treecdf._kernels.tails import DEGREES, NORMAL
from treecdf.bases.learners.boosting import Loss
from treecdf.bases.mean import TrainingRows

# Scale of each tail that fits normal noise of standard deviation 1 best: where the search for its scale begins.
_TYPICAL_SCALE = np.array([0.612, 0.725, 0.785, 0.852, 0.915, 1.0])
_LIGHTER = 1.0  # nats, all rows together, that a heavier tail has to gain over a lighter one (ADR 45)
_NO_VARIANCE = 0.01  # nats a row that tails without a standard deviation have to gain
_STEPS = 6  # of Newton's method for a scale
_LONGEST_STEP = 0.5  # of a log scale


class Components(Protocol):
    """A fitted model of the components of a conditional base."""

    @property
    def n_components(self) -> int:
        """J, the number of components."""
        ...

    @property
    def is_line(self) -> bool:
        """Whether the only location is linear in the covariates, also beyond the training rows."""
        ...

    def __call__(self, x: Array) -> Array:
        """Scores (n, 3 J) at standardised covariates x (n, q)."""
        ...

    def describe(self) -> Iterator[str]:
        """Lines of the summary of a model."""
        ...


@dataclass(frozen=True)
class Learnt:
    """A fitted model of components, its scores of training rows that it did not see, and their tail."""

    model: Components
    left_out: Array  # (n, 3 J)
    tail: int


class ComponentLearner(Protocol):
    """What learns the components of a conditional base from rows whose outcomes are on the transformed scale."""

    def cross_fit(
        self, rows: TrainingRows, step: float, floor: float, rng: np.random.Generator, steps: Steps
    ) -> Learnt:
        """The fitted components; `step` is that of the outcomes' recording and `floor` the smallest log scale."""
        ...


class MixtureLearner(ComponentLearner, Protocol):
    """A learner of components that a quick look on few rows and rounds can judge before it is trained in full."""

    def look(self, rows: TrainingRows, floor: float, rng: np.random.Generator) -> tuple[MixtureLearner, float, Ints]:
        """The learner with settings chosen by a quick look, and how well it did.

        The second value is the mean negative log-likelihood of left-out rows, the third the numbers (m,) of these rows.
        """
        ...


def describe_tail(tail: int) -> str:
    """A tail in words, for the summary."""
    if tail == NORMAL:
        return "normal"
    hint = " (its mean and standard deviation mean little)" if DEGREES[tail] <= 2 else ""
    return f"Student t with {DEGREES[tail]:.0f} degrees of freedom{hint}"


def make_loss(y: Array, location: Array | None, tail: int, floor: float, relative: Array | None = None) -> Loss:
    """The loss of `boost_scores`: the negative log-likelihood of outcomes y (n,), or of cells with ends y (n, 2).

    With locations (n, J) the scores are log scales and logits (n, 2 J), without them (n, 3 J). To the log scales of a
    row the `relative` log scale (n,) is added.
    """

    kernel = mixture_loss if y.ndim == 1 else cell_loss

    def loss(scores: Array, chosen: Ints) -> tuple[Array, Array, Array]:
        value, gradient, curvature = np.empty(len(chosen)), np.empty(scores.shape), np.empty(scores.shape)
        if location is None:
            at = np.ascontiguousarray(scores[:, 2 * (scores.shape[1] // 3) :])
        else:
            at = location[chosen]
        if relative is not None:
            scores = scores.copy()
            scores[:, : at.shape[1]] += relative[chosen, None]
        kernel(y[chosen], at, scores, tail, floor, value, gradient, curvature)
        return value, gradient, curvature

    return loss


def choose_tail(
    y: Array, scores: Array, weight: Array, floor: float, tail: int, most: int | None = None
) -> tuple[int, float, float]:
    """The tail under which rows are most likely, with all scales times one number; among equals the lightest.

    Parameters
    ----------
    y : array of shape (n,) or (n, 2)
        Outcomes, or ends of their cells.
    scores : array of shape (n, 3 J)
        Of these rows by a model that did not see them.
    weight : array of shape (n,)
        Of the rows.
    floor : float
        Smallest log scale.
    tail : int
        The tail that the scores were learnt under.
    most : int or None
        Rows that tails are compared on at most, evenly spread over all; None: all.

    Returns
    -------
    tail, shift, loss : int, float, float
        The tail, what to add to the log scales, and the mean negative log-likelihood with both.
    """
    if most is not None and len(y) > most:
        few = np.arange(0, len(y), -(-len(y) // most))
        tail, shift, _ = choose_tail(y[few], scores[few], weight[few], floor, tail)
        return tail, shift, _loss_of(y, scores, weight, floor, tail, shift)
    found = {tail: _best_shift(y, scores, weight, floor, tail, 0.0)}
    for other in range(len(DEGREES)):
        if other != tail:
            start = float(np.log(_TYPICAL_SCALE[other] / _TYPICAL_SCALE[tail]))
            found[other] = _best_shift(y, scores, weight, floor, other, start)
    price = {one: loss + _NO_VARIANCE * (DEGREES[one] <= 2) for one, (_, loss) in found.items()}
    good_enough = min(price.values()) + _LIGHTER / weight.sum()
    best = max(one for one, loss in price.items() if loss <= good_enough)
    return best, *found[best]


def _loss_of(y: Array, scores: Array, weight: Array, floor: float, tail: int, shift: float) -> float:
    """Mean loss (nats a row) under a tail with `shift` added to all log scales."""
    n_components = scores.shape[1] // 3
    moved = np.ascontiguousarray(scores[:, : 2 * n_components])
    moved[:, :n_components] += shift
    location = np.ascontiguousarray(scores[:, 2 * n_components :])
    return float(weight @ make_loss(y, location, tail, floor)(moved, np.arange(len(y)))[0] / weight.sum())


def _best_shift(y: Array, scores: Array, weight: Array, floor: float, tail: int, shift: float) -> tuple[float, float]:
    """What to add to all log scales, and the mean loss (nats a row) with it; Newton's method from `shift`."""
    n_components = scores.shape[1] // 3
    location = np.ascontiguousarray(scores[:, 2 * n_components :])
    loss, everyone, best = make_loss(y, location, tail, floor), np.arange(len(y)), (shift, np.inf)
    share = weight / weight.sum()
    for _ in range(_STEPS):
        moved = np.ascontiguousarray(scores[:, : 2 * n_components])
        moved[:, :n_components] += shift
        value, gradient, curvature = loss(moved, everyone)
        mean = float(share @ value)
        if mean < best[1]:
            best = shift, mean
        slope, bend = (float(share @ part[:, :n_components].sum(axis=1)) for part in (gradient, curvature))
        shift -= float(np.clip(slope / max(bend, 1e-12), -_LONGEST_STEP, _LONGEST_STEP))
    return best
