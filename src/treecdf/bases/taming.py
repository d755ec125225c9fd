"""Outcomes that mean learners can learn from: a few far-off ones would draw every squared error to themselves."""

from __future__ import annotations

import numpy as np

from treecdf._common.numerics import weighted_quantile
from treecdf._common.typing import Array, Ints
from treecdf.bases.learners.boosting import BoostedMean
from treecdf.bases.learners.polynomial import Polynomial

_NORMAL = 1.4826  # standard deviation over median distance from the median, of a normal distribution
_HEAVY = 1.65  # times that spread: errors whose root mean square is larger are tamed
_FARTHEST = 4.0  # times that spread: the distance from the first prediction at which outcomes are held
_OUTLIERS = 6.0  # interquartile ranges beyond the quartiles from which on an outcome is an outlier
_MOST_COLUMNS = 20  # covariates up to which the first prediction is quadratic
_SMALLEST_ERROR = 0.01  # of the spread of errors: what is smaller counts as this in the mean of log errors
_LOOKED_AT = 5000  # rows that a first look is taken at


def tame(x: Array, y: Array, weight: Array, fold: Ints, rng: np.random.Generator) -> Array:
    """The outcomes (n,), far-off ones held at some distance from a first out-of-fold prediction.

    With errors of usual tails they are returned as they are. What is held back here is for the mean learners alone: the
    likelihood, and so scales and tails, always sees the outcomes themselves.
    """
    few = slice(None) if len(y) <= _LOOKED_AT else np.sort(rng.permutation(len(y))[:_LOOKED_AT])
    quadratic = Polynomial(2 if x.shape[1] <= _MOST_COLUMNS else 1)
    guess = _first_guess(quadratic, x[few], y[few], weight[few], fold[few], rng)
    if not _is_heavy(y[few] - guess, weight[few]):
        return y
    trees = BoostedMean(4, rate=0.2, max_rounds=100, n_bins=64)
    guesses = [_first_guess(learner, x, y, weight, fold, rng) for learner in (quadratic, trees)]
    guess = min(guesses, key=lambda guess: _spread(y - guess, weight))
    # Errors that differ from place to place are not heavy tails.
    error = y - guess
    smallest = _SMALLEST_ERROR * _spread(error, weight)
    if smallest == 0:
        return y
    unit = np.exp(_first_guess(trees, x, np.log(np.maximum(np.abs(error), smallest)), weight, fold, rng))
    if not _is_heavy(error / unit, weight):
        return y
    farthest = _FARTHEST * _spread(error / unit, weight) * unit
    return np.where(np.abs(error) <= farthest, y, guess + np.sign(error) * farthest)


def hold_outliers(y: Array) -> Array:
    """Outcomes y (n,) with those far beyond the quartiles held: the mean is not learnt from outliers.

    Of normal outcomes one in 1e18 is held.
    """
    low, high = np.quantile(y, [0.25, 0.75])
    reach = _OUTLIERS * (high - low)
    return np.clip(y, low - reach, high + reach) if reach > 0 else y


def _first_guess(
    learner: Polynomial | BoostedMean, x: Array, y: Array, weight: Array, fold: Ints, rng: np.random.Generator
) -> Array:
    """Out-of-fold predictions (n,) of outcomes of which outliers are held."""
    middle = weighted_quantile(y, weight, 0.5)
    unit = _spread(y - middle, weight) or 1.0
    return middle + unit * learner.cross_fit(x, hold_outliers((y - middle) / unit), weight, fold, rng)[1]


def _is_heavy(error: Array, weight: Array) -> bool:
    """Whether few rows have most of the squared errors (n,)."""
    limit = (_HEAVY * _spread(error, weight)) ** 2
    return bool(weight @ error**2 / weight.sum() > limit > 0)


def _spread(error: Array, weight: Array) -> float:
    """The standard deviation of a normal distribution with the same median distance from 0."""
    return _NORMAL * weighted_quantile(np.abs(error), weight, 0.5)
