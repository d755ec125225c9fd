"""Parts of a model of compositions."""

from __future__ import annotations

import numpy as np

from treecdf.data.scaling import Standardizer
from treecdf.flows.composition.presence import Effects, EffectsWithTrend, Presence
from treecdf.flows.composition.ratios import Link
from treecdf.flows.composition.reads import Depths
from treecdf.flows.composition.subjects import Memory, Subjects
from treecdf.flows.mixture import Mixture
from treecdf.persist.checks.values import ABOVE_ZERO, Check, Visit, expect, expect_array, expect_number, expect_tuple

_LARGEST = 1e100  # so that sums of products stay finite


def _effects(part: Effects, q: int, visit: Visit) -> None:
    visit(part.standardize, q, Standardizer)
    expect_array(part.low, "low", (q,), low=-_LARGEST)
    expect_array(part.high, "high", (q,), high=_LARGEST)
    expect((part.low <= part.high).all(), "a range with its ends in order")
    expect_tuple(part.knots, "knots", q)
    for knots in part.knots:
        expect_array(knots, "knots", (-1,), low=-_LARGEST, high=_LARGEST)


def _effects_with_trend(part: EffectsWithTrend, q: int, visit: Visit) -> None:
    visit(part.own, q, Effects)
    expect_array(part.trend, "trend", (part.own.width,), low=-_LARGEST, high=_LARGEST)


def _presence(part: Presence, n_effects: int, visit: Visit) -> None:
    expect_array(part.order, "order", (-1,), np.int64)
    n_taxa = len(part.order)
    expect(n_taxa > 0 and (np.sort(part.order) == np.arange(n_taxa)).all(), "an order of the taxa")
    expect_array(part.intercept, "intercept", (n_taxa,), low=-_LARGEST, high=_LARGEST)
    expect_tuple(part.slopes, "slopes", n_taxa)
    for k, slopes in enumerate(part.slopes):
        expect_array(slopes, "slopes", (n_effects + 1 + k,), low=-_LARGEST, high=_LARGEST)
    expect_number(part.largest, "largest", 0.0)


def _link(part: Link, n_columns: int, visit: Visit) -> None:
    expect_array(part.center, "center", (-1,), low=-_LARGEST, high=_LARGEST)
    expect_array(part.scale, "scale", part.center.shape, low=ABOVE_ZERO, finite=False)
    expect_array(part.slopes, "slopes", part.center.shape, low=-_LARGEST, high=_LARGEST)
    visit(part.flow, n_columns, Mixture)
    expect(part.flow.n_outcomes == 1, "a flow of one log ratio")


def _depths(part: Depths, _: int, visit: Visit) -> None:
    expect_array(part.quantiles, "quantiles", (101,), low=1.0, high=_LARGEST)
    expect((np.diff(part.quantiles) >= 0).all(), "quantiles in order")


def _memory(part: Memory, n_taxa: int, visit: Visit) -> None:
    expect_array(part.lasting, "lasting", (n_taxa,), low=0.0, high=1.0)
    expect_array(part.passing, "passing", (n_taxa,), low=0.0, high=1.0)
    expect((part.lasting + part.passing < 1).all(), "correlations below one")
    expect_array(part.scale, "scale", (n_taxa,), low=ABOVE_ZERO)


def _subjects(part: Subjects, n_taxa: int, visit: Visit) -> None:
    visit(part.presence, n_taxa, Memory)
    visit(part.ratio, n_taxa, Memory)
    expect(isinstance(part.has_times, bool), "whether there were times")


CHECKS: dict[type, Check] = {
    Effects: _effects,
    EffectsWithTrend: _effects_with_trend,
    Presence: _presence,
    Link: _link,
    Depths: _depths,
    Memory: _memory,
    Subjects: _subjects,
}
