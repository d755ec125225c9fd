"""The conditional mean: learners that are trained one after the other, and their non-negative stack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.optimize import nnls

from treecdf._common.numerics import weighted_quantile
from treecdf._common.steps import PLAIN_STEPS, Steps
from treecdf._common.telling import part
from treecdf._common.typing import Array, Ints
from treecdf.bases.learners.polynomial import FittedPolynomial
from treecdf.bases.learners.protocol import Learner, Predictor
from treecdf.bases.straightening import Straightener, on_both_scales
from treecdf.bases.taming import tame
from treecdf.bases.transform import OutcomeTransform
from treecdf.data.table import Table

_LARGEST_ERROR = 1.5  # times the stack's: learners with a larger error get no component of their own
_MOST_COMPONENTS = 3  # learners with a component of their own
_RESOLVED = 0.3  # of the recording step: a smaller error cannot be told from none, and no more learners are tried
_FORCE = 1e3  # weight of the equation "the stack's weights sum to one" beside those of the rows


@dataclass(frozen=True)
class TrainingRows:
    """Rows to cross-fit on."""

    x: Array  # (n, q): standardised covariates
    y: Array  # (n,): outcomes
    weight: Array  # (n,)
    fold: Ints  # (n,): rows of the same fold are left out together
    scale: Straightener | None = None  # of long-tailed covariates, where it suits smooth learners better
    ends: Array | None = None  # (n, 2): of the cells that the outcomes were recorded in, if they were
    may_be_held: bool = True  # whether the model may hold some of these rows
    n_tails: int | None = None  # rows that tails are compared on at most; None: all
    transform: OutcomeTransform | None = None  # of the outcome, if it is known

    @staticmethod
    def of(table: Table, z: Array, fold: Ints, may_be_held: bool = True) -> TrainingRows:
        """The rows of a table of one outcome with standardised covariates z (n, q), and cells where there are any."""
        cells = None if table.cells is None else table.cells.of(0)
        if cells is None:
            return TrainingRows(z, table.y[:, 0], table.weight, fold, may_be_held=may_be_held)
        ends = np.hstack([cells.lower, cells.upper])
        return TrainingRows(z, cells.value[:, 0], table.weight, fold, ends=ends, may_be_held=may_be_held)

    def take(self, chosen: Ints) -> TrainingRows:
        """Some of the rows (m,)."""
        x, y, weight = (part[chosen] for part in (self.x, self.y, self.weight))
        ends = None if self.ends is None else self.ends[chosen]
        return replace(self, x=x, y=y, weight=weight, fold=self.fold[chosen], ends=ends)

    @property
    def observed(self) -> Array:
        """What is known of the outcomes: their values (n,), or the ends (n, 2) of their cells."""
        return self.y if self.ends is None else self.ends


@dataclass(frozen=True)
class Mean:
    """Fitted mean learners and the weights of their stack."""

    names: tuple[str, ...]
    predictors: tuple[Predictor, ...]
    weights: Array  # (learners,), of sum one
    components: Ints  # numbers of the learners that have a component of their own

    @staticmethod
    def cross_fit(
        learners: Sequence[Learner],
        rows: TrainingRows,
        step: float,
        rng: np.random.Generator,
        steps: Steps = PLAIN_STEPS,
    ) -> tuple[Mean, Array]:
        """The fitted learners, and out-of-fold locations (n, J) of the training rows.

        A learner is left out if it says that it has nothing to add to those before it, or if these are exact up to the
        outcomes' recording `step`.
        """
        x, weight = rows.x, rows.weight
        with part("outliers", 0.0, 0.0):
            y = tame(x, rows.y, weight, rows.fold, rng)
        learners = on_both_scales(learners, rows.scale)
        names, predictors, outputs, errors = [], [], [], dict[str, float]()
        for k, learner in enumerate(learners):
            if errors and not learner.is_worth_trying(errors):
                continue
            best = min(errors.values(), default=np.inf)
            fit = partial(learner.cross_fit, x, y, weight, rows.fold, rng, best)
            with part(
                f"learner {k + 1} of {len(learners)}, {learner.name}", k / len(learners), (k + 1) / len(learners)
            ):
                predictor, output = steps.learn(rng, x.shape[1], y.shape, fit)
            names.append(learner.name)
            predictors.append(predictor)
            outputs.append(output)
            error = float(np.sqrt(weight @ (output - y) ** 2 / weight.sum()))
            errors[learner.kind] = min(error, errors.get(learner.kind, np.inf))
            if error < _RESOLVED * step:
                break
        means = np.column_stack(outputs)
        weights = _stack(means, y, weight)
        components = _components(weight @ (means - y[:, None]) ** 2, float(weight @ (means @ weights - y) ** 2))
        mean = Mean(tuple(names), tuple(predictors), weights, components)
        return mean._of_use(), mean.locations(means)

    def _of_use(self) -> Mean:
        """The same without learners that have neither weight nor component, some of which hold training rows."""
        used = np.flatnonzero((self.weights > 0) | np.isin(np.arange(len(self.names)), self.components))
        names = tuple(self.names[k] for k in used)
        predictors = tuple(self.predictors[k] for k in used)
        return Mean(names, predictors, self.weights[used], np.searchsorted(used, self.components))

    @staticmethod
    def constant(rows: TrainingRows) -> tuple[Mean, Array]:
        """The mean of the middle half of the outcomes whatever x is, and out-of-fold locations (n, 1)."""
        q, left_out = rows.x.shape[1], np.empty((len(rows.y), 1))
        for f in range(int(rows.fold.max()) + 1):
            others = rows.fold != f
            left_out[~others] = _middle(rows.y[others], rows.weight[others])
        zero, middle = np.zeros(q), _middle(rows.y, rows.weight)
        level = FittedPolynomial(1, zero, zero, zero, np.ones(q), zero, middle)
        return Mean(("constant",), (level,), np.ones(1), np.empty(0, np.int64)), left_out

    def only(self, k: int) -> Mean:
        """The mean of the k-th learner alone."""
        return Mean((self.names[k],), (self.predictors[k],), np.ones(1), np.empty(0, np.int64))

    def locations(self, means: Array) -> Array:
        """Locations (n, J) of the components, the stack first, from the predictions (n, learners)."""
        return np.column_stack([means @ self.weights, means[:, self.components]])

    def __call__(self, x: Array) -> Array:
        """Locations (n, J) of the components at new rows of standardised covariates x (n, q)."""
        return self.locations(np.column_stack([predictor(x) for predictor in self.predictors]))


def _middle(y: Array, weight: Array) -> float:
    """The weighted mean of outcomes (n,) between their quartiles."""
    low, high = (weighted_quantile(y, weight, level) for level in (0.25, 0.75))
    inside = (y >= low) & (y <= high)
    return float(np.average(y[inside], weights=weight[inside]))


def _components(error: Array, error_of_stack: float) -> Ints:
    """Numbers of the learners that get a component beside the stack, from sums of squared errors (learners,)."""
    if len(error) == 1:
        return np.empty(0, np.int64)
    best = np.argsort(error, kind="stable")[:_MOST_COMPONENTS]
    return np.sort(best[error[best] <= _LARGEST_ERROR**2 * error_of_stack])


def _stack(means: Array, y: Array, weight: Array) -> Array:
    """Non-negative weights (learners,) of sum one that have the smallest squared error; predictions are (n, learners).

    `nnls` raises an error if it does not converge.
    """
    root = np.sqrt(weight / weight.mean())
    force = _FORCE * np.sqrt(len(y))
    a = np.vstack([means * root[:, None], np.full(means.shape[1], force)])
    weights = nnls(a, np.append(y * root, force))[0]
    total = weights.sum()
    return weights / total if total > 0 else np.full(len(weights), 1 / len(weights))
