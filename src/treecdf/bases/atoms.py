"""Values of the outcome that have a probability of their own, given x."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import log_softmax

from treecdf._common.typing import Array, Ints
from treecdf.bases.learners.boosting import BoostedScores, Boosting, boost
from treecdf.data.recording import _labels
from treecdf.data.scaling import Standardizer
from treecdf.data.table import Table

_N_FOLDS = 5


@dataclass(frozen=True)
class Atoms:
    """P(y = a | x) of each atom, and of none of them, by boosted trees of x."""

    values: Array  # (K,), ascending
    standardize: Standardizer
    scores: BoostedScores  # of no atom, then of each

    @staticmethod
    def fit(values: Array, table: Table, rng: np.random.Generator) -> Atoms:
        """From a table of one outcome; the number of trees comes from rows left out."""
        standardize = Standardizer.fit(table.x, table.weight)
        label = _labels(table.y[:, 0], values)
        n_labels = len(values) + 1
        share = np.bincount(label, table.weight, minlength=n_labels) + 0.5
        start = np.log(share / share.sum())

        def loss(scores: Array, rows: Ints) -> tuple[Array, Array, Array]:
            log_prob = log_softmax(scores, axis=1)
            prob = np.exp(log_prob)
            is_label = label[rows][:, None] == np.arange(n_labels)
            return -log_prob[is_label], prob - is_label, prob * (1 - prob) + 1e-3

        fold = rng.permutation(len(table)) % min(_N_FOLDS, len(table))
        settings = Boosting(max_depth=3, rate=0.1, max_rounds=400, subsample=0.7, n_bins=64)
        scores, _ = boost(loss, standardize(table.x), table.weight, start, fold, settings, rng)
        return Atoms(values, standardize, scores)

    def log_prob(self, x: Array) -> Array:
        """Log probabilities (n, 1 + K) of no atom and of each."""
        return np.asarray(log_softmax(self.scores(self.standardize(x)), axis=1))
