"""Bases: boxes, Student t and the conditional mixture."""

from __future__ import annotations

import numpy as np

from treecdf._kernels.tails import DEGREES
from treecdf.bases.boosted_mixture import BoostedMixture
from treecdf.bases.box import Support
from treecdf.bases.conditional import Conditional
from treecdf.bases.learners.boosting import BoostedScores
from treecdf.bases.learners.network import FittedNetworks
from treecdf.bases.linear_mixture import LinearMixture
from treecdf.bases.linear_scale import LinearScale
from treecdf.bases.mean import Mean
from treecdf.bases.nearness import Nearness
from treecdf.bases.network_mixture import NetworkMixture
from treecdf.bases.reach import Reach
from treecdf.bases.rotation import Rotation
from treecdf.bases.stacked import Stacked
from treecdf.bases.student import Student
from treecdf.bases.transform import OutcomeTransform
from treecdf.persist.checks.learners import PREDICTORS
from treecdf.persist.checks.values import (
    ABOVE_ZERO,
    Check,
    FromFile,
    Visit,
    expect,
    expect_array,
    expect_number,
    expect_pair,
    expect_range,
    expect_tuple,
)

_LARGEST = 1e100  # so that squares and sums stay finite
_DEGREES = (1.0, 1000.0)  # of freedom, or infinitely many


def _rotation(part: Rotation, d: int, visit: Visit) -> None:
    expect_array(part.center, "center", (d,))
    expect_array(part.scale, "scale", (d,), low=ABOVE_ZERO)
    expect_array(part.matrix, "matrix", (d, d), low=-2, high=2)
    expect(np.allclose(part.matrix @ part.matrix.T, np.eye(d), rtol=0, atol=1e-6), "an orthogonal matrix")


def _turned(rotation: FromFile, d: int, visit: Visit) -> None:
    if rotation is not None:
        visit(rotation, d, Rotation)


def _support(part: Support, q: int, visit: Visit) -> None:
    expect_array(part.low, "low", (-1,))
    d = len(part.low)
    expect(d > 0, "an outcome")
    expect_array(part.high, "high", (d,))
    expect((part.low < part.high).all(), "a box with its ends in order")
    with np.errstate(over="ignore"):
        expect_array(part.width, "width of the box", (d,), low=ABOVE_ZERO)
    for tail in (part.low_tail, part.high_tail):
        expect_array(tail, "tail", (d,), low=0.0, high=0.4)
    _turned(part.rotation, d, visit)


def _student(part: Student, q: int, visit: Visit) -> None:
    expect_array(part.location, "location", (-1,))
    d = len(part.location)
    expect(d > 0, "an outcome")
    expect_array(part.scale, "scale", (d,), low=ABOVE_ZERO)
    expect_array(part.dof, "dof", (d,), low=_DEGREES[0], finite=False)
    expect(((part.dof <= _DEGREES[1]) | np.isinf(part.dof)).all(), f"dof up to {_DEGREES[1]:g} or infinite")
    _turned(part.rotation, d, visit)


def _conditional(part: Conditional, q: int, visit: Visit) -> None:
    visit(part.transform, q, OutcomeTransform)
    visit(part.components, q, Stacked, BoostedMixture, NetworkMixture, LinearMixture)
    expect(type(part.tail) is int and 0 <= part.tail < len(DEGREES), "a tail")
    expect_number(part.floor, "floor", high=10.0)
    expect_number(part.log_broad, "log_broad", high=-1e-12)
    expect_range(part.bound, "bound")
    expect_range(part.support, "support")
    expect_pair(part.range, "range")
    for end in part.range:
        expect_array(end, "range", (q,))
    expect((part.range[0] <= part.range[1]).all(), "a range with its ends in order")
    expect_pair(part.typical, "typical")
    expect_array(part.typical[0], "typical", (2,))
    expect_array(part.typical[1], "typical", (2,), low=ABOVE_ZERO)
    visit(part.reach, q, Reach)
    expect_number(part.widest, "widest", -100.0, 100.0)
    expect(part.rotation is None, "a conditional base that is not rotated")


