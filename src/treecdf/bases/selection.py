"""Which transform of the outcome a conditional base begins with."""

from __future__ import annotations

import numpy as np

from treecdf._common.typing import Array, Ints
from treecdf._kernels.tails import NORMAL
from treecdf.bases.components import choose_tail
from treecdf.bases.learners.polynomial import Polynomial
from treecdf.bases.learners.process import GaussianProcess
from treecdf.bases.linear_scale import LinearScale
from treecdf.bases.mean import TrainingRows
from treecdf.bases.taming import hold_outliers
from treecdf.bases.transform import OutcomeTransform

_POWERS = (0.5, 0.75, 1.0, 1.25, 1.5)  # of Yeo-Johnson; mean and variance exist for each
_WORTH_A_POWER = 0.02  # nats a row that a power other than 1 has to gain
_WORTH_A_POWER_IN_ALL = 8.0  # nats that it has to gain besides, all rows together
_WORTH_LOGS = 0.2  # nats a row that logarithms have to gain over the best power before they are judged
_TRIED_ROWS = 2000  # rows that powers are compared on
_MOST_PRODUCTS = 500  # the comparison is by a linear model if a quadratic one had more
_JUDGED_ROWS = 1000  # rows that logarithms are judged on
_N_JUDGED_BINS = 10  # bins of the prediction, each with an error of its own
_SMALLEST_SCALE = 1e-6  # of errors: an exact fit is not infinitely likely
_NORMAL_QUARTILE = 1.4826  # the standard deviation of normal errors over the median of their sizes
_MOST_SLOPES = 64  # covariates up to which the scale of errors may depend on them


def choose_transform(rows: TrainingRows, origin: float, rng: np.random.Generator) -> OutcomeTransform:
    """The transform under which a quadratic model explains out-of-fold rows best.

    Its errors have the tails that suit them, and a log scale that may be linear in x: neither outliers nor noise that
    grows are a reason to transform. Logarithms are of distances from `origin`.
    """
    x, y, weight, fold = rows.x if rows.scale is None else rows.scale(rows.x), rows.y, rows.weight, rows.fold
    tried = rng.permutation(len(x))[:_TRIED_ROWS]
    quadratic = Polynomial(2 if Polynomial(2).n_features(x.shape[1]) <= _MOST_PRODUCTS else 1)
    candidates = [OutcomeTransform.fit(y, weight, power) for power in _POWERS]
    logarithm = OutcomeTransform.fit_log(y, weight, origin)
    if logarithm is not None:
        candidates.append(logarithm)
    scores = []
    outcomes = [transform.forward(y[tried]) for transform in candidates]
    held = [hold_outliers(g) for g, _ in outcomes]
    predictions = quadratic.left_out(x[tried], held, weight[tried], fold[tried])
    for (g, log_slope), prediction in zip(outcomes, predictions, strict=True):
        part = TrainingRows(x[tried], g, weight[tried], fold[tried])
        error = g - prediction
        relative = LinearScale.cross_fit(part, error)[1] if x.shape[1] <= _MOST_SLOPES else np.zeros(len(tried))
        share = part.weight / part.weight.sum()
        scores.append(float(share @ log_slope) + _log_likelihood(error, relative, part.weight))
    powers, plain = scores[: len(_POWERS)], _POWERS.index(1.0)
    best = int(np.argmax(powers))
    worth = _WORTH_A_POWER + _WORTH_A_POWER_IN_ALL / float(weight[tried].sum())
    chosen = candidates[best if powers[best] > powers[plain] + worth else plain]
    if logarithm is not None and scores[-1] > max(powers) + _WORTH_LOGS:
        few = tried[:_JUDGED_ROWS]
        return max(chosen, logarithm, key=lambda transform: _judge(transform, x[few], y[few], weight[few], fold[few]))
    return chosen


def _judge(transform: OutcomeTransform, x: Array, y: Array, weight: Array, fold: Ints) -> float:
    """Mean log-likelihood of out-of-fold rows under a Gaussian process whose errors depend on its prediction.

    Errors that grow with the prediction look more even after logarithms; one error for all rows would prefer these.
    """
    g, log_slope = transform.forward(y)
    process = GaussianProcess(n_tuning=150, n_inducing=300, max_iter=30)
    prediction = process.cross_fit(x, hold_outliers(g), weight, fold, np.random.default_rng(0))[1]
    error, relative = g - prediction, np.empty(len(g))
    for part in np.array_split(np.argsort(prediction), _N_JUDGED_BINS):
        if len(part):
            relative[part] = np.log(np.median(np.abs(error[part])) + _SMALLEST_SCALE)
    return float(weight @ log_slope / weight.sum()) + _log_likelihood(error, relative, weight)


def _log_likelihood(error: Array, relative: Array, weight: Array) -> float:
    """Mean log density of errors (n,) whose log scales are `relative` (n,) and a number, under the tail that suits."""
    typical = np.median(np.abs(error) * np.exp(-relative))
    log_scale = relative + np.log(_NORMAL_QUARTILE * typical + _SMALLEST_SCALE)
    scores = np.column_stack([log_scale, np.zeros((len(error), 2))])
    return -choose_tail(error, scores, weight, np.log(_SMALLEST_SCALE), NORMAL)[2]
