"""Probabilities, given x, of values of the outcome that have a probability of their own."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from scipy.special import log_softmax
from sklearn.exceptions import ConvergenceWarning

from treecdf._common.typing import Array, Ints
from treecdf.bases.learners.boosting import BoostedScores, BoostingSettings, Loss, boost_scores
from treecdf.data.recording import atom_labels
from treecdf.data.scaling import Standardizer
from treecdf.data.table import Table
from treecdf.data.units import draw_folds

_N_FOLDS = 5
# Log odds of atoms are boosted like log scales, at twice the rate. It was set in development; ADR 15 has the models.
_BOOSTING = BoostingSettings(max_depth=3, rate=0.1, max_rounds=400, subsample=0.7, n_bins=64)
_PRIOR_ROWS = 0.5  # rows that each label has before the first: none starts at probability 0
_NEVER = -1e4  # log odds of what is no atom, if training rows had nothing else
_SMALLEST_CURVATURE = 1e-3  # keeps Newton steps finite where a label is certain
_MOST_SLOPES = 2000  # of a logistic regression, to bound time
_WORTH_MORE = 2.0  # nats, all rows together, that trees on top of a logistic regression have to gain over trees alone


@dataclass(frozen=True)
class TiltedScores:
    """Scores that are linear in covariates, held at the ends of the training rows' range, plus those of trees."""

    slopes: Array  # (q, K)
    offset: Array  # (K,)
    ends: Array  # (2, q)
    trees: BoostedScores

    @property
    def start(self) -> Array:
        """Scores (K,) that the trees begin with."""
        return self.trees.start

    def __call__(self, x: Array) -> Array:
        """Scores (n, K) of covariates x (n, q); what is missing counts as the mean, which is 0."""
        return self.trees(x) + self.linear(x)

    def linear(self, x: Array) -> Array:
        """The linear part (n, K)."""
        held = np.clip(np.nan_to_num(x), *self.ends)
        return np.asarray(held @ self.slopes + self.offset)


@dataclass(frozen=True)
class Atoms:
    """P(y = a | x) of each atom a, and of none of them, by boosted trees of x, on a logistic regression if that helps.

    If training rows had nothing but atoms, what is no atom has probability 0.
    """

    values: Array  # (K,), ascending
    standardize: Standardizer
    scores: BoostedScores | TiltedScores  # log probabilities up to a constant: of no atom, then of each

    @staticmethod
    def fit(values: Array, table: Table, rng: np.random.Generator) -> Atoms:
        """Boosted from a table of one outcome whose atoms are `values` (K,), ascending; out-of-fold rows end it."""
        standardize = Standardizer.fit(table.x, table.weight)
        label = atom_labels(table.y[:, 0], values)
        n_labels = len(values) + 1
        count = np.bincount(label, table.weight, minlength=n_labels)
        start = np.log((count + _PRIOR_ROWS) / (count + _PRIOR_ROWS).sum())
        if count[0] == 0:
            start[0] = _NEVER

        def loss_beyond(linear: Array) -> Loss:
            def loss(scores: Array, rows: Ints) -> tuple[Array, Array, Array]:
                log_prob = log_softmax(scores + linear[rows], axis=1)
                prob = np.exp(log_prob)
                is_label = label[rows][:, None] == np.arange(n_labels)
                return -log_prob[is_label], prob - is_label, prob * (1 - prob) + _SMALLEST_CURVATURE

            return loss

        fold = draw_folds(table.unit, _N_FOLDS, rng)
        x, weight, everyone = standardize(table.x), table.weight, np.arange(len(label))
        loss = loss_beyond(np.zeros((len(label), n_labels)))
        scores, left_out = boost_scores(loss, x, weight, start, fold, _BOOSTING, rng)
        if x.shape[1] * n_labels <= _MOST_SLOPES:
            slopes, offset, linear = _cross_fit_linear(x, label, weight, start, fold)
            ends = np.array([x.min(axis=0), x.max(axis=0)])
            beyond = loss_beyond(linear)
            trees, rest = boost_scores(beyond, x, weight, np.zeros(n_labels), fold, _BOOSTING, rng)
            if weight @ (loss(left_out, everyone)[0] - beyond(rest, everyone)[0]) > _WORTH_MORE:
                return Atoms(values, standardize, TiltedScores(slopes, offset, ends, trees))
        return Atoms(values, standardize, scores)

    def log_prob(self, x: Array) -> Array:
        """Log probabilities (n, 1 + K) of no atom and of each, at covariates x (n, q)."""
        return np.asarray(log_softmax(self.scores(self.standardize(x)), axis=1))


def _cross_fit_linear(x: Array, label: Ints, weight: Array, start: Array, fold: Ints) -> tuple[Array, Array, Array]:
    """Slopes (q, K) and offset (K,) of a logistic regression on all rows, and out-of-fold scores (n, K)."""
    left_out = np.empty((len(x), len(start)))
    for f in range(int(fold.max()) + 1):
        own = fold == f
        slopes, offset = _fit_linear(x[~own], label[~own], weight[~own], start)
        left_out[own] = x[own] @ slopes + offset
    return *_fit_linear(x, label, weight, start), left_out


def _fit_linear(x: Array, label: Ints, weight: Array, start: Array) -> tuple[Array, Array]:
    """Slopes (q, K) and offset (K,) of log probabilities up to a constant; labels without rows keep their `start`."""
    slopes, offset = np.zeros((x.shape[1], len(start))), start.copy()
    present = np.unique(label)
    if len(present) > 1:
        # Late: its import takes a tenth of a second, and most fits go without it.
        from sklearn.linear_model import LogisticRegression

        with warnings.catch_warnings():
            # To end at max_iter is no failure: out-of-fold rows say whether it helps.
            warnings.simplefilter("ignore", ConvergenceWarning)
            fitted = LogisticRegression(max_iter=200).fit(x, label, sample_weight=weight)
        if len(present) == 2:
            slopes[:, present[1]], offset[present] = fitted.coef_[0], [0.0, fitted.intercept_[0]]
        else:
            slopes[:, present], offset[present] = fitted.coef_.T, fitted.intercept_
        absent = np.setdiff1d(np.arange(len(start)), present)
        offset[absent] = start[absent] + float(np.mean(offset[present] - start[present]))
    return slopes, offset
