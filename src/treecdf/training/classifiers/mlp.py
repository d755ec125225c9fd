"""A small ReLU network as node classifier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.special import logit

from treecdf._common.typing import Array
from treecdf._common.validation import check_setting, is_int, is_real
from treecdf._kernels.lbfgs import LINE, MEMORY, lbfgs_advance
from treecdf._kernels.losses import mlp_loss
from treecdf._kernels.transform import NETWORK
from treecdf.data.basis import Basis
from treecdf.training.classifiers.protocol import SEARCH_WIDTH, NodeFits, Passes, Splits, fit_together, share_log_lik
from treecdf.training.sources.operations import Sums
from treecdf.training.sources.rows import Rows


@dataclass(frozen=True)
class MLP:
    """A node classifier that is a small network with ReLU units, trained by L-BFGS.

    Parameters
    ----------
    hidden : tuple of int, default (4, 4)
        Sizes of the hidden layers.
    alpha : float, default 1.0
        L2 penalty of the weights, as in scikit-learn; the biases have none.
    tol : float, default 1e-4
        Training of a node ends when no derivative of its mean loss is larger.
    max_iter : int, default 150
        Most L-BFGS steps.

    Examples
    --------
    >>> from treecdf import MLP, Stage
    >>> Stage(MLP(hidden=(8,)), max_depth=2).classifier.hidden
    (8,)
    """

    hidden: tuple[int, ...] = (4, 4)
    alpha: float = 1.0
    tol: float = 1e-4
    max_iter: int = 150

    def __post_init__(self) -> None:
        sizes = self.hidden if isinstance(self.hidden, Sequence) else ()
        if not sizes or not all(is_int(size) and size >= 1 for size in sizes):
            raise ValueError(f"Expected hidden to be a tuple of layer sizes of at least 1; got {self.hidden!r}.")
        object.__setattr__(self, "hidden", tuple(int(size) for size in sizes))
        check_setting("alpha", self.alpha, is_real(self.alpha) and self.alpha >= 0, "a number of at least 0")
        check_setting("tol", self.tol, is_real(self.tol) and self.tol >= 0, "a number of at least 0")
        check_setting(
            "max_iter", self.max_iter, is_int(self.max_iter) and self.max_iter >= 0, "an integer of at least 0"
        )

    def kind(self, q: int) -> tuple[int, ...]:
        """(NETWORK, sizes of the hidden layers)."""
        return NETWORK, *self.hidden

    def search_basis(self, q: int) -> Basis:
        """Hinges of the covariates: after a logistic stage a linear score test would see noise only."""
        return Basis.hinges(q, max_width=SEARCH_WIDTH)

    def fit_basis(self, q: int) -> Basis:
        """The q covariates themselves."""
        return Basis.linear(q)

    def fit(self, rows: Rows, splits: Splits, rng: np.random.Generator) -> NodeFits:
        """Weights and biases theta (k, P), by L-BFGS from random weights around the share."""
        return fit_together(rows, [self.passes(rows, splits, rng)])[0]

    def passes(self, rows: Rows, splits: Splits, rng: np.random.Generator, labels: int = 0) -> Passes:
        """As `fit`, where the rows have labels of this number."""
        point, penalty = self._start(rows.n_covariates, splits, rng)
        k, n_parameters = point.shape
        trial = point.copy()
        line = np.zeros(k, LINE)
        gradient, direction = np.zeros_like(point), np.zeros_like(point)
        steps, changes = np.zeros((2, k, MEMORY, n_parameters))
        hidden = np.array(self.hidden)
        active, weight = splits.has_both.astype(np.int64), splits.weight
        while active.any():
            sums = yield Sums(mlp_loss, "node", (active, trial, hidden), [(k,), (k, n_parameters)], labels)
            lbfgs_advance(
                active, line, point, gradient, direction, trial, steps, changes,
                *sums, penalty, weight, self.tol, self.max_iter,
            )  # fmt: skip
        fitted = 0.5 * (point**2) @ penalty - weight * line["value"]
        return NodeFits(point, np.where(splits.has_both, fitted, share_log_lik(splits.left_weight, weight)))

    def _start(self, q: int, splits: Splits, rng: np.random.Generator) -> tuple[Array, Array]:
        """Starting parameters (k, P) and the penalty (P,) of each."""
        k, sizes = len(splits.axis), (q, *self.hidden, 1)
        layers, penalised = [], []
        for n_in, n_out in pairwise(sizes):
            bound = np.sqrt(6 / (n_in + n_out))
            layers.append(rng.uniform(-bound, bound, (k, n_out * (n_in + 1))))
            penalised += [1.0] * (n_out * n_in) + [0.0] * n_out
        theta = np.concatenate(layers, axis=1)
        theta[~splits.has_both] = 0.0
        theta[:, -1] = logit(splits.share)
        return theta, self.alpha * np.array(penalised)
