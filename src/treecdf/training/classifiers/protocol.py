"""The interface between the grower of trees and the node classifiers."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from treecdf._common.typing import Array, Bools, Ints
from treecdf.data.basis import Basis
from treecdf.training.sources.operations import Sums
from treecdf.training.sources.rows import Rows

SEARCH_WIDTH = 64  # most features of the score test, for classifiers whose own features are unknown
# Parameters of node classifiers, one row for each node: numbers for kernels, or Python objects in one column.
Theta = NDArray[np.float64] | NDArray[np.object_]


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
    """One split for each of the k nodes of a level."""

    axis: Ints  # (k,) the outcome that is split
    cut: Array  # (k,) rows with an outcome up to here go left
    left_share: Array  # (k,) share of the box left of the cut
    left_weight: Array  # (k,) sum of the weights of the rows left of the cut
    right_weight: Array  # (k,) the same right of it
    gradient: Array  # (k, p) of the likelihood by the slopes on the search features, at zero slopes
    moments: Moments
    # (p,) places of the features in the classifier's search basis, ascending; None if they are the whole basis. A wide
    # table's score test looks at some features only.
    features: Ints | None = None
    # Whether other splits of the same nodes are fitted too. If not, nobody asks for the likelihood of this one.
    has_rivals: bool = True

    @property
    def weight(self) -> Array:
        """Sum of the weights of each node's rows, (k,)."""
        return self.left_weight + self.right_weight

    @property
    def share(self) -> Array:
        """Share of each node's weight that is left, (k,), half a row away from 0 and 1: a child may be empty."""
        return clipped_share(self.left_weight, self.weight)

    @property
    def has_both(self) -> Bools:
        """Whether each node has rows on both sides, (k,); otherwise there is nothing to learn at the node."""
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

    theta: Theta  # (k, P)
    log_lik: Array  # (k,) binary log-likelihood of the training rows; NaN if it would take a pass and has no rivals


Passes = Generator[Sums, list[Array], NodeFits]  # asks for sums over all rows, gets them, and returns what was fitted


@runtime_checkable
class NodeClassifier(Protocol):
    """A classifier of the nodes of trees; q is the number of covariates.

    An instance holds settings only. What is learnt at the nodes of a tree is returned by `fit` as `theta`.
    """

    def kind(self, q: int) -> tuple[int, ...]:
        """The kind of the parameters for kernels: LINEAR, NETWORK, TREES or PYTHON, then sizes."""
        ...

    def search_basis(self, q: int) -> Basis:
        """Features of the covariates by which the score test judges how well a split can be predicted."""
        ...

    def fit_basis(self, q: int) -> Basis:
        """Features of the covariates that `fit` gets."""
        ...

    def fit(self, rows: Rows, splits: Splits, rng: np.random.Generator) -> NodeFits:
        """Fitted classifiers of all k nodes of a level; the rows are labelled with their nodes and sides."""
        ...


@runtime_checkable
class FittedInPasses(Protocol):
    """A node classifier that asks for its sums: those for several splits then come from the same passes.

    Its `fit` is not called: who changes one of the two in a subclass changes `passes`.
    """

    def passes(self, rows: Rows, splits: Splits, rng: np.random.Generator, labels: int = 0) -> Passes:
        """As `fit`, where the rows have labels of this number."""
        ...


def fit_together(rows: Rows, fits: Sequence[Passes]) -> list[NodeFits]:
    """What each returns; every pass has the sums for all that are not ready yet."""
    ready: dict[int, NodeFits] = {}
    answers: dict[int, list[Array] | None] = dict.fromkeys(range(len(fits)))
    while answers:
        wanted: dict[int, Sums] = {}
        for k, sums in answers.items():
            try:
                wanted[k] = next(fits[k]) if sums is None else fits[k].send(sums)
            except StopIteration as end:
                ready[k] = end.value
        answers = dict(zip(wanted, rows.sum_together(list(wanted.values())), strict=True)) if wanted else {}
    return [ready[k] for k in range(len(fits))]
