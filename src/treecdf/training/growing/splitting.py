"""Where to split the nodes of a level: the paper's optimalSplit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treecdf._common.typing import Array, Ints
from treecdf._kernels.rows import search_sums
from treecdf.data.basis import Basis
from treecdf.training.classifiers.protocol import (
    FittedInPasses,
    Moments,
    NodeClassifier,
    NodeFits,
    Splits,
    clipped_share,
    fit_together,
    share_log_lik,
    uniform_log_lik,
)
from treecdf.training.growing.screening import screen
from treecdf.training.sources.rows import Rows

_MOST_TOGETHER = 4  # splits of a node that are fitted side by side: rows have so many labels at a time
MIN_WIDTH = 2.0**-40  # narrower boxes leave no room for distinct float64 cuts


@dataclass(frozen=True)
class Candidates:
    """All cuts of all axes of the nodes of a level, with the sums from which they are scored."""

    cuts: Array  # (k, d, s)
    left_share: Array  # (s,) the same for every box
    left: Array  # (k, d, s) weight left of the cut
    right: Array  # (k, d, s) weight right of it; exactly zero where there is no row
    gradient: Array  # (k, d, s, p) of the logistic likelihood by the slopes, at zero slopes
    balance: Array  # (k, d, s) C_A(T): volume term and penalty; -inf where the box is too narrow
    moments: Moments
    features: Ints | None  # (p,) places of the tested features in the search basis; None for all of them

    @staticmethod
    def collect(
        rows: Rows, lower: Array, upper: Array, fractions: Array, eta: float, basis: Basis, penalty: str = "node"
    ) -> Candidates:
        """The candidates of all nodes, from one pass over the rows, or a few more if there are many features.

        lower, upper (k, d) are the nodes' boxes; cuts stand at `fractions` (s,) of their widths. Their distance from
        the middle costs eta, once a node or once a row as `penalty` says.
        """
        width = (upper - lower)[:, :, None]
        cuts = lower[:, :, None] + width * fractions
        features = screen(rows, cuts, basis)
        if features is not None:
            basis = basis.take(features)
        (k, d, s), p = cuts.shape, len(basis)
        count, total, moment = rows.sum(
            search_sums,
            "level",
            (*basis.arrays, cuts),
            [(k, d, s + 1), (k, d, s + 1, p), (k, p + 1, p + 1)],
        )
        left = np.cumsum(count, axis=2)[:, :, :-1]
        right = np.cumsum(count[:, :, ::-1], axis=2)[:, :, ::-1][:, :, 1:]
        weight = moment[:, -1, -1][:, None, None]
        cost = eta * (weight if penalty == "row" else 1.0)
        balance = -uniform_log_lik(left, weight, fractions) - cost * width * np.abs(fractions - 0.5)
        balance[np.broadcast_to(width < MIN_WIDTH, balance.shape)] = -np.inf
        moments = Moments.from_sums(moment)
        gradient = np.cumsum(total, axis=2)[:, :, :-1] - left[..., None] * moments.mean[:, None, None, :]
        return Candidates(cuts, fractions, left, right, gradient, balance, moments, features)

    def pick(self, index: Ints, has_rivals: bool = True) -> Splits:
        """The splits with index (k,), one for each node; candidates are counted axis by axis."""
        axis, cut = np.divmod(index, self.cuts.shape[2])
        node = np.arange(len(index))
        left = self.left[node, axis, cut]
        return Splits(
            axis=axis,
            cut=self.cuts[node, axis, cut],
            left_share=self.left_share[cut],
            left_weight=left,
            right_weight=self.right[node, axis, cut],
            gradient=self.gradient[node, axis, cut],
            moments=self.moments,
            features=self.features,
            has_rivals=has_rivals,
        )


def score_test(candidates: Candidates, ridge: float) -> Array:
    """Approximate objective (k, d, s) of every candidate without fitting any classifier.

    With g the gradient of the penalised logistic likelihood at zero slopes and v = p (1 - p), the likelihood gains
    about g' (v M + ridge I)^-1 g / 2, M the scatter of the features. M's eigenvectors serve every candidate.
    """
    m = candidates.moments
    left, weight = candidates.left, m.weight[:, None, None]
    k, d, s, p = candidates.gradient.shape
    rotated = (candidates.gradient.reshape(k, d * s, p) @ m.rotation).reshape(k, d, s, p)
    share = clipped_share(left, weight)
    variance = (share * (1 - share))[..., None] * m.scatter[:, None, None, :]
    gain = 0.5 * (rotated**2 / (variance + ridge)).sum(axis=-1)
    # The approximation has no ceiling, a likelihood of labels has: zero.
    return np.minimum(share_log_lik(left, weight) + gain, 0.0) + candidates.balance


def promising(candidates: Candidates, basis: Basis) -> Ints:
    """Numbers (basis.n_candidates, k) of the candidates of each node with the best score test, best first."""
    score = score_test(candidates, basis.ridge).reshape(len(candidates.cuts), -1)
    return np.argsort(-score, axis=1, kind="stable")[:, : basis.n_candidates].T


def fit_best(
    candidates: Candidates,
    choices: Ints,
    rows: Rows,
    classifier: NodeClassifier,
    rng: np.random.Generator,
) -> tuple[Splits, NodeFits]:
    """Fit the classifier for each of the choices (count, k) of a node; keep the best split and its classifier."""
    if len(choices) == 1:
        (fits,) = _fitted(candidates, choices, rows, classifier, rng)
        return candidates.pick(choices[0]), fits
    best = choices[0].copy()
    objective, log_lik = np.full(len(best), -np.inf), np.full(len(best), -np.inf)
    theta: NDArray = np.empty(0)
    balance = candidates.balance.reshape(len(best), -1)
    for index, fits in zip(choices, _fitted(candidates, choices, rows, classifier, rng), strict=True):
        reached = fits.log_lik + balance[np.arange(len(index)), index]
        if not len(theta):  # its type and width are known only now
            theta = fits.theta.copy()
        better = reached > objective
        objective[better], best[better] = reached[better], index[better]
        theta[better], log_lik[better] = fits.theta[better], fits.log_lik[better]
    return candidates.pick(best), NodeFits(theta, log_lik)


def _fitted(
    candidates: Candidates, choices: Ints, rows: Rows, classifier: NodeClassifier, rng: np.random.Generator
) -> Iterator[NodeFits]:
    """The classifiers of each of the choices (count, k); a few choices at a time share their passes if they can."""
    basis = classifier.fit_basis(rows.n_covariates)
    # Asked once: the question takes as long as a small pass.
    in_passes = classifier if isinstance(classifier, FittedInPasses) else None
    together = 1 if in_passes is None else _MOST_TOGETHER
    for first in range(0, len(choices), together):
        several = [candidates.pick(index, len(choices) > 1) for index in choices[first : first + together]]
        for labels, splits in enumerate(several):
            rows.arrange(splits.axis, splits.cut, basis, labels)
        if in_passes is not None:
            fits = [in_passes.passes(rows, splits, rng, labels) for labels, splits in enumerate(several)]
            yield from fit_together(rows, fits)
        else:
            yield classifier.fit(rows, several[0], rng)
