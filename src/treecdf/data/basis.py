"""Features made of the covariates: what the split search tests, and what linear log-odds are linear in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from treecdf._common.typing import Array, Ints
from treecdf._kernels.rows import expand

# Knots of the hinges of a standardised covariate, by their number, most first
_KNOTS = {5: (-1.0, -0.5, 0.0, 0.5, 1.0), 3: (-0.7, 0.0, 0.7), 1: (0.0,), 0: ()}


@dataclass(frozen=True)
class Basis:
    """Feature i is max(x[source[i]], knot[i]) ** power[i]; a knot of -inf and a power of 1 are x itself."""

    source: Ints
    knot: Array
    power: Ints
    ridge: float = 1.0  # penalty of the features' slopes in the score test
    # Splits that the score test on these features likes best; they are fitted, and the best of them is kept. The test
    # knows neither strong effects nor interactions well; one covariate leaves it little to get wrong.
    n_candidates: int = 1

    @staticmethod
    @cache
    def empty() -> Basis:
        """No features: the split search uses only the shares of the rows on either side of a cut."""
        return Basis(np.empty(0, np.int64), np.empty(0), np.empty(0, np.int64))

    @staticmethod
    def linear(q: int, ridge: float = 1.0) -> Basis:
        """The q covariates themselves."""
        return _each_covariate(q, (-np.inf,), (1,), ridge)

    @staticmethod
    def hinges(q: int, ridge: float = 1.0, max_width: float = np.inf) -> Basis:
        """The covariates and five hinges of each, or fewer, so that there are at most max_width features."""
        knots = next((_KNOTS[count] for count in _KNOTS if q * (1 + count) <= max_width), ())
        return _each_covariate(q, (-np.inf, *knots), (1,) * (1 + len(knots)), ridge)

    @staticmethod
    def cubic(q: int, ridge: float = 1.0) -> Basis:
        """The covariates, their squares and cubes."""
        return _each_covariate(q, (-np.inf,) * 3, (1, 2, 3), ridge)

    def __len__(self) -> int:
        return len(self.source)

    @property
    def arrays(self) -> tuple[Ints, Array, Ints]:
        """Source, knot and power (p,) of the features, as kernels take them."""
        return self.source, self.knot, self.power

    def take(self, places: Ints) -> Basis:
        """The basis of some of the features."""
        return replace(self, source=self.source[places], knot=self.knot[places], power=self.power[places])

    def has_features_of(self, other: Basis) -> bool:
        """Whether both make the same features."""
        return self is other or all(map(np.array_equal, self.arrays, other.arrays))

    def __call__(self, x: Array) -> Array:
        """The features (n, p) of covariates x (n, q)."""
        features = np.empty((len(x), len(self)))
        expand(x, *self.arrays, features)
        return features


@cache
def _each_covariate(q: int, knots: tuple[float, ...], powers: tuple[int, ...], ridge: float) -> Basis:
    """The same knots and powers for every covariate."""
    source = np.repeat(np.arange(q), len(knots))
    return Basis(source, np.tile(knots, q), np.tile(powers, q), ridge, n_candidates=1 if q == 1 else 3)


# The features that log-odds may be linear in, by name; trees remember them by their place in this table.
FEATURE_BASES: dict[str, Callable[..., Basis]] = {"linear": Basis.linear, "hinges": Basis.hinges, "cubic": Basis.cubic}
