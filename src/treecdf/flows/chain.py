"""A chain of one-outcome mixtures: p(y1 | x) p(y2 | x, y1) and so on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treecdf._common.numerics import FAR
from treecdf._common.typing import Array
from treecdf.flows.flow import Conditions, TreeFlow
from treecdf.flows.mixture import Mixture


@dataclass(frozen=True)
class Chain:
    """p(y | x) = p(y_1 | x) p(y_2 | x, y_1) ..., in some order of the outcomes: exact in both directions."""

    links: tuple[Mixture, ...]  # link k is about outcome order[k], given x and the outcomes before it, in column order
    order: tuple[int, ...]  # numbers of the outcomes

    @property
    def n_outcomes(self) -> int:
        """d, the number of outcomes."""
        return len(self.links)

    def tree_flows(self) -> list[TreeFlow]:
        """All tree flows of the links."""
        return [flow for link in self.links for flow in link.tree_flows()]

    @property
    def knows_rows(self) -> bool:
        """Whether the base of the first link can tell how far covariates are beyond the training rows."""
        return self.links[0].knows_rows

    def learn_conditions(self, x: Array, known: Conditions) -> None:
        """Put the parameters of the first link's bases at rows x (n, q) into `known`.

        Later links depend on outcomes too, so nothing is kept of them.
        """
        self.links[0].learn_conditions(x, known)

    def novelty(self, x: Array) -> Array | None:
        """How far (n,) covariates x (n, q) are beyond the training rows; None if the first link cannot tell."""
        return self.links[0].novelty(x)

    def forward_and_log_det(self, y: Array, x: Array, known: Conditions | None = None) -> tuple[Array, Array]:
        """Conditional CDFs of outcomes y (n, m, d), m at each row of x, and log densities (n, m)."""
        u, log_det = np.empty_like(y), np.zeros(y.shape[:2])
        for k, link in enumerate(self.links):
            points, given = self._points(y, x, k, y)
            cdf, step = link._forward(points, given, None if k else known)
            u[..., self.order[k]] = cdf[..., 0].reshape(y.shape[:2])
            log_det += step.reshape(y.shape[:2])
        return u, log_det

    def inverse(self, u: Array, x: Array, known: Conditions | None = None) -> Array:
        """Outcomes (n, m, d) of points u of the cube, m at each row of x."""
        y = np.empty_like(u)
        for k, link in enumerate(self.links):
            points, given = self._points(u, x, k, y)
            y[..., self.order[k]] = link._inverse(points, given, None if k else known)[..., 0].reshape(u.shape[:2])
        return y

    def draw(self, u: Array, x: Array, known: Conditions | None = None) -> Array:
        """Draws (n, m, d) made of independent uniforms u (n, m, d).

        The points of a row are sorted by the first outcome for the later links, which are faster if similar points are
        neighbours.
        """
        y = np.empty_like(u)
        y[..., self.order[0]] = self.links[0]._draw(*self._points(u, x, 0, y), known)[..., 0]
        order = np.argsort(y[..., self.order[0]], axis=1)[..., None]
        u, sorted_y = np.take_along_axis(u, order, axis=1), np.take_along_axis(y, order, axis=1)
        for k, link in enumerate(self.links[1:], start=1):
            found = link._draw(*self._points(u, x, k, sorted_y))
            sorted_y[..., self.order[k]] = found[..., 0].reshape(u.shape[:2])
        np.put_along_axis(y, order, sorted_y, axis=1)
        return y

    def _points(self, points: Array, x: Array, k: int, y: Array) -> tuple[Array, Array]:
        """Points and covariates of link k.

        They are (n, m, 1) and (n, q) for the first link, (n m, 1, 1) and (n m, q + k) for later ones, whose covariates
        include the outcomes y (n, m, d) of the links before.
        """
        own = points[..., self.order[k], None]
        if k == 0:
            return np.ascontiguousarray(own), x
        return own.reshape(-1, 1, 1), self.covariates(x, k, y)

    def covariates(self, x: Array, k: int, y: Array) -> Array:
        """Covariates (n m, q + k) of link k at each of m points y (n, m, d): x and the outcomes of the links before."""
        before = y[..., sorted(self.order[:k])].reshape(len(x) * y.shape[1], k)
        return np.hstack([np.repeat(x, y.shape[1], axis=0), np.clip(before, -FAR, FAR)])

    def first(self, k: int) -> Chain:
        """The first k links as a chain; of arrays of all outcomes it reads and fills only those of its links."""
        return Chain(self.links[:k], self.order[:k])
