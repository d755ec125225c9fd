"""Smaller mixtures with nearly the same densities: members, folds of chains and trees that hardly matter are left out.

The result is a mixture like any other, so that its density, CDF and quantiles agree exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import logsumexp

from treecdf._common.typing import Array
from treecdf.flows.chain import Chain
from treecdf.flows.flow import Conditions, TreeFlow
from treecdf.flows.mixture import Flow, Mixture
from treecdf.flows.results import Family

# Shares of a flow's trees, the first ones, that are tried instead of all.
_SHARES = (0.0, 0.25, 0.5, 0.75)


@dataclass(frozen=True)
class Compacted:
    """A smaller mixture, the members of the old one that each new member replaces, and the change of log densities."""

    mixture: Mixture
    origins: tuple[tuple[int, ...], ...]
    change: float  # mean absolute difference of the log densities


def compact_mixture(mixture: Mixture, y: Array, x: Array, tolerance: float) -> Compacted:
    """The smallest mixture found whose log densities of y (n, d) at x (n, q) change by at most `tolerance`.

    The change is the mean of the absolute differences. Members are left out first, always the one whose absence changes
    least; then the last trees of each flow, or members of a chain's links. Flows without trees on the same base become
    one.
    """
    rows = _Rows(mixture, y, x)
    rows.drop_members(tolerance)
    for j in rows.kept:
        member = rows.members[j]
        rows.shorten(j, _shorter(member, rows, tolerance), tolerance)
    return rows.result()


class _Rows:
    """Log densities of the rows by every member, from which the change of the mixture is computed."""

    def __init__(self, mixture: Mixture, y: Array, x: Array) -> None:
        self._mixture, self.y, self.x = mixture, y[:, None, :], x
        self._known: Conditions = {}
        self.members: list[Flow] = list(mixture.members)
        self._log_prob = np.column_stack([self._of(member) for member in self.members])
        self._log_weights = mixture.log_weights_at(x)
        self.kept = list(range(len(self.members)))
        self._before = self._total(self.kept, self._log_prob)
        self._counted = np.isfinite(self._before)  # outcomes that are impossible stay so

    def _of(self, member: Flow) -> Array:
        """Log densities (n,) of the rows by a member."""
        return member.forward_and_log_det(self.y, self.x, self._known)[1][:, 0]

    def _total(self, kept: Sequence[int], log_prob: Array) -> Array:
        """Log densities (n,) of the mixture of these members."""
        weights = self._log_weights[:, kept]
        with np.errstate(divide="ignore", invalid="ignore"):
            return logsumexp(weights + log_prob[:, kept], axis=1) - logsumexp(weights, axis=1)

    def change(self, kept: Sequence[int], log_prob: Array | None = None) -> float:
        """Mean absolute change of the log densities, infinite if there is no such mixture."""
        total = self._total(kept, self._log_prob if log_prob is None else log_prob)
        has_weights = np.isfinite(self._mixture.log_weights[:, kept]).any(axis=1).all()
        if not has_weights or not np.isfinite(total[self._counted]).all():
            return np.inf
        return float(np.abs(total - self._before)[self._counted].mean())

    def drop_members(self, tolerance: float) -> None:
        """Leave out members, always the one whose absence changes least, as long as the tolerance allows."""
        while len(self.kept) > 1:
            changes = [self.change([k for k in self.kept if k != j]) for j in self.kept]
            if min(changes) > tolerance:
                return
            del self.kept[int(np.argmin(changes))]

    def shorten(self, j: int, candidates: Sequence[Flow], tolerance: float) -> None:
        """Replace member j by the first of the candidates with which the change is tolerated."""
        for candidate in candidates:
            log_prob = self._log_prob.copy()
            log_prob[:, j] = self._of(candidate)
            if self.change(self.kept, log_prob) <= tolerance:
                self._log_prob, self.members[j] = log_prob, candidate
                return

    def result(self) -> Compacted:
        """The remaining mixture; flows without trees on the same base are one member."""
        groups: dict[object, list[int]] = {}
        for j in self.kept:
            member = self.members[j]
            is_base = isinstance(member, TreeFlow) and not member.stages
            groups.setdefault(id(member.base) if is_base else ("own", j), []).append(j)  # type: ignore[attr-defined]
        origins = tuple(map(tuple, groups.values()))
        members = tuple(self.members[group[0]] for group in origins)
        mixture = Mixture(members, restrict(self._mixture.log_weights, origins), self._mixture.regions)
        return Compacted(mixture, origins, self.change(self.kept))


def _shorter(member: Flow, rows: _Rows, tolerance: float) -> list[Flow]:
    """Smaller versions of a member, the smallest first."""
    if isinstance(member, Chain):
        links = []
        for k, link in enumerate(member.links):
            points, given = member._points(rows.y, rows.x, k, rows.y)
            # Differences of the links add up in the chain.
            links.append(compact_mixture(link, points[:, 0], given, tolerance / len(member.links)).mixture)
        return [Chain(tuple(links), member.order)]
    assert isinstance(member, TreeFlow)
    n_trees = sum(map(len, member.stages))
    return [_first_trees(member, int(share * n_trees)) for share in _SHARES] if n_trees else [_first_trees(member, 0)]


def _first_trees(flow: TreeFlow, n_trees: int) -> TreeFlow:
    """The flow with its first trees alone, and without stages that have none."""
    stages = []
    for stage in flow.stages:
        own = stage[: max(n_trees, 0)]
        if len(own):
            stages.append(replace(own, theta=own.theta.copy()))
        n_trees -= len(stage)
    return replace(flow, stages=tuple(stages))


def restrict(log_weights: Array, groups: Sequence[Sequence[int]]) -> Array:
    """Log weights (rows, groups) of groups of members, which sum to one again, of those (rows, members) of all."""
    with np.errstate(divide="ignore"):
        found = np.column_stack([logsumexp(log_weights[:, list(group)], axis=1) for group in groups])
        return found - logsumexp(found, axis=1, keepdims=True)


def compact_families(
    families: Sequence[Family], weights: Array, compacted: Compacted
) -> tuple[tuple[Family, ...], Array]:
    """The families with their remaining members, and their weights; families without members are left out."""
    found, masses, first = [], [], 0
    for family, weight in zip(families, weights, strict=True):
        own = range(first, first + len(family.members))
        groups = [[j - first for j in origin if j in own] for origin in compacted.origins]
        members = [member for member, group in zip(compacted.mixture.members, groups, strict=True) if group]
        first += len(family.members)
        groups = [group for group in groups if group]
        if members:
            left = restrict(family.log_weights, groups)
            found.append(replace(family, members=tuple(members), log_weights=left))
            kept = [j for group in groups for j in group]
            masses.append(weight * np.exp(logsumexp(family.log_weights[-1, kept])))
    total = np.array(masses)
    return tuple(found), total / total.sum() if total.sum() > 0 else np.full(len(total), 1 / len(total))
