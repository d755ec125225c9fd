"""Which transform of the outcome a conditional base begins with."""

from __future__ import annotations

import numpy as np

from treecdf._common.typing import Array
from treecdf.bases.learners.polynomial import Polynomial
from treecdf.bases.learners.process import GaussianProcess
from treecdf.bases.transform import OutcomeTransform

_POWERS = (0.5, 0.75, 1.0, 1.25, 1.5)  # of Yeo-Johnson; mean and variance exist for each
_WORTH_A_POWER = 0.02  # nats a row that a power other than 1 has to gain
_WORTH_LOGS = 0.2  # nats a row that logarithms have to gain over the best power before they are judged
_N_FOLDS = 5
_TRIED_ROWS = 2000  # rows that powers are compared on
_MOST_PRODUCTS = 500  # the comparison is by a linear model if a quadratic one had more
_JUDGED_ROWS = 1000  # rows that logarithms are judged on
_N_JUDGED_BINS = 10  # bins of the prediction, each with an error of its own
_SMALLEST_VARIANCE = 1e-12  # of errors: an exact fit is not infinitely likely


def choose_transform(x: Array, y: Array, weight: Array, origin: float, rng: np.random.Generator) -> OutcomeTransform:
    """The transform under which a quadratic model with normal errors explains out-of-fold rows best.

    x (n, q) are standardised covariates, y (n,) outcomes; logarithms are of distances from `origin`.
    """
    rows = rng.permutation(len(x))[:_TRIED_ROWS]
    quadratic = Polynomial(2 if Polynomial(2).n_features(x.shape[1]) <= _MOST_PRODUCTS else 1)
    candidates = [OutcomeTransform.fit(y, weight, power) for power in _POWERS]
    logarithm = OutcomeTransform.fit_log(y, weight, origin)
    if logarithm is not None:
        candidates.append(logarithm)
    scores = []
    for transform in candidates:
        g, log_slope = transform.forward(y)
        left_out = quadratic.cross_fit(x[rows], g[rows], weight[rows], np.arange(len(rows)) % _N_FOLDS, rng)[1]
        share = weight[rows] / weight[rows].sum()
        error = max(float(share @ (g[rows] - left_out) ** 2), _SMALLEST_VARIANCE)
        scores.append(float(share @ log_slope[rows]) - np.log(error) / 2)
    powers, plain = scores[: len(_POWERS)], _POWERS.index(1.0)
    best = int(np.argmax(powers))
    chosen = candidates[best if powers[best] > powers[plain] + _WORTH_A_POWER else plain]
    if logarithm is not None and scores[-1] > max(powers) + _WORTH_LOGS:
        few = rows[:_JUDGED_ROWS]
        return max(chosen, logarithm, key=lambda transform: _judge(transform, x[few], y[few], weight[few]))
    return chosen


def _judge(transform: OutcomeTransform, x: Array, y: Array, weight: Array) -> float:
    """Mean log-likelihood of out-of-fold rows under a Gaussian process whose errors depend on its prediction.

    Errors that grow with the prediction look more even after logarithms; one error for all rows would prefer these.
    """
    g, log_slope = transform.forward(y)
    process = GaussianProcess(n_tuning=150, n_inducing=300, max_iter=30)
    prediction = process.cross_fit(x, g, weight, np.arange(len(x)) % _N_FOLDS, np.random.default_rng(0))[1]
    errors = np.array_split((g - prediction)[np.argsort(prediction)], _N_JUDGED_BINS)
    log_errors = [np.log(max(float(np.mean(part**2)), _SMALLEST_VARIANCE)) / 2 for part in errors if len(part)]
    return float(np.mean(log_slope) - np.mean(log_errors))
