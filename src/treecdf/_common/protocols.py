"""The methods that are used of objects that users pass: frames, scikit-learn estimators, seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

# What users may pass as `random_state`.
Seed = (
    int
    | Sequence[int]
    | NDArray[np.integer]
    | np.random.SeedSequence
    | np.random.BitGenerator
    | np.random.Generator
    | np.random.RandomState
    | None
)


class Frame(Protocol):
    """A table with named columns: a pandas or polars DataFrame, or a similar class."""

    @property
    def columns(self) -> Iterable[Any]:
        """Names of the columns, in order."""
        ...

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        ...

    def __getitem__(self, names: Any) -> Any:
        """A column by its name, or a frame of some columns by a list of names."""
        ...


class SklearnEstimator(Protocol):
    """The methods that all scikit-learn estimators have."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name."""
        ...

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters."""
        ...


class Regressor(SklearnEstimator, Protocol):
    """A scikit-learn regressor."""

    def fit(self, X: ArrayLike, y: ArrayLike, **how: ArrayLike) -> Self:
        """Learn from rows X (n, q) and outcomes y (n,), with `sample_weight` (n,) if it takes that."""
        ...

    def predict(self, X: ArrayLike) -> ArrayLike:
        """Predictions (n,) or (n, 1)."""
        ...


class Classifier(SklearnEstimator, Protocol):
    """A scikit-learn classifier with probabilities."""

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from rows."""
        ...

    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Probabilities (n, classes)."""
        ...


class Clusterer(SklearnEstimator, Protocol):
    """A scikit-learn clusterer that can say to which cluster new rows belong."""

    def fit(self, X: ArrayLike) -> Self:
        """Find clusters."""
        ...

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Labels (n,) of clusters."""
        ...
