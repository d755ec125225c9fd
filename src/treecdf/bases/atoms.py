"""Values of the outcome that have a probability of their own, given x."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import log_softmax

from treecdf._common.typing import Array, Ints
from treecdf.bases.learners.boosting import BoostedScores, BoostingSettings, boost_scores
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


@dataclass(frozen=True)
class Atoms:
    """P(y = a | x) of each atom a, and of none of them, by boosted trees of x.

    If training rows had nothing but atoms, what is no atom has probability 0.
    """

    values: Array  # (K,), ascending
    standardize: Standardizer
    scores: BoostedScores  # log probabilities up to a constant: of no atom, then of each

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

        def loss(scores: Array, rows: Ints) -> tuple[Array, Array, Array]:
            log_prob = log_softmax(scores, axis=1)
            prob = np.exp(log_prob)
            is_label = label[rows][:, None] == np.arange(n_labels)
            return -log_prob[is_label], prob - is_label, prob * (1 - prob) + _SMALLEST_CURVATURE

        fold = draw_folds(table.unit, _N_FOLDS, rng)
        scores, _ = boost_scores(loss, standardize(table.x), table.weight, start, fold, _BOOSTING, rng)
        return Atoms(values, standardize, scores)

    def log_prob(self, x: Array) -> Array:
        """Log probabilities (n, 1 + K) of no atom and of each, at covariates x (n, q)."""
        return np.asarray(log_softmax(self.scores(self.standardize(x)), axis=1))
