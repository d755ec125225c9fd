"""Flows put together: a mixture of members with weights that depend on x."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning

from treecdf._common.typing import Array, Bools, Ints
from treecdf.flows.curve import FINE, STEEP, Curve
from treecdf.flows.flow import Conditions, TreeFlow, by_chunks
from treecdf.flows.regions import Regions

_N_STEPS = 200  # steps of root finding at most; Newton's method needs about ten
_LOSS_OUTSIDE = 4.0  # nats that members without a reach lose at a distance of half the extent of the training rows
_WORTH_A_CURVE = 4  # levels at a row, from where on it is cheaper to look at the whole CDF first
_ROUNDING = 1e-13  # relative error of a CDF at which root finding ends


class Flow(Protocol):
    """A member of a mixture: a TreeFlow or a Chain.

    `known`, if given, remembers what bases make of x, for flows that share a base.
    """

    @property
    def n_outcomes(self) -> int:
        """d, the number of outcomes."""
        ...

    def forward_and_log_det(self, y: Array, x: Array, known: Conditions | None = None) -> tuple[Array, Array]:
        """Images in the cube of outcomes y (n, m, d), m at each row of x, and log-determinants (n, m)."""
        ...

    def inverse(self, u: Array, x: Array, known: Conditions | None = None) -> Array:
        """Outcomes (n, m, d) of points u of the cube, m at each row of x."""
        ...

    def draw(self, u: Array, x: Array, known: Conditions | None = None) -> Array:
        """Draws (n, m, d) made of independent uniforms u (n, m, d); cheaper than the inverse where it can be."""
        ...

    def tree_flows(self) -> list[TreeFlow]:
        """All tree flows it is made of."""
        ...

    def novelty(self, x: Array) -> Array | None:
        """How far (n,) covariates x (n, q) are beyond the training rows; None if it does not know these."""
        ...


@dataclass(frozen=True)
class Mixture:
    """p(y | x) = sum over members j of w_j(x) p_j(y | x), the weights constant in each region of x.

    With one member, or one outcome, it is itself a flow: forward and inverse are exact.
    """

    members: tuple[Flow, ...]
    log_weights: Array  # (regions + 1, members); the last row is for regions that fit did not see
    regions: Regions | None = None

    @property
    def n_outcomes(self) -> int:
        """d, the number of outcomes."""
        return self.members[0].n_outcomes

    @property
    def is_flow(self) -> bool:
        """Whether `forward_and_log_det` and `inverse` are those of a flow: with one member, or one outcome."""
        return len(self.members) == 1 or self.n_outcomes == 1

    def tree_flows(self) -> list[TreeFlow]:
        """All tree flows it is made of."""
        return [flow for member in self.members for flow in member.tree_flows()]

    def log_weights_at(self, x: Array) -> Array:
        """Log weights (n, members) at covariates x (n, q).

        Members that are as certain beyond the training rows as among them lose their weight there, if others are not.
        """
        at_rows = self.log_weights[-1:] if self.regions is None else self.log_weights[self.regions(x)]
        log_weights = np.broadcast_to(at_rows, (len(x), len(self.members)))
        is_unaware = np.array([member.novelty(x[:0]) is None for member in self.members])
        novelty = self.novelty(x) if is_unaware.any() else None
        if novelty is None:
            return log_weights.copy()
        log_weights = log_weights - _LOSS_OUTSIDE * np.outer(novelty, is_unaware)
        return log_weights - logsumexp(log_weights, axis=1, keepdims=True)

    def novelty(self, x: Array) -> Array | None:
        """How far (n,) covariates x (n, q) are beyond the training rows, by the first member that knows these."""
        return next((found for member in self.members if (found := member.novelty(x)) is not None), None)

    def log_prob(self, y: Array, x: Array, n_threads: int = 1) -> Array:
        """Log densities (n, m) of outcomes y (n, m, d), m at each row of x."""
        total = np.empty(y.shape[:2])

        def chunk(rows: slice) -> None:
            total[rows] = self._forward(y[rows], x[rows])[1]

        by_chunks(chunk, y, n_threads)
        return total

    def forward_and_log_det(self, y: Array, x: Array, n_threads: int = 1) -> tuple[Array, Array]:
        """Images in the cube of outcomes y (n, m, d), m at each row of x, and log densities (n, m).

        The image of one outcome is its CDF. Without a flow (see `is_flow`) the images mean nothing.
        """
        u, log_det = np.empty_like(y), np.empty(y.shape[:2])

        def chunk(rows: slice) -> None:
            u[rows], log_det[rows] = self._forward(y[rows], x[rows])

        by_chunks(chunk, y, n_threads)
        return u, log_det

    def inverse(self, u: Array, x: Array, n_threads: int = 1) -> Array:
        """Outcomes (n, m, d) of points u of the cube, m at each row of x."""
        y = np.empty_like(u)

        def chunk(rows: slice) -> None:
            y[rows] = self._inverse(u[rows], x[rows])

        by_chunks(chunk, u, n_threads)
        return y

    def draw(self, u: Array, x: Array, n_threads: int = 1) -> Array:
        """Draws (n, m, d) made of independent uniforms u (n, m, d): the first picks the member too."""
        y = np.empty_like(u)

        def chunk(rows: slice) -> None:
            y[rows] = self._draw(u[rows], x[rows])

        by_chunks(chunk, u, n_threads)
        return y

    def _forward(
        self, y: Array, x: Array, known: Conditions | None = None, is_ascending: bool = False
    ) -> tuple[Array, Array]:
        """`forward_and_log_det` in one piece; points of one outcome may ascend at each row, which is faster."""
        known = {} if known is None else known
        if len(self.members) == 1:
            return _forward_member(self.members[0], y, x, known, {}, is_ascending)
        u, total = np.zeros_like(y), np.full(y.shape[:2], -np.inf)
        boxes: dict[int, tuple[Array, Array]] = {}  # what bases make of y, for members that share a base
        for log_weight, member in zip(self.log_weights_at(x).T, self.members, strict=True):
            part, log_prob = _forward_member(member, y, x, known, boxes, is_ascending)
            u += np.exp(log_weight)[:, None, None] * part  # the CDF of one outcome; of several it means nothing
            np.logaddexp(total, log_weight[:, None] + log_prob, out=total)
        return np.minimum(u, 1.0), total

    def curve(self, x: Array, known: Conditions, more: Array | None = None, passes: tuple[int, int] = FINE) -> Curve:
        """CDF and density of one outcome on a grid at each row of x, which holds the points `more` (n, k) too."""
        points = self.knots(x, known)

        def ask(y: Array, rows: Bools | slice) -> tuple[Array, Array]:
            u, log_density = self._forward(y[..., None], x[rows], take(known, rows), is_ascending=True)
            with np.errstate(over="ignore"):
                return u[..., 0], np.exp(log_density)

        return Curve.trace(ask, points if more is None else np.hstack([points, more]), passes)

    def knots(self, x: Array, known: Conditions) -> Array:
        """Outcomes (n, k) that outline the distribution of one outcome at each row of x."""
        found: dict[object, Array] = {}
        for flow in self.tree_flows():
            parameters = flow.condition(x, known)[1]
            key = id(flow.base) if parameters.shape[1] else type(flow.base)  # boxes of all folds are about the same
            if key not in found:
                found[key] = flow.base.knots(parameters)
        return np.hstack(list(found.values()))

    def _inverse(self, u: Array, x: Array, known: Conditions | None = None) -> Array:
        """`inverse` in one piece."""
        known = {} if known is None else known
        if len(self.members) == 1:
            return self.members[0].inverse(u, x, known)
        if u.shape[1] < _WORTH_A_CURVE or not all(isinstance(member, TreeFlow) for member in self.members):
            return _solve(self, u[..., 0], x, known, *self._wide_brackets(u, x, known))[..., None]
        low, high, start = self.curve(x, known, passes=STEEP).brackets(u[..., 0])
        beyond = np.asarray(np.isnan(low).any(axis=1))
        if beyond.any():
            few = take(known, beyond)
            low[beyond], high[beyond], start[beyond] = self._wide_brackets(u[beyond], x[beyond], few)
        return _solve(self, u[..., 0], x, known, low, high, start)[..., None]

    def _wide_brackets(self, u: Array, x: Array, known: Conditions) -> tuple[Array, Array, Array]:
        """Brackets (n, m) of quantiles and where to start between them, from the quantiles of the members."""
        ends = np.stack([member.inverse(u, x, known)[..., 0] for member in self.members])
        low, high = ends.min(axis=0), ends.max(axis=0)
        weights = np.exp(self.log_weights_at(x)).T[..., None]
        with np.errstate(invalid="ignore"):  # levels 0 and 1 may be infinite
            start = (weights * ends).sum(axis=0)
        return low, high, np.where(np.isfinite(start), start, low)

    def _draw(self, u: Array, x: Array) -> Array:
        """`draw` in one piece."""
        known: Conditions = {}
        if len(self.members) == 1:
            return self.members[0].draw(u, x, known)
        weights = np.exp(self.log_weights_at(x))
        ends = np.cumsum(weights, axis=1)
        number = np.zeros(u.shape[:2], np.int64)
        for end in ends.T[:-1]:  # the last may be a little below one, and every draw needs a member
            number += u[..., 0] >= end[:, None]
        y = np.empty_like(u)
        for j, member in enumerate(self.members):
            rows, columns = np.nonzero(number == j)
            own = u[rows, columns]
            begin = ends[rows, j] - weights[rows, j]
            own[:, 0] = np.clip((own[:, 0] - begin) / np.maximum(weights[rows, j], 1e-300), 0.0, 1.0)
            y[rows, columns] = _at_points(member, own, x, rows, known)
        return y


def take(known: Conditions, rows: Ints | Bools | slice) -> Conditions:
    """What is known of some rows."""
    return {base: (z[rows], parameters[rows]) for base, (z, parameters) in known.items()}


def _forward_member(
    member: Flow, y: Array, x: Array, known: Conditions, boxes: dict[int, tuple[Array, Array]], is_ascending: bool
) -> tuple[Array, Array]:
    """`forward_and_log_det` of a member; `boxes` keeps what bases make of y."""
    if not isinstance(member, TreeFlow):
        return member.forward_and_log_det(y, x, known)
    z, parameters = member.condition(x, known)
    if id(member.base) not in boxes:
        boxes[id(member.base)] = member.base.to_box(y, parameters)
    return member.forward_from_box(y, boxes[id(member.base)], z, is_ascending)


def _at_points(member: Flow, u: Array, x: Array, rows: Ints, known: Conditions) -> Array:
    """Draws (k, d) of uniforms u (k, d), each at its own row of x; rows are in order."""
    if not len(rows):
        return u
    count = np.bincount(rows, minlength=len(x))
    padded = np.full((len(x), count.max(), u.shape[1]), 0.5)
    column = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
    padded[rows, column] = u
    return member.draw(padded, x, known)[rows, column]


def _solve(mixture: Mixture, u: Array, x: Array, known: Conditions, low: Array, high: Array, y: Array) -> Array:
    """Outcomes (n, m) with CDF u between low and high, by Newton's method from y inside the bracket.

    Steps that leave the bracket or do not halve are replaced by its middle. Halving alone would need 53 steps for a
    bracket as long as the outcome is large, and _N_STEPS for one 1e44 times as long; to need more is a warning.
    """
    y, low, high = np.clip(y, low, high), low.copy(), high.copy()
    rows = np.flatnonzero((low < high).any(axis=1))
    with np.errstate(invalid="ignore"):
        last = high - low
    gap = np.zeros(0)
    for _ in range(_N_STEPS):
        if not len(rows):
            break
        here, wanted = y[rows], u[rows]
        cdf, log_density = mixture._forward(here[..., None], x[rows], take(known, rows))
        gap = cdf[..., 0] - wanted
        low[rows] = np.where(gap <= 0, here, low[rows])
        high[rows] = np.where(gap > 0, here, high[rows])
        a, b = low[rows], high[rows]
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            following = here - gap * np.exp(-log_density)
            # Newton's steps that do not halve may go on for ever.
            is_good = (following > a) & (following < b) & (np.abs(following - here) <= last[rows] / 2)
        is_there = np.abs(gap) <= _ROUNDING * np.minimum(wanted, 1 - wanted)
        following = np.where(is_good, following, np.where(is_there, here, a / 2 + b / 2))
        y[rows] = following
        with np.errstate(invalid="ignore"):  # levels 0 and 1 stay at their infinite ends
            last[rows] = np.abs(following - here)
        moving = ~is_there & (last[rows] > np.spacing(np.abs(following)))
        gap, rows = np.abs(gap[moving]), rows[moving.any(axis=1)]
    if len(rows):
        warnings.warn(
            f"Root finding ended after {_N_STEPS} steps: {len(gap)} of {u.size} quantiles have levels that are off by "
            f"up to {gap.max():.1g}.",
            ConvergenceWarning,
            stacklevel=2,
        )
    return y
