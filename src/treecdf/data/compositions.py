"""Tables of compositions: abundances of taxa, matched by name where the table has names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import issparse

from treecdf._common.typing import Array
from treecdf.data.table import read_outcomes

_TOLERANCE = 1e-6  # Rows of sum one may be off by this.
_MOST_NAMED = 5  # Taxa that a message names.


@dataclass(frozen=True)
class Compositions:
    """Compositions y (n, taxa), each of sum one, and the names of taxa and samples if the table has them."""

    y: Array
    total: Array  # (n,): the sums before rows were divided by them; of counts the depth
    taxa: tuple[str, ...] | None
    samples: Any  # index of a pandas frame, labels of a BIOM table, or None


def read_compositions(
    Y: Any, normalize: bool, n_taxa: int | None = None, taxa: Sequence[str] | None = None, counts: bool = False
) -> Compositions:
    """Compositions as float64; normalize: rows are divided by their sums, otherwise these must be one.

    counts: these are whole numbers. Y is an array, a sparse matrix, a frame or a BIOM table. n_taxa and taxa are those
    of the training rows: columns with names are put into their order, and other names are refused.
    """
    values, names, samples = _opened(Y)
    if names is not None and taxa is not None:
        values = values[:, _places(names, taxa)]
        names = tuple(taxa)
    y = read_outcomes(values, n_taxa)
    if counts:
        _check_whole(y, names)
    total = _totals(y, normalize or counts, names)
    return Compositions(y / total[:, None], total, names, samples)


def _check_whole(y: Array, names: Sequence[str] | None) -> None:
    """Complain about counts (n, taxa) that are no whole numbers."""
    off = y != np.round(y)
    if off.any():
        row, column = np.argwhere(off)[0]
        taxon = column if names is None else names[column]
        raise ValueError(
            f"Y is {y[row, column]:g} in row {row}, taxon {taxon}: with counts=True it must hold whole numbers. "
            "For shares of a whole leave counts out."
        )


def check_samples(X: Any, samples: Any) -> None:
    """Raise a ValueError if the rows of the frame X have other labels than the samples of Y.

    Plain numbers of rows are no labels.
    """
    index: Any = getattr(X, "index", None)
    if not (_has_labels(index) and _has_labels(samples)):
        return
    left, right = list(index), list(samples)
    if left == right:
        return
    if len(left) == len(right) and set(left) == set(right):
        raise ValueError(
            "X and Y have the same samples in another order: align them first, such as Y = Y.loc[X.index]."
        )
    if len(left) == len(right):
        row = next(k for k, (a, b) in enumerate(zip(left, right, strict=True)) if a != b)
        raise ValueError(f"X and Y have different samples: row {row} is {left[row]!r} in X and {right[row]!r} in Y.")


def _has_labels(index: Any) -> bool:
    """Whether an index names its rows: a plain method of that name, or a numbering from 0, does not."""
    return index is not None and not callable(index) and type(index).__name__ != "RangeIndex"


def _opened(Y: Any) -> tuple[Any, tuple[str, ...] | None, Any]:
    """The values (n, taxa), names of taxa and labels of samples of a table of any type."""
    if hasattr(Y, "matrix_data") and hasattr(Y, "ids"):  # BIOM: taxa are rows
        return Y.matrix_data.T.toarray(), tuple(map(str, Y.ids(axis="observation"))), list(Y.ids(axis="sample"))
    if issparse(Y):
        return Y.toarray(), None, None
    if not (hasattr(Y, "columns") and hasattr(Y, "shape")):
        return Y, None, None
    names = tuple(str(name) for name in Y.columns)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"Y has more than one column {twice!r}: names of taxa must be unique.")
    return read_outcomes(Y), names, getattr(Y, "index", None)


def _places(names: Sequence[str], taxa: Sequence[str]) -> list[int]:
    """Where the taxa of the training rows are among the names of a table; complains about others."""
    unseen, missing = sorted(set(names) - set(taxa)), sorted(set(taxa) - set(names))
    if unseen or missing:
        parts = [
            f"{what}: {', '.join(found[:_MOST_NAMED])}" + (", ..." if len(found) > _MOST_NAMED else "")
            for what, found in (("not in training", unseen), ("missing now", missing))
            if found
        ]
        raise ValueError(f"The taxa of Y should be those of the training rows; {'; '.join(parts)}.")
    place = {name: j for j, name in enumerate(names)}
    return [place[name] for name in taxa]


def _totals(y: Array, normalize: bool, names: Sequence[str] | None) -> Array:
    """Sums (n,) of abundances (n, taxa); complains about what is no composition."""
    if y.shape[1] < 2:
        raise ValueError(f"Expected Y of shape (n, taxa) with at least 2 taxa; got {y.shape}.")
    if (y < 0).any():
        row, column = np.argwhere(y < 0)[0]
        taxon = column if names is None else names[column]
        raise ValueError(f"Y is {y[row, column]:g} in row {row}, taxon {taxon}: abundances must not be negative.")
    total: Array = y.sum(axis=1)
    if not total.all():
        raise ValueError(f"Row {int(np.argmin(total))} of Y is all zero: a composition needs something present.")
    off = np.abs(total - 1) > _TOLERANCE
    if off.any() and not normalize:
        row = int(np.argmax(off))
        raise ValueError(
            f"Row {row} of Y sums to {total[row]:g}, not to 1. Divide rows by their sums, or set normalize=True."
        )
    return total
