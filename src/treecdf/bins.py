"""Covariates in bins, for trees that are grown from histograms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Bins:
    """Bin b of covariate j, counted from 1, holds the values in (edges[j, b - 2], edges[j, b - 1]]; bin 0 the missing.

    edges (q, bins - 1) end with infinities where a covariate needs fewer bins; codes (q, n) are the rows' bins.
    """

    edges: Array
    codes: NDArray[np.uint8]

    @property
    def n_bins(self) -> int:
        """Bins of the covariate that has most, the missing not counted."""
        return self.edges.shape[1] + 1

    @staticmethod
    def fit(columns: Sequence[Array], weight: Array, n_bins: int) -> Bins:
        """At most n_bins quantile bins of each covariate (n,); as many as values where that is fewer."""
        found = [bin_edges(column, weight, n_bins) for column in columns]
        edges = np.full((len(found), max((len(e) for e in found), default=0)), np.inf)
        codes = np.zeros((len(found), len(weight)), np.uint8)
        for j, (column, own) in enumerate(zip(columns, found, strict=True)):
            edges[j, : len(own)] = own
            codes[j] = np.where(np.isnan(column), 0, 1 + np.searchsorted(own, column, side="left"))
        return Bins(edges, codes)


def bin_edges(column: Array, weight: Array, n_bins: int) -> Array:
    """Ascending inner edges of the bins, halfway between neighbouring values."""
    seen = ~np.isnan(column)
    values, place = np.unique(column[seen], return_inverse=True)
    last = np.arange(len(values) - 1)  # value that a bin ends with
    if len(values) > n_bins:
        below = np.cumsum(np.bincount(place, weight[seen]))
        last = np.unique(np.searchsorted(below * n_bins, np.arange(1, n_bins) * below[-1], side="left"))
        last = last[last < len(values) - 1]
    return values[last] + (values[last + 1] - values[last]) / 2
