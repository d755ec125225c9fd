"""A small ReLU network as node classifier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from treecdf._kernels.losses import mlp_loss
from treecdf.classifiers.minimise import minimise
from treecdf.classifiers.protocol import Basis, NodeFits, Splits
from treecdf.rows import Rows

Array = NDArray[np.float64]


@dataclass(frozen=True)
class MLP:
    """Multi-layer perceptron with ReLU units, trained by L-BFGS.

    hidden: sizes of the hidden layers. alpha: L2 penalty of the weights, as in scikit-learn (the biases are
    free). tol: largest derivative of the mean loss at the end.
    """

    hidden: tuple[int, ...] = (4, 4)
    alpha: float = 1.0
    tol: float = 1e-4
    max_iter: int = 150

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(int(size) for size in self.hidden))
        if not self.hidden or min(self.hidden) < 1:
            raise ValueError(f"Expected hidden to be layer sizes of at least 1; got {self.hidden}.")

    def basis(self, q: int) -> Basis:
        """Hinges: after a logistic stage a linear score test would see noise only (docs/adr/0004)."""
        return Basis.hinges(q)

    def fit(self, rows: Rows, splits: Splits, rng: np.random.Generator) -> NodeFits:
        """Start at random weights around the share."""
        k, sizes = len(splits.axis), (rows.n_covariates, *self.hidden, 1)
        layers, penalised = [], []
        for n_in, n_out in zip(sizes[:-1], sizes[1:], strict=True):
            bound = np.sqrt(6 / (n_in + n_out))
            layers.append(rng.uniform(-bound, bound, (k, n_out * (n_in + 1))))
            penalised += [1.0] * (n_out * n_in) + [0.0] * n_out
        theta = np.concatenate(layers, axis=1)
        theta[~splits.has_both] = 0.0
        theta[:, -1] = logit(splits.share)
        return minimise(
            rows,
            splits,
            mlp_loss,
            theta,
            self.alpha * np.array(penalised),
            extra=(np.array(self.hidden),),
            tol=self.tol,
            max_iter=self.max_iter,
        )

    def importance(self, theta: NDArray[Any], q: int) -> Array:
        """Weights of the first layer."""
        first = theta[:, : self.hidden[0] * q].reshape(len(theta), self.hidden[0], q)
        return np.sqrt((first**2).sum(axis=1))
