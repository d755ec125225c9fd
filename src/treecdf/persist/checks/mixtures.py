"""Mixtures, chains and flows."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from treecdf.bases.box import Support
from treecdf.bases.conditional import Conditional
from treecdf.bases.student import Student
from treecdf.data.scaling import Standardizer
from treecdf.flows.chain import Chain
from treecdf.flows.flow import TreeFlow
from treecdf.flows.learnt import Learnt, flows_of_bases, widths_of
from treecdf.flows.mixture import Mixture
from treecdf.flows.regions import NearestPoint
from treecdf.flows.results import Family
from treecdf.flows.summary import KINDS
from treecdf.flows.tree import TreeSequence
from treecdf.persist.checks.trees import check_axes
from treecdf.persist.checks.values import ABOVE_ZERO, Check, FromFile, Visit, expect, expect_array, expect_tuple


def _family(part: Family, q: int, visit: Visit) -> None:
    _members(part.members, part.log_weights, part.regions, q, visit)
    expect_array(part.left_out[np.isfinite(part.left_out)], "left_out", (-1,))
    named = isinstance(part.name, str) and (part.name in KINDS or type(part.members[0]) is Chain)
    expect(named, "a family with a name")


def _mixture(part: Mixture, q: int, visit: Visit) -> None:
    _members(part.members, part.log_weights, part.regions, q, visit)


def _members(members: FromFile, log_weights: FromFile, regions: FromFile, q: int, visit: Visit) -> None:
    expect_tuple(members, "members")
    for member in members:
        visit(member, q, TreeFlow, Chain)
        expect(member.n_outcomes == members[0].n_outcomes, "members of the same outcomes")
    n_rows = 1
    if regions is not None:
        visit(regions, q, NearestPoint)
        n_rows = regions.n_regions + 1
    expect_array(log_weights, "log_weights", (n_rows, len(members)), high=1e-6, finite=False)
    with np.errstate(divide="ignore"):
        expect((np.abs(logsumexp(log_weights, axis=1)) < 1e-6).all(), "weights that sum to one")


def _chain(part: Chain, q: int, visit: Visit) -> None:
    expect_tuple(part.links, "links")
    expect_tuple(part.order, "order", len(part.links))
    expect(all(type(outcome) is int for outcome in part.order), "an order of integers")
    expect(sorted(part.order) == list(range(len(part.links))), "an order of the outcomes")
    for k, link in enumerate(part.links):
        expect(type(link) is Mixture and isinstance(link.members, tuple), "links to be mixtures")
        expect(all(type(member) is TreeFlow for member in link.members), "links to be mixtures of flows")
        visit(link, q + k, Mixture)
        expect(link.n_outcomes == 1, "links of one outcome")


def _flow(part: TreeFlow, q: int, visit: Visit) -> None:
    visit(part.standardize, q, Standardizer)
    visit(part.base, q, Support, Student, Conditional, Learnt)
    seen = q + (2 if type(part.base) is Conditional else 0)
    expect(isinstance(part.stages, tuple), "stages of trees")
    for stage in part.stages:
        visit(stage, seen, TreeSequence)
        check_axes(stage, part.base.n_outcomes)


def _learnt(part: Learnt, q: int, visit: Visit) -> None:
    visit(part.mixture, q, Mixture)
    flows = part.mixture.members
    expect(all(type(flow) is TreeFlow and type(flow.base) is not Learnt for flow in flows), "a mixture of flows")
    expect(part.mixture.n_outcomes == 1, "a mixture of one outcome")
    expect_array(part.unit, "unit", (q,), low=ABOVE_ZERO)
    expect((np.frexp(part.unit)[0] == 0.5).all(), "powers of two")
    expect_array(part.widths, "widths", (len(flows_of_bases(part.mixture)), 2), np.int64)
    expect(np.array_equal(part.widths, widths_of(part.mixture, q)), "the widths of the mixture's bases")
    expect(part.rotation is None, "no rotation")


def _nearest_point(part: NearestPoint, q: int, visit: Visit) -> None:
    visit(part.standardize, q, Standardizer)
    expect_array(part.points, "points", (-1, q))
    expect_array(part.region, "region", (len(part.points),), np.int64, 0, len(part.points) - 1)
    expect(len(part.points) > 0, "a point")


def _standardizer(part: Standardizer, q: int, visit: Visit) -> None:
    expect_array(part.unit, "unit", (q,), low=ABOVE_ZERO)
    expect_array(part.mean, "mean", (q,))
    expect_array(part.scale, "scale", (q,), low=ABOVE_ZERO, finite=False)


CHECKS: dict[type, Check] = {
    Family: _family,
    Mixture: _mixture,
    Chain: _chain,
    TreeFlow: _flow,
    Learnt: _learnt,
    NearestPoint: _nearest_point,
    Standardizer: _standardizer,
}
