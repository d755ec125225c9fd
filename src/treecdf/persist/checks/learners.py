"""Fitted learners of the conditional base."""

from __future__ import annotations

from math import comb

import numpy as np

from treecdf.bases.learners.boosting import BoostedScores, FirstScore
from treecdf.bases.learners.neighbours import FittedNeighbours
from treecdf.bases.learners.network import FittedNetworks
from treecdf.bases.learners.polynomial import FittedPolynomial
from treecdf.bases.learners.process import FittedProcess
from treecdf.bases.straightening import OnNewScale, Straightener
from treecdf.data.binning import Bins
from treecdf.persist.checks.values import (
    ABOVE_ZERO,
    Check,
    Visit,
    expect,
    expect_array,
    expect_contiguous,
    expect_number,
    expect_pair,
    expect_tuple,
)

_LARGEST = 1e100  # so that squares and sums stay finite
_MOST_NEIGHBOURS = 1000
PLAIN_PREDICTORS = (FittedPolynomial, FittedProcess, FittedNetworks, FittedNeighbours, FirstScore)
PREDICTORS = (*PLAIN_PREDICTORS, OnNewScale)


def _polynomial(part: FittedPolynomial, q: int, visit: Visit) -> None:
    expect(type(part.degree) is int and 1 <= part.degree <= 3, "a degree from 1 to 3")
    n_features = comb(q + part.degree, part.degree) - 1
    expect_array(part.low, "low", (q,))
    expect_array(part.high, "high", (q,))
    expect((part.low <= part.high).all(), "a range with its ends in order")
    expect_array(part.center, "center", (n_features,))
    expect_array(part.scale, "scale", (n_features,), low=ABOVE_ZERO, finite=False)
    expect_array(part.coefficients, "coefficients", (n_features,))
    expect_number(part.offset, "offset")


def _process(part: FittedProcess, q: int, visit: Visit) -> None:
    expect_array(part.log_params, "log_params", (q + 3,), low=-100.0, high=100.0)
    expect_array(part.inducing, "inducing", (-1, q))
    expect_array(part.weights, "weights", (len(part.inducing),))
    expect_array(part.slopes, "slopes", (q,))


def _neighbours(part: FittedNeighbours, q: int, visit: Visit) -> None:
    expect_array(part.points, "points", (-1, q), low=-_LARGEST, high=_LARGEST)
    n = len(part.points)
    expect(type(part.k) is int and 1 <= part.k <= _MOST_NEIGHBOURS and n > 0, "some neighbours")
    expect_array(part.values, "values", (n,), low=-_LARGEST, high=_LARGEST)
    expect_array(part.weight, "weight", (n,), low=1 / _LARGEST, high=_LARGEST)


def _networks(part: FittedNetworks, q: int, visit: Visit) -> None:
    expect_tuple(part.layers, "layers")
    n_folds, n_in = -1, q
    for layer in part.layers:
        expect_pair(layer, "a layer")
        matrix, bias = layer
        expect_array(matrix, "weights of a layer", (n_folds, n_in, -1), np.float32)
        n_folds, _, n_in = matrix.shape
        expect_array(bias, "biases of a layer", (n_folds, 1, n_in), np.float32)
    expect(n_folds >= 1 and n_in >= 1, "networks with an output")


def _first_score(part: FirstScore, q: int, visit: Visit) -> None:
    visit(part.scores, q, BoostedScores)
    expect(len(part.scores.start) == 1, "scores of one output")


def _on_new_scale(part: OnNewScale, q: int, visit: Visit) -> None:
    visit(part.scale, q, Straightener)
    visit(part.predictor, q, *PLAIN_PREDICTORS)


def _straightener(part: Straightener, q: int, visit: Visit) -> None:
    expect_array(part.columns, "columns", (-1,), np.int64, 0, q - 1)
    expect(len(np.unique(part.columns)) == len(part.columns), "columns that differ")
    expect_array(part.scores, "scores", (-1,))
    expect_array(part.knots, "knots", (len(part.columns), len(part.scores)))
    expect(len(part.scores) > 0 and (part.knots[:, 1:] >= part.knots[:, :-1]).all(), "knots in order")


def _boosted_scores(part: BoostedScores, q: int, visit: Visit) -> None:
    visit(part.bins, q, Bins)
    expect_array(part.start, "start", (-1,))
    expect_number(part.rate, "rate")
    expect_array(part.leaf, "leaf", (-1, -1, len(part.start)))
    n_trees, n_leaves, _ = part.leaf.shape
    expect(n_leaves >= 1 and n_leaves & (n_leaves - 1) == 0, "a power of two of leaves")
    expect_array(part.column, "column", (n_trees, n_leaves - 1), np.int64, -1, q - 1)
    expect_array(part.cut, "cut", (n_trees, n_leaves - 1), np.int64)
    expect_array(part.missing_left, "missing_left", (n_trees, n_leaves - 1), np.int64, 0, 1)
    expect_contiguous(part.leaf, part.column, part.cut, part.missing_left)


def _bins(part: Bins, q: int, visit: Visit) -> None:
    expect_array(part.edges, "edges", (q, -1), finite=False)
    expect(part.n_bins < 256 and (part.edges[:, 1:] >= part.edges[:, :-1]).all(), "fewer than 255 edges in order")


CHECKS: dict[type, Check] = {
    FittedPolynomial: _polynomial,
    FittedProcess: _process,
    FittedNeighbours: _neighbours,
    FittedNetworks: _networks,
    FirstScore: _first_score,
    OnNewScale: _on_new_scale,
    Straightener: _straightener,
    BoostedScores: _boosted_scores,
    Bins: _bins,
}
