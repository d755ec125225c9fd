"""Regions of the covariate space, in each of which the members of a mixture have their own weights."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import KDTree
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from treecdf._common.typing import Array, Ints
from treecdf.data.scaling import Standardizer

_LARGEST_HDBSCAN = 10_000  # rows it is shown at most; its time grows faster than the rows


class Clusterer(Protocol):
    """The methods that are used of a scikit-learn clusterer."""

    def fit(self, X: ArrayLike) -> Self:
        """Find clusters of the rows X (n, q)."""
        ...

    def predict(self, X: ArrayLike) -> ArrayLike:
        """Labels (n,) of the clusters that rows X (n, q) belong to."""
        ...


class Regions(Protocol):
    """A partition of the covariate space."""

    @property
    def n_regions(self) -> int:
        """Number of regions."""
        ...

    def __call__(self, x: Array) -> Ints:
        """Region 0 .. n_regions - 1 of each row of x (n, q); n_regions for rows in no region of the training rows."""
        ...


@dataclass(frozen=True)
class NearestPoint:
    """A row belongs to the region of the nearest reference point of standardised covariates."""

    standardize: Standardizer
    points: Array  # (k, q)
    region: Ints  # (k,)

    @property
    def n_regions(self) -> int:
        """Number of regions."""
        return int(self.region.max()) + 1

    def __call__(self, x: Array) -> Ints:
        """Region of each row of x (n, q)."""
        return self.region[KDTree(self.points).query(np.nan_to_num(self.standardize(x)))[1]]


@dataclass(frozen=True)
class Clusters:
    """The clusters that a scikit-learn clusterer predicts; it sees covariates in the user's own unit."""

    clusterer: Clusterer
    labels: NDArray[Any]  # sorted labels of the training rows

    @property
    def n_regions(self) -> int:
        """Number of regions."""
        return len(self.labels)

    def __call__(self, x: Array) -> Ints:
        """Region of each row of x (n, q)."""
        predicted = _predict(self.clusterer, x)
        place = np.minimum(np.searchsorted(self.labels, predicted), len(self.labels) - 1)
        return np.where(self.labels[place] == predicted, place, len(self.labels))


def fit_regions(how: int | str | Clusterer, x: Array, weight: Array, rng: np.random.Generator) -> Regions:
    """A partition by k-means with `how` regions, by "hdbscan", or by a scikit-learn clusterer with `predict`.

    A clusterer that is not fitted yet is cloned and fitted, with a seed from `rng` if it has none.
    """
    if isinstance(how, (int, np.integer, str)):
        standardize = Standardizer.fit(x, weight)
        z = standardize(x)
        with threadpool_limits(1):  # so that sums are taken in one order
            found = _by_density(z, rng) if isinstance(how, str) else _by_means(int(how), z, weight, rng)
        return NearestPoint(standardize, *found)
    clusterer = how
    try:
        check_is_fitted(clusterer)
    except NotFittedError:
        fresh = clone(clusterer)
        if fresh.get_params().get("random_state", 0) is None:
            fresh.set_params(random_state=int(rng.integers(2**31)))
        clusterer = fresh.fit(x)
    return Clusters(clusterer, np.unique(_predict(clusterer, x)))


def _predict(clusterer: Clusterer, x: Array) -> NDArray[Any]:
    """Labels (n,) of rows x (n, q), of whatever dtype the clusterer has."""
    with warnings.catch_warnings():  # it may have been fitted to a frame; the columns' names were checked on the way in
        warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
        return np.asarray(clusterer.predict(np.nan_to_num(x)))


def _by_means(k: int, z: Array, weight: Array, rng: np.random.Generator) -> tuple[Array, Ints]:
    """The centres (k, q) of k-means of rows z (n, q), and their numbers."""
    # Late: its import takes a tenth of a second, and most fits go without it.
    from sklearn.cluster import KMeans

    means = KMeans(min(k, len(z)), n_init=4, random_state=int(rng.integers(2**31)))
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", ConvergenceWarning
        )  # only for fewer distinct rows than regions: these stay empty
        means.fit(z, sample_weight=weight)
    used = np.unique(means.labels_)
    return means.cluster_centers_[used], np.arange(len(used), dtype=np.int64)


def _by_density(z: Array, rng: np.random.Generator) -> tuple[Array, Ints]:
    """The rows in clusters of HDBSCAN, and the numbers of their clusters.

    Rows that it calls noise belong to the nearest cluster, as new rows do. One cluster if it finds none.
    """
    if len(z) > _LARGEST_HDBSCAN:
        z = z[np.sort(rng.choice(len(z), _LARGEST_HDBSCAN, replace=False))]
    size = max(5, len(z) // 40)
    if len(z) >= size:
        from sklearn.cluster import HDBSCAN

        labels = HDBSCAN(min_cluster_size=size, copy=True).fit(z).labels_
        if (labels >= 0).any():
            return z[labels >= 0], labels[labels >= 0].astype(np.int64)
    return z[:1], np.zeros(1, np.int64)
