"""What the grower and a node classifier tell each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from treecdf._common.typing import Array, Ints
from treecdf.data.basis import Basis
from treecdf.training.sources.rows import Rows

SEARCH_WIDTH = 64  # features of the score test, where a classifier does not say which


@dataclass(frozen=True)
class Moments:
    """Mean and spectral decomposition of the scatter matrix of the search features, for each node."""

    weight: Array  # (k,)
    mean: Array  # (k, p)
    scatter: Array  # (k, p) eigenvalues
    rotation: Array  # (k, p, p) eigenvectors, in columns

    @staticmethod
    def from_sums(moment: Array) -> Moments:
        """From the lower triangle of the second moments of (features, 1), (k, p + 1, p + 1)."""
        weight = moment[:, -1, -1]
        mean = moment[:, -1, :-1] / weight[:, None]
        centred = moment[:, :-1, :-1] - weight[:, None, None] * mean[:, :, None] * mean[:, None, :]
        values, vectors = np.linalg.eigh(centred, UPLO="L")
        return Moments(weight, mean, np.maximum(values, 0.0), vectors)


@dataclass(frozen=True)
class Splits:
    """One split for each node of a level."""

    axis: Ints
    cut: Array
    left_share: Array
    left_weight: Array
    right_weight: Array
    gradient: Array  # (k, p) of the likelihood by the slopes on the search features, at zero slopes
    moments: Moments

    @property
    def weight(self) -> Array:
        """Weight of the node's rows."""
        return self.left_weight + self.right_weight

    @property
    def share(self) -> Array:
        """Left share of the rows, kept half a row away from 0 and 1 (a child may be empty)."""
        return clipped_share(self.left_weight, self.weight)

    @property
    def has_both(self) -> NDArray[np.bool_]:
        """Whether there are rows on both sides, so that there is something to learn."""
        return (self.left_weight > 0) & (self.right_weight > 0)


def clipped_share(left: Array, weight: Array) -> Array:
    """left / weight, kept half a row away from 0 and 1."""
    margin = np.minimum(0.5 / weight, 0.5)
    return np.clip(left / weight, margin, 1 - margin)


def share_log_lik(left: Array, weight: Array) -> Array:
    """Binary log-likelihood of a constant probability equal to the (clipped) share."""
    share = clipped_share(left, weight)
    return xlogy(left, share) + xlogy(weight - left, 1 - share)


def uniform_log_lik(left: Array, weight: Array, left_share: Array) -> Array:
    """Binary log-likelihood of the uniform density, -C_A(T) without the penalty."""
    return xlogy(left, left_share) + xlogy(weight - left, 1 - left_share)


@dataclass(frozen=True)
class NodeFits:
    """Fitted classifiers of the nodes of a level."""

    theta: NDArray[Any]  # (k, P)
    log_lik: Array  # (k,) binary log-likelihood of the training rows


class NodeClassifier(Protocol):
    """A kind of node classifier; its own settings are all it holds."""

    def kind(self, q: int) -> tuple[int, ...]:
        """What the transform's kernels must know to evaluate the packed parameters; the kind comes first."""
        ...

    def search_basis(self, q: int) -> Basis:
        """Features with which the score test looks for splits this classifier can use."""
        ...

    def fit_basis(self, q: int) -> Basis:
        """Features of the arranged rows that `fit` gets."""
        ...

    def fit(self, rows: Rows, splits: Splits, rng: np.random.Generator) -> NodeFits:
        """Fit all nodes of a level; the rows are arranged with the splits' labels."""
        ...

    def importance(self, theta: NDArray[Any], q: int) -> Array:
        """How much each covariate moves each node's log-odds, (nodes, q), up to a factor per node."""
        ...
