"""Ten truths to be asked where there are no rows, and the lines on which they are asked."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.stats import gamma, norm, t

from benchmarks.honest.truths import Truth, located

DISTANCES = (1.5, 2.0, 3.0, 5.0)  # times the distance of the data's edge from the centre
INSIDE = np.linspace(0.0, 1.0, 21)  # the same, where there are rows
RANDOM_LINES = 6  # besides those along the axes


@dataclass(frozen=True)
class Outside:
    """A truth whose covariates fill the image of the unit ball under `shape` (q, q), and nothing else."""

    truth: Truth
    shape: np.ndarray

    def lines(self, rng: np.random.Generator) -> np.ndarray:
        """Points (lines, q) of the data's edge, to which lines go from the centre; both ways along each axis."""
        q = len(self.shape)
        axes = np.vstack([np.eye(q), -np.eye(q)])
        directions = axes if q == 1 else np.vstack([axes, rng.normal(size=(RANDOM_LINES, q))])
        inverse = np.linalg.solve(self.shape, directions.T).T
        return directions / np.linalg.norm(inverse, axis=1, keepdims=True)


def _outside(location: Callable, scale: Callable | float, noise=None, shape: np.ndarray | None = None) -> Outside:
    shape = np.eye(1) if shape is None else shape

    def covariates(n, rng):
        q = len(shape)
        direction = rng.normal(size=(n, q))
        radius = rng.random((n, 1)) ** (1 / q)
        return radius * direction / np.linalg.norm(direction, axis=1, keepdims=True) @ shape.T

    return Outside(located(covariates, location, scale, noise or norm()), shape)


def _five(x):
    return np.sin(3 * x[:, 0]) + x[:, 1] ** 2 + x[:, 2]


OUTSIDE = {
    "square": _outside(lambda x: 3 * x[:, 0] ** 2, 0.28),
    "line": _outside(lambda x: 2 * x[:, 0], 0.3),
    "sine": _outside(lambda x: np.sin(4 * x[:, 0]), 0.2),
    "step": _outside(lambda x: np.where(x[:, 0] > 0, 1.0, -1.0), 0.3),
    "scales": _outside(lambda x: x[:, 0], lambda x: 0.3 * np.exp(0.8 * x[:, 0])),
    "t3": _outside(lambda x: x[:, 0], 0.3, t(3)),
    "skewed": _outside(lambda x: x[:, 0] + x[:, 1], 0.3, gamma(2, loc=-2), np.eye(2)),
    "product": _outside(lambda x: 4 * x[:, 0] * x[:, 1], 0.3, shape=np.eye(2)),
    "five": _outside(_five, 0.3, shape=np.eye(5)),
    # Two columns that agree to a twentieth: most lines leave the data at once
    "correlated": _outside(lambda x: x[:, 0] + x[:, 1], 0.3, shape=np.array([[1.0, 0.05], [1.0, -0.05]])),
}
