"""Draws of compositions: presences and log ratios made of uniform numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from treecdf._common.typing import Array, Ints
from treecdf.flows.composition.presence import Presence
from treecdf.flows.composition.ratios import Link, Ratios


@dataclass(frozen=True)
class At:
    """The rows at which compositions are drawn: covariates and, for counts, depths."""

    x: Array  # (n, q): covariates; with counts the last column is the log of the depth
    floor: Array | None  # (n,): the smallest log ratio, of counts
    depth: Array | None  # (n,): reads asked for, of counts

    def take(self, rows: Ints) -> At:
        """Some of the rows."""
        floor, depth = (None if part is None else part[rows] for part in (self.floor, self.depth))
        return At(self.x[rows], floor, depth)


def draw_ratios(
    at: At, effects: Array, presence: Presence, links: Sequence[Link], uniforms: tuple[Array, Array], exact: bool
) -> Ratios:
    """Presences and log ratios (n, K), made of K uniforms for each of n rows, given as (K, n).

    exact: similar uniforms give similar ratios. Otherwise it is faster, and only the distribution is the same.
    """
    ratios = Ratios.unknown(presence.draw(effects, uniforms[0])[0])
    for k, link in enumerate(links):
        rows = np.flatnonzero(ratios.follows[:, k])
        given = link.given(at.x[rows], effects[rows], ratios.features(k)[rows])
        draw = link.quantile if exact else link.draw
        own = draw(uniforms[1][k, rows], given, None if at.floor is None else at.floor[rows])
        ratios.put(k, rows, own)
    return ratios
