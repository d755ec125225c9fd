"""Covariates in bins, for trees that are grown from histograms."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treecdf._common.typing import Array, Ints
from treecdf._kernels.binned_trees import fill_codes

Codes = NDArray[np.uint8]  # bins of covariates, (q, n)


@dataclass(frozen=True)
class Bins:
    """Quantile bins of q covariates, found on training rows.

    Bin b of covariate j, counted from 1, holds the values in (edges[j, b - 2], edges[j, b - 1]]; bin 0 holds the
    missing values. edges (q, bins - 1) end with infinities where a covariate needs fewer bins.
    """

    edges: Array

    @property
    def n_bins(self) -> int:
        """Bins of the covariate that has most, bin 0 for missing values not counted."""
        return self.edges.shape[1] + 1

    @staticmethod
    def fit(columns: Iterable[tuple[Array, Array]], n_bins: int) -> Bins:
        """At most n_bins bins of each covariate, given as values (n,) and weights (n,); as many as values if fewer."""
        found = [bin_edges(column, weight, n_bins) for column, weight in columns]
        edges = np.full((len(found), max((len(e) for e in found), default=0)), np.inf)
        for j, own in enumerate(found):
            edges[j, : len(own)] = own
        return Bins(edges)

    def codes(self, x: Array, used: Ints | None = None) -> Codes:
        """Bins (q, n) of covariates x (n, q); if only some are used, those of the others stay 0."""
        codes = np.zeros((len(self.edges), len(x)), np.uint8)
        fill_codes(x, self.edges, np.arange(len(self.edges)) if used is None else used, codes)
        return codes


def bin_edges(column: Array, weight: Array, n_bins: int) -> Array:
    """Ascending inner edges of the bins of values (n,), halfway between neighbouring values; missing ones are left out.

    There are as many bins as values, or n_bins of about equal weight if there are more values.
    """
    seen = ~np.isnan(column)
    values, place = np.unique(column[seen], return_inverse=True)
    last = np.arange(len(values) - 1)  # value that a bin ends with
    if len(values) > n_bins:
        below = np.cumsum(np.bincount(place, weight[seen]))
        last = np.unique(np.searchsorted(below * n_bins, np.arange(1, n_bins) * below[-1], side="left"))
        last = last[last < len(values) - 1]
    return values[last] + (values[last + 1] - values[last]) / 2
