"""Numbers computed from a sample: diversity, richness, distance to a reference."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from treecdf._common.typing import Array

Functional = Callable[[Array], ArrayLike]  # from samples (m, taxa) to numbers (m,)


def shannon(y: Array) -> Array:
    """Shannon diversity (n,) in nats of compositions or counts (n, taxa)."""
    y = shares(y)
    positive = np.where(y > 0, y, 1.0)
    return -(positive * np.log(positive)).sum(axis=1)


def richness(y: Array) -> Array:
    """Number (n,) of taxa that are present in compositions or counts (n, taxa)."""
    return (y > 0).sum(axis=1).astype(np.float64)


def bray_curtis(y: Array, reference: Array) -> Array:
    """Bray-Curtis distances (n,) of compositions or counts (n, taxa), as shares, to a reference (taxa,): 0 to 1."""
    return np.abs(shares(y) - shares(reference[None])).sum(axis=1) / 2


def shares(y: Array) -> Array:
    """Rows (n, taxa) divided by their sums."""
    divided: Array = y / y.sum(axis=1, keepdims=True)
    return divided


READY: dict[str, Functional] = {"shannon": shannon, "richness": richness}


def summaries(values: Array, level: float) -> Array:
    """Mean and ends of the central interval (n, 3) of values (n, draws)."""
    ends = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=1)
    return np.column_stack([values.mean(axis=1), *ends])
