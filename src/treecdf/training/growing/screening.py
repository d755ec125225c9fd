"""Screening of the search features of wide tables: second moments of all would cost the square of their number."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from treecdf._common.typing import Array, Ints
from treecdf._kernels.rows import screening_sums
from treecdf.data.basis import Basis
from treecdf.training.classifiers.protocol import clipped_share
from treecdf.training.settings import Recipe
from treecdf.training.sources.rows import Rows

# Features up to which the score test looks at all of them. It decomposes their scatter matrix at every node, which
# takes the cube of their number.
UNSCREENED_FEATURES = 128
# Features that it looks at if there are more: a node costs a few milliseconds then (ADR 21).
SCREENED_FEATURES = 64
# Numbers that one pass adds up at most (32 MB): a level with many nodes looks at fewer features in each pass.
_MOST_SUMS = 2**22


def screen(rows: Rows, cuts: Array, basis: Basis) -> Ints | None:
    """Indices in the basis, ascending, of the features that the score test of a level uses; None means all.

    cuts (k, d, s) are the candidates. Each feature is tested alone, at every node; those whose best cuts gain most,
    summed over the nodes, are kept. Time and memory are linear in the number of features.
    """
    if len(basis) <= UNSCREENED_FEATURES:
        return None
    k, d, s = cuts.shape
    size = max(1, _MOST_SUMS // (k * d * (s + 1)))
    parts = [np.arange(len(basis))[i : i + size] for i in range(0, len(basis), size)]
    gain = np.concatenate([_gains(rows, cuts, basis.take(part)) for part in parts])
    return np.sort(np.argsort(-gain, kind="stable")[:SCREENED_FEATURES])


def notes_on_width(recipes: Iterable[Recipe], n_columns: int) -> tuple[str, ...]:
    """A note for the summary of a model of so many columns, if its search for splits was screened."""
    searched = [recipe for recipe in recipes if recipe.growth.split_search == "score"]
    widths = [len(classifier.search_basis(n_columns)) for recipe in searched for classifier, _ in recipe.stages]
    if max(widths, default=0) <= UNSCREENED_FEATURES:
        return ()
    return (
        f"wide table: of {max(widths):,} features the search for splits and linear node classifiers look at the "
        f"{SCREENED_FEATURES} at a time that tell most on their own",
    )


def _gains(rows: Rows, cuts: Array, basis: Basis) -> Array:
    """Gain (p,) of the likelihood by each feature alone, by the score test, at each node's best cut for it."""
    (k, d, s), p = cuts.shape, len(basis)
    shapes = [(k, d, s + 1), (k, d, s + 1, p), (k, p)]
    count, total, square = rows.sum(screening_sums, "level", (*basis.arrays, cuts), shapes)
    left = np.cumsum(count, axis=2)[:, :, :-1]
    weight = count[:, 0].sum(axis=1)
    mean = total[:, 0].sum(axis=1) / weight[:, None]
    scatter = np.maximum(square - weight[:, None] * mean**2, 0.0)
    gradient = np.cumsum(total, axis=2)[:, :, :-1] - left[..., None] * mean[:, None, None, :]
    share = clipped_share(left, weight[:, None, None])
    curvature = (share * (1 - share))[..., None] * scatter[:, None, None, :] + basis.ridge
    return (gradient**2 / curvature).max(axis=(1, 2)).sum(axis=0) / 2
