"""Flows put together: a mixture of members with weights that depend on x."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from treecdf._common.numerics import log_sum_exp
from treecdf._common.typing import Array, Bools, Ints
from treecdf._kernels.roots import step_roots
from treecdf.flows.bundle import MANY, Bundle, MixtureAtRows, Part, bundles_of
from treecdf.flows.curve import FINE, ROUGH, Curve
from treecdf.flows.flow import Conditions, TreeFlow, by_chunks
from treecdf.flows.moments import moments_of_mixture
from treecdf.flows.regions import Regions

_KNOTS_OF_BRACKETS = 48  # outcomes between which root finding begins; with more it takes as long
_N_STEPS = 200  # steps of root finding at most; Newton's method needs about ten
_LOSS_OUTSIDE = 4.0  # nats that members without a reach lose at a distance of half the extent of the training rows
_ROWS_OF_CURVES = 128  # looked at on a grid together: some 200 points and the lines of all leaves stay in the cache


# Outcomes (k, m) at k rows, and the numbers of these -> CDF and density (k, m)
Ask = Callable[[Array, Ints], tuple[Array, Array]]


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

    @property
    def knows_rows(self) -> bool:
        """Whether it knows how far covariates are beyond the training rows."""
        ...

    def novelty(self, x: Array) -> Array | None:
        """How far (n,) covariates x (n, q) are beyond the training rows; None if it does not know these."""
        ...

    def learn_conditions(self, x: Array, known: Conditions) -> None:
        """Put what its bases make of rows x (n, q) into `known`."""
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
        is_unaware = np.array([not member.knows_rows for member in self.members])
        novelty = self.novelty(x) if is_unaware.any() else None
        if novelty is None:
            return log_weights.copy()
        log_weights = log_weights - _LOSS_OUTSIDE * np.outer(novelty, is_unaware)
        return log_weights - log_sum_exp(log_weights)

    @property
    def knows_rows(self) -> bool:
        """Whether a member knows how far covariates are beyond the training rows."""
        return any(member.knows_rows for member in self.members)

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

    def _forward(self, y: Array, x: Array, known: Conditions | None = None) -> tuple[Array, Array]:
        """`forward_and_log_det` in one piece."""
        known = {} if known is None else known
        if len(self.members) == 1:
            return _forward_member(self.members[0], y, x, known, {})
        u, total = np.zeros_like(y), np.full(y.shape[:2], -np.inf)
        boxes: dict[int, tuple[Array, Array]] = {}  # what bases make of y, for members that share a base
        for log_weight, member in zip(self.log_weights_at(x).T, self.members, strict=True):
            part, log_prob = _forward_member(member, y, x, known, boxes)
            u += np.exp(log_weight)[:, None, None] * part  # the CDF of one outcome; of several it means nothing
            np.logaddexp(total, log_weight[:, None] + log_prob, out=total)
        return np.minimum(u, 1.0), total

    @cached_property
    def _bundles(self) -> tuple[Bundle, ...]:
        """The members, tree flows of one outcome, in groups that share a base; made once."""
        return bundles_of([member for member in self.members if isinstance(member, TreeFlow)])

    def at(self, x: Array, known: Conditions) -> MixtureAtRows:
        """The mixture of tree flows of one outcome at rows of x (n, q), for many questions about its CDF there."""
        weights = np.ones((len(x), 1)) if len(self.members) == 1 else np.exp(self.log_weights_at(x))
        parts = [(bundle, *bundle.flow.condition(x, known)) for bundle in self._bundles]
        return MixtureAtRows(tuple(Part.of(bundle, z, parameters, weights) for bundle, z, parameters in parts))

    def curve(self, x: Array, known: Conditions, more: Array | None = None, passes: tuple[int, int] = FINE) -> Curve:
        """CDF and density of one outcome on a grid at each row of x, which holds the points `more` (n, k) too."""
        return _curve(self.at(x, known), more, passes)

    def moments(self, x: Array, known: Conditions, passes: tuple[int, int] = FINE) -> tuple[Array, Array]:
        """Mean and standard deviation (n,) of one outcome at each row of x: of its bases if there are no trees."""
        if not any(len(stage.nodes) for flow in self.tree_flows() for stage in flow.stages):
            found = [bundle.flow.base.moments(bundle.flow.condition(x, known)[1]) for bundle in self._bundles]
            means, deviations = ([part[k] for part in found if part is not None] for k in (0, 1))
            if len(means) == len(found) == 1:
                return means[0], deviations[0]
            if len(means) == len(found):
                weights = np.exp(self.log_weights_at(x))
                shares = np.column_stack([weights[:, bundle.members].sum(axis=1) for bundle in self._bundles])
                return moments_of_mixture(shares, np.column_stack(means), np.column_stack(deviations))
        self.learn_conditions(x, known)
        mean, std = np.empty((2, len(x)))
        for rows in _few_rows(len(x)):
            mean[rows], std[rows] = self.curve(x[rows], take(known, rows), passes=passes).moments()
        return mean, std

    def cdf_and_density(self, y: Array, x: Array, known: Conditions) -> tuple[Array, Array]:
        """CDF and density (n, m) of one outcome at y (n, m) that ascend at each row of x."""
        self.learn_conditions(x, known)
        cdf, density = np.empty(y.shape), np.empty(y.shape)
        for rows in _few_rows(len(x)):
            cdf[rows], density[rows] = self.at(x[rows], take(known, rows)).cdf_and_density(y[rows], is_ascending=True)
        return cdf, density

    def crps(self, truth: Array, x: Array, known: Conditions) -> Array:
        """Continuous ranked probability score (n,) of outcomes truth (n,), one at each row of x."""
        self.learn_conditions(x, known)
        crps = np.empty(len(truth))
        for rows in _few_rows(len(x)):
            crps[rows] = self.curve(x[rows], take(known, rows), truth[rows, None]).crps(truth[rows])
        return crps

    def _inverse(self, u: Array, x: Array, known: Conditions | None = None) -> Array:
        """`inverse` in one piece."""
        known = {} if known is None else known
        if len(self.members) == 1:
            return self.members[0].inverse(u, x, known)
        if not all(isinstance(member, TreeFlow) for member in self.members):
            wide = self._wide_brackets(u, x, known)
            return _solve(partial(self._ask, x), np.ascontiguousarray(u[..., 0]), *wide)[..., None]
        self.learn_conditions(x, known)
        if len(self._bundles) == 1:
            bundle = self._bundles[0]
            shares = np.exp(self.log_weights_at(x))[:, bundle.members]
            return bundle.quantiles(u[..., 0], shares, *bundle.flow.condition(x, known))[..., None]
        y = np.empty_like(u)
        for rows in _few_rows(len(x)):
            own, levels, few = x[rows], u[rows], take(known, rows)
            at = self.at(own, few)
            rough = Curve.trace(at.ask, at.knots(_KNOTS_OF_BRACKETS), ROUGH)
            low, high, start = rough.brackets(levels[..., 0])
            beyond = np.asarray(np.isnan(low).any(axis=1))
            if beyond.any():
                wide = self._wide_brackets(levels[beyond], own[beyond], take(few, beyond))
                low[beyond], high[beyond], start[beyond] = wide
            y[rows] = _solve(at.ask_any, np.ascontiguousarray(levels[..., 0]), low, high, start)[..., None]
        return y

    def learn_conditions(self, x: Array, known: Conditions) -> None:
        """Ask the bases about rows x (n, q), and keep what they say; of a chain those of its first link."""
        for member in self.members:
            member.learn_conditions(x, known)

    def _ask(self, x: Array, y: Array, rows: Ints) -> tuple[Array, Array]:
        """CDF and density (k, m) of one outcome at y (k, m), m at each of k rows of x (n, q)."""
        u, log_density = self._forward(y[..., None], x[rows])
        with np.errstate(over="ignore"):
            return u[..., 0], np.exp(log_density)

    def _wide_brackets(self, u: Array, x: Array, known: Conditions) -> tuple[Array, Array, Array]:
        """Brackets (n, m) of quantiles and where to start between them, from the quantiles of the members."""
        ends = np.stack([member.inverse(u, x, known)[..., 0] for member in self.members])
        low, high = ends.min(axis=0), ends.max(axis=0)
        weights = np.exp(self.log_weights_at(x)).T[..., None]
        with np.errstate(invalid="ignore"):  # levels 0 and 1 may be infinite
            start = (weights * ends).sum(axis=0)
        return low, high, np.where(np.isfinite(start), start, low)

    def _draw(self, u: Array, x: Array, known: Conditions | None = None) -> Array:
        """`draw` in one piece."""
        known = {} if known is None else known
        number, own = self._members_of(u, x)
        y = np.empty_like(u)
        if u.shape[1] >= MANY and u.shape[2] == 1 and all(isinstance(member, TreeFlow) for member in self.members):
            for bundle in self._bundles:
                place = np.full(len(self.members), -1)
                place[bundle.members] = np.arange(len(bundle.members))
                self._draw_bundle(bundle, place[number], own[..., 0], x, known, y[..., 0])
            return y
        for j, member in enumerate(self.members):
            rows, columns = np.nonzero(number == j)
            if len(rows):
                padded, column = _padded(own[rows, columns], rows, len(x), 0.5)
                y[rows, columns] = member.draw(padded, x, known)[rows, column]
        return y

    def _members_of(self, u: Array, x: Array) -> tuple[Ints, Array]:
        """Members (n, m) that uniforms u (n, m, d) pick at rows of x, and uniforms (n, m, d) left for these."""
        if len(self.members) == 1:
            return np.zeros(u.shape[:2], np.int64), u
        weights = np.exp(self.log_weights_at(x))
        ends = np.cumsum(weights, axis=1)
        number = np.zeros(u.shape[:2], np.int64)
        for end in ends.T[:-1]:  # the last may be a little below one, and every draw needs a member
            number += u[..., 0] >= end[:, None]
        left, width = u.copy(), np.take_along_axis(weights, number, 1)
        begin = np.take_along_axis(ends, number, 1) - width
        left[..., 0] = np.clip((u[..., 0] - begin) / np.maximum(width, 1e-300), 0.0, 1.0)
        return number, left

    def _draw_bundle(self, bundle: Bundle, numbers: Ints, u: Array, x: Array, known: Conditions, y: Array) -> None:
        """Put the draws by flows of a bundle into y (n, m), where `numbers` (n, m) are not negative."""
        z, parameters = bundle.flow.condition(x, known)
        for few in _few_rows(len(x)):
            rows, columns = np.nonzero(numbers[few] >= 0)
            if not len(rows):
                continue
            count = few.stop - few.start
            padded, column = _padded(u[few][rows, columns], rows, count, 0.5)
            own, _ = _padded(numbers[few][rows, columns], rows, count, 0)
            y[few][rows, columns] = bundle.draw(padded, own, z[few], parameters[few])[rows, column]


def _few_rows(n: int) -> Iterator[slice]:
    """Slices of n rows whose CDFs are looked at on a grid together."""
    return (slice(i, min(i + _ROWS_OF_CURVES, n)) for i in range(0, n, _ROWS_OF_CURVES))


def take(known: Conditions, rows: Ints | Bools | slice) -> Conditions:
    """What is known of some rows."""
    return {base: (z[rows], parameters[rows]) for base, (z, parameters) in known.items()}


def _forward_member(
    member: Flow, y: Array, x: Array, known: Conditions, boxes: dict[int, tuple[Array, Array]]
) -> tuple[Array, Array]:
    """`forward_and_log_det` of a member; `boxes` keeps what bases make of y."""
    if not isinstance(member, TreeFlow):
        return member.forward_and_log_det(y, x, known)
    z, parameters = member.condition(x, known)
    if id(member.base) not in boxes:
        boxes[id(member.base)] = member.base.to_box(y, parameters)
    return member.forward_from_box(y, boxes[id(member.base)], z)


def _padded(values: NDArray[Any], rows: Ints, n: int, rest: float) -> tuple[NDArray[Any], Ints]:
    """Values (k, ...) of points at rows (k,), which ascend, as (n, m, ...) filled up with `rest`, and their columns."""
    count = np.bincount(rows, minlength=n)
    padded = np.full((n, count.max(), *values.shape[1:]), rest, values.dtype)
    column = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
    padded[rows, column] = values
    return padded, column


def _curve(at: MixtureAtRows, more: Array | None, passes: tuple[int, int]) -> Curve:
    """The curve of a mixture at rows, at its knots and at points `more` (n, k)."""
    points = at.knots()
    return Curve.trace(at.ask, points if more is None else np.hstack([points, more]), passes)


def _solve(ask: Ask, u: Array, low: Array, high: Array, y: Array) -> Array:
    """Outcomes (n, m) with CDF u between low and high, by Newton's method from y inside the bracket.

    ask: of outcomes (k, m) at k rows, and the numbers of these, CDF and density (k, m).
    Halving alone would need 53 steps for a bracket as long as the outcome is large, and _N_STEPS for one 1e44 times as
    long; to need more is a warning.
    """
    y, low, high = np.clip(y, low, high), low.copy(), high.copy()
    rows = np.flatnonzero((low < high).any(axis=1))
    with np.errstate(invalid="ignore"):  # both ends may be infinite
        last, gaps = high - low, np.zeros(y.shape)
    for _ in range(_N_STEPS):
        if not len(rows):
            break
        step_roots(u, *ask(y[rows], rows), rows, y, low, high, last, gaps)
        rows = rows[gaps[rows].any(axis=1)]
    if len(rows):
        warnings.warn(
            f"Root finding ended after {_N_STEPS} steps: {np.count_nonzero(gaps)} of {u.size} quantiles have levels "
            f"that are off by up to {gaps.max():.1g}.",
            ConvergenceWarning,
            stacklevel=2,
        )
    return y