def _reach(part: Reach, q: int, visit: Visit) -> None:
    expect_array(part.points, "points", (-1, q), low=-_LARGEST, high=_LARGEST)
    expect(len(part.points) > 0, "some points")
    expect_array(part.relevance, "relevance", (q,), low=0.0, high=1.0)
    expect_array(part.components, "components", (q, -1), low=-1.0 - 1e-9, high=1.0 + 1e-9)
    for ends, size in ((part.columns, q), (part.scores, part.components.shape[1])):
        expect_pair(ends, "ends")
        for end in ends:
            expect_array(end, "ends", (size,))
        expect((ends[0] <= ends[1]).all(), "a range with its ends in order")
    expect_number(part.near, "near", low=0.0)
    expect_number(part.size, "size", low=ABOVE_ZERO)


def _stacked(part: Stacked, q: int, visit: Visit) -> None:
    visit(part.mean, q, Mean)
    visit(part.trend, q, LinearScale)
    if part.near is not None:
        visit(part.near, q, Nearness)
    visit(part.scores, part.n_features(q), BoostedScores)
    expect(len(part.scores.start) == 2 * part.n_components, "a log scale and a logit of each component")


def _nearness(part: Nearness, q: int, visit: Visit) -> None:
    expect_array(part.metric, "metric", (q,), low=0.0, high=1.0)
    expect_array(part.points, "points", (-1, q), low=-_LARGEST, high=_LARGEST)
    expect(len(part.points) > 0, "some points")
    expect_array(part.values, "values", (len(part.points),), low=-_LARGEST, high=_LARGEST)
    expect_array(part.smallest, "smallest", (2,), low=-1000.0, high=1000.0)


def _boosted_mixture(part: BoostedMixture, q: int, visit: Visit) -> None:
    visit(part.scores, q, BoostedScores)
    n_outputs = len(part.scores.start)
    expect(n_outputs > 0 and n_outputs % 3 == 0, "a log scale, a logit and a location of each component")


def _network_mixture(part: NetworkMixture, q: int, visit: Visit) -> None:
    visit(part.networks, q, FittedNetworks)
    expect(part.networks.n_outputs % 3 == 0, "a log scale, a logit and a location of each component")
    expect_number(part.shift, "shift", -100.0, 100.0)


def _linear_mixture(part: LinearMixture, q: int, visit: Visit) -> None:
    expect_array(part.slopes, "slopes", (-1, 1 + q), low=-_LARGEST, high=_LARGEST)
    expect(len(part.slopes) > 0 and len(part.slopes) % 3 == 0, "a log scale, a logit and a location of each component")


def _linear_scale(part: LinearScale, q: int, visit: Visit) -> None:
    expect_array(part.slopes, "slopes", (q,))
    expect_number(part.offset, "offset")
    expect_pair(part.ends, "ends")
    for end in part.ends:
        expect_number(end, "ends", -1000.0, 1000.0)
    expect(part.ends[0] <= part.ends[1], "ends in order")


def _transform(part: OutcomeTransform, q: int, visit: Visit) -> None:
    expect_number(part.center, "center")
    expect_number(part.scale, "scale", low=ABOVE_ZERO)
    expect_number(part.power, "power", 0.0, 2.0)
    expect_number(part.origin, "origin")
    expect_number(part.unit, "unit", low=0.0)
    expect_range(part.ends, "ends")
    if part.unit > 0:
        expect(max(abs(part.center + part.scale * end) for end in part.ends) < 700, "ends of logarithms in range")


def _mean(part: Mean, q: int, visit: Visit) -> None:
    expect_tuple(part.predictors, "predictors")
    n = len(part.predictors)
    expect_tuple(part.names, "names", n)
    expect(all(isinstance(name, str) for name in part.names), "names of the learners")
    for predictor in part.predictors:
        visit(predictor, q, *PREDICTORS)
        expect(type(predictor) is not FittedNetworks or predictor.n_outputs == 1, "networks of one output")
    expect_array(part.weights, "weights", (n,), low=0.0, high=1.0 + 1e-6)
    expect_array(part.components, "components", (-1,), np.int64, 0, n - 1)


CHECKS: dict[type, Check] = {
    Rotation: _rotation,
    Support: _support,
    Student: _student,
    Conditional: _conditional,
    Reach: _reach,
    Stacked: _stacked,
    Nearness: _nearness,
    BoostedMixture: _boosted_mixture,
    LinearMixture: _linear_mixture,
    NetworkMixture: _network_mixture,
    LinearScale: _linear_scale,
    OutcomeTransform: _transform,
    Mean: _mean,
}
