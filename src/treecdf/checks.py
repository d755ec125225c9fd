"""Whether the parts of a model fit together, so that a model from a file can be trusted with compiled code.

Kernels index without looking. What they index with is checked here, part by part, from the mixture down to the trees,
with the number q of covariates that each part sees; numbers that are not finite where they should be are refused too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from treecdf._kernels.transform import LINEAR, NETWORK, TREES
from treecdf.base import Rotation, Student, Support
from treecdf.basis import BASES
from treecdf.conditional import Conditional, Mean
from treecdf.covariates import Category, Covariates, Number
from treecdf.ensemble import Family
from treecdf.flow import TreeFlow
from treecdf.learners.boosting import Binner, BoostedScores, FirstScore
from treecdf.learners.network import FittedNetworks
from treecdf.learners.polynomial import FittedPolynomial
from treecdf.learners.process import FittedProcess
from treecdf.mixture import Chain, Mixture
from treecdf.outcome import Transform
from treecdf.recorded import Atoms, Grid
from treecdf.regions import NearestPoint
from treecdf.steps import Sizes
from treecdf.summary import KINDS
from treecdf.table import Standardizer
from treecdf.tree import NODE, TreeSequence

_DEEPEST_TREE = 30  # levels, as in the estimator
_MOST_LAYERS = 64
_DEGREES = (1.0, 1000.0)  # of freedom


class ModelFileError(ValueError):
    """A model that cannot be saved, or a file that cannot be loaded."""


def expect(is_true: Any, what: str) -> None:
    """Complain unless it is true."""
    if not is_true:
        raise ModelFileError(f"expected {what}.")


def check_fitted(fitted: Mapping[str, Any]) -> None:
    """Complain about fitted attributes that do not fit together."""
    needed = ("mixture_", "families_", "family_weights_", "history_", "feature_importances_")
    recording = ("covariates_", "outcome_names_", "notes_", "atoms_", "grid_")
    for name in (*needed, *recording, "n_trees_", "n_features_in_", "n_outcomes_"):
        expect(name in fitted, f"the attribute {name}")
    mixture, families, weights, history, importances = (fitted[name] for name in needed)
    n_columns, d = fitted["n_features_in_"], fitted["n_outcomes_"]
    expect(type(n_columns) is int and n_columns >= 1, "a number of covariates")
    expect(type(d) is int and d >= 1, "a number of outcomes")
    visit = _Visit()
    visit(fitted["covariates_"], n_columns, Covariates)
    q = sum(column.width for column in fitted["covariates_"].columns)
    _check_recording(fitted, q, d, visit)
    visit(mixture, q, Mixture)
    expect(mixture.n_outcomes == d, f"a mixture of {d} outcome(s)")
    _tuple(families, "families_")
    for family in families:
        visit(family, q, Family)
        expect(family.members[0].n_outcomes == d, f"families of {d} outcome(s)")
    _array(weights, "family_weights_", (len(families),), low=0.0, high=1.0)
    _array(importances, "feature_importances_", (n_columns,))
    expect(fitted["n_trees_"] == sum(len(block) for flow in mixture.trees() for block in flow.blocks), "n_trees_ trees")
    expect(isinstance(history, dict) and bool(history), "a history_")
    for name, column in history.items():
        expect(isinstance(column, np.ndarray) and column.ndim == 1, f"an array {name} in history_")
        expect(len(column) == len(next(iter(history.values()))), "columns of history_ of one length")
    names = fitted.get("feature_names_in_", np.empty(n_columns, object))
    are_names = isinstance(names, np.ndarray) and names.dtype == object and names.shape == (n_columns,)
    expect(are_names, f"{n_columns} names of covariates")


def check_learnt(step: Any, n_covariates: int, shape: tuple[int, ...]) -> None:
    """Complain about what is not a part that sees so many covariates, with left-out predictions of that shape."""
    _pair(step, "a step")
    part, left_out = step
    _Visit()(part, n_covariates, *PREDICTORS, BoostedScores)
    _array(left_out, "left-out predictions", shape)
    expect(type(part) is not BoostedScores or part.start.shape == shape[1:], "scores of so many outputs")


def check_grown(trees: Any, n_trees: int, n_covariates: int, n_outcomes: int) -> None:
    """Complain about what is not a list of so many trees of these covariates and outcomes."""
    expect(isinstance(trees, list) and len(trees) == n_trees, f"{n_trees} tree(s)")
    for tree in trees:
        _Visit()(tree, n_covariates, TreeSequence)
        _axes(tree, n_outcomes)


def check_result(flows: Any, history: Any, left_out: Any, sizes: Sizes) -> None:
    """Complain about flows, a history and log densities of rows left out that no training job of such sizes gives."""
    _tuple(flows, "flows")
    visit = _Visit()
    for flow in flows:
        visit(flow, sizes.n_covariates, TreeFlow)
        expect(flow.n_outcomes == sizes.n_outcomes, f"flows of {sizes.n_outcomes} outcome(s)")
    expect((left_out is None) == (sizes.n_left_out is None), "log densities of rows left out, if there are any")
    if left_out is not None:
        _array(left_out, "left_out", (sizes.n_left_out or 0,), finite=False)
    expect(isinstance(history, dict) and set(history) == {"stage", "train", "validation", "kept"}, "a history")
    for column in history.values():
        is_column = isinstance(column, np.ndarray) and column.shape == (len(history["stage"]),)
        expect(is_column and column.dtype.kind in "ifb", "columns of a history")


def _check_recording(fitted: Mapping[str, Any], q: int, d: int, visit: _Visit) -> None:
    _texts(fitted["outcome_names_"], "outcome_names_", d)
    _texts(fitted["notes_"], "notes_")
    if fitted["atoms_"] is not None:
        expect(d == 1, "atoms of one outcome")
        visit(fitted["atoms_"], q, Atoms)
    if fitted["grid_"] is not None:
        visit(fitted["grid_"], d, Grid)


class _Visit:
    """Checks a part by the function for its class, once for each number of covariates."""

    def __init__(self) -> None:
        self._seen: set[tuple[int, int]] = set()

    def __call__(self, part: Any, q: int, *allowed: type) -> None:
        expect(type(part) in allowed, f"{' or '.join(kind.__name__ for kind in allowed)}; got {type(part).__name__}")
        if (id(part), q) not in self._seen:
            CHECKS[type(part)](part, q, self)
            self._seen.add((id(part), q))


# Values


def _tuple(value: Any, name: str, length: int | None = None) -> None:
    expect(isinstance(value, tuple) and len(value) > 0, f"{name} to be a tuple that is not empty")
    expect(length is None or len(value) == length, f"{length} of {name}; got {len(value)}")


def _texts(value: Any, name: str, length: int | None = None) -> None:
    expect(isinstance(value, tuple) and all(type(part) is str for part in value), f"{name} to be a tuple of texts")
    expect(length is None or len(value) == length, f"{length} of {name}; got {len(value)}")


def _array(
    value: Any,
    name: str,
    shape: tuple[int, ...],
    dtype: Any = np.float64,
    low: float = -np.inf,
    high: float = np.inf,
    finite: bool = True,
) -> None:
    """Complain unless it is an array of this shape (-1: any length), with numbers from low to high and no NaN."""
    expect(isinstance(value, np.ndarray) and value.dtype == np.dtype(dtype), f"{name} to be an array of {dtype}")
    fits = len(value.shape) == len(shape) and all(
        want in (-1, side) for want, side in zip(shape, value.shape, strict=True)
    )
    expect(fits, f"{name} of shape {shape}; got {value.shape}")
    expect(((value >= low) & (value <= high)).all(), f"{name} between {low:g} and {high:g}")
    expect(not finite or np.isfinite(value).all(), f"{name} to be finite")


def _for_kernels(*arrays: NDArray[Any]) -> None:
    """Kernels are compiled for such arrays; others would be compiled for anew."""
    expect(all(array.flags.c_contiguous for array in arrays), "arrays of kernels with rows next to each other")


def _number(value: Any, name: str, low: float = -np.inf, high: float = np.inf, finite: bool = True) -> None:
    expect(isinstance(value, float | int) and not isinstance(value, bool), f"{name} to be a number")
    expect(low <= value <= high and (not finite or np.isfinite(value)), f"{name} from {low:g} to {high:g}; got {value}")


def _pair(value: Any, name: str) -> None:
    expect(isinstance(value, tuple) and len(value) == 2, f"{name} to be a pair")


def _range(value: Any, name: str) -> None:
    _pair(value, name)
    for end in value:
        _number(end, name, finite=False)
    expect(value[0] < value[1], f"{name} with its ends in order")


_ABOVE_ZERO = 5e-324


# Parts, each with the number of covariates it sees


def _family(part: Family, q: int, visit: _Visit) -> None:
    _members(part.members, part.log_weights, part.regions, q, visit)
    _array(part.left_out[np.isfinite(part.left_out)], "left_out", (-1,))
    named = isinstance(part.name, str) and (part.name in KINDS or type(part.members[0]) is Chain)
    expect(named, "a family with a name")


def _mixture(part: Mixture, q: int, visit: _Visit) -> None:
    _members(part.members, part.log_weights, part.regions, q, visit)


def _members(members: Any, log_weights: Any, regions: Any, q: int, visit: _Visit) -> None:
    _tuple(members, "members")
    for member in members:
        visit(member, q, TreeFlow, Chain)
        expect(member.n_outcomes == members[0].n_outcomes, "members of the same outcomes")
    n_rows = 1
    if regions is not None:
        visit(regions, q, NearestPoint)
        n_rows = regions.n_regions + 1
    _array(log_weights, "log_weights", (n_rows, len(members)), high=1e-6, finite=False)
    with np.errstate(divide="ignore"):
        expect((np.abs(logsumexp(log_weights, axis=1)) < 1e-6).all(), "weights that sum to one")


def _chain(part: Chain, q: int, visit: _Visit) -> None:
    _tuple(part.links, "links")
    _tuple(part.order, "order", len(part.links))
    expect(all(type(outcome) is int for outcome in part.order), "an order of integers")
    expect(sorted(part.order) == list(range(len(part.links))), "an order of the outcomes")
    for k, link in enumerate(part.links):
        expect(type(link) is Mixture and isinstance(link.members, tuple), "links to be mixtures")
        expect(all(type(member) is TreeFlow for member in link.members), "links to be mixtures of flows")
        visit(link, q + k, Mixture)
        expect(link.n_outcomes == 1, "links of one outcome")


def _flow(part: TreeFlow, q: int, visit: _Visit) -> None:
    visit(part.standardize, q, Standardizer)
    visit(part.base, q, Support, Student, Conditional)
    seen = q + (2 if type(part.base) is Conditional else 0)
    expect(isinstance(part.blocks, tuple), "blocks of trees")
    for block in part.blocks:
        visit(block, seen, TreeSequence)
        _axes(block, part.base.n_outcomes)


def _nearest_point(part: NearestPoint, q: int, visit: _Visit) -> None:
    visit(part.standardize, q, Standardizer)
    _array(part.points, "points", (-1, q))
    _array(part.region, "region", (len(part.points),), np.int64, 0, len(part.points) - 1)
    expect(len(part.points) > 0, "a point")


def _standardizer(part: Standardizer, q: int, visit: _Visit) -> None:
    _array(part.unit, "unit", (q,), low=_ABOVE_ZERO)
    _array(part.mean, "mean", (q,))
    _array(part.scale, "scale", (q,), low=_ABOVE_ZERO, finite=False)


# Trees


def _trees(part: TreeSequence, q: int, visit: _Visit) -> None:
    nodes, theta, roots = part.nodes, part.theta, part.roots
    expect(isinstance(nodes, np.ndarray) and nodes.dtype == NODE and nodes.ndim == 1, "a table of nodes")
    _array(roots, "roots", (-1,), np.int64, 0, len(nodes))
    whole = len(roots) > 0 and roots[0] == 0 and roots[-1] == len(nodes) and (np.diff(roots) >= 0).all()
    expect(whole, "roots that divide the nodes into trees")
    _links(nodes, roots)
    lower, cut, upper = nodes["lower"], nodes["cut"], nodes["upper"]
    expect(((lower >= 0) & (lower < upper) & (upper <= 1)).all(), "boxes inside the cube")
    expect(((lower <= cut) & (cut <= upper)).all(), "cuts inside their boxes")
    for name in ("left_share", "rate"):
        _array(nodes[name], name, (-1,), low=0.0, high=1.0)
    _array(part.kind, "kind", (-1,), np.int64)
    expect(len(part.kind) > 0, "a kind of classifiers")
    width = _WIDTHS.get(int(part.kind[0]), _unknown_width)(part.kind[1:].tolist(), q)
    if part.kind[0] == LINEAR and isinstance(theta, np.ndarray) and theta.shape[1:] == (1,):
        width = 1  # constants have no slopes
    _array(theta, "theta", (len(nodes), width), finite=part.kind[0] != TREES)
    _for_kernels(nodes, theta, roots, part.kind)
    if part.kind[0] == TREES:
        _node_trees(theta, int(part.kind[1]), 2 ** int(part.kind[2]), q)


def _axes(trees: TreeSequence, n_outcomes: int) -> None:
    axis = trees.nodes["axis"]
    expect(((axis >= 0) & (axis < n_outcomes)).all(), "axes that are outcomes")


def _links(nodes: NDArray[Any], roots: NDArray[np.int64]) -> None:
    """Children come after their parents, in the same tree and one level deeper."""
    depth, number = nodes["depth"], np.arange(len(nodes))
    expect(((depth >= 0) & (depth < _DEEPEST_TREE)).all(), f"trees of at most {_DEEPEST_TREE} levels")
    expect((depth[roots[:-1][np.diff(roots) > 0]] == 0).all(), "roots on the first level")
    end = np.repeat(roots[1:], np.diff(roots))
    for side in ("left", "right"):
        child = nodes[side].astype(np.int64)
        parent = child != -1
        expect((~parent | ((child > number) & (child < end))).all(), "children after their parents, in their tree")
        expect((depth[child[parent]] == depth[parent] + 1).all(), "children one level below their parents")


def _linear_width(rest: list[int], q: int) -> int:
    expect(len(rest) == 1 and 0 <= rest[0] < len(BASES), "a basis")
    return 1 + len(list(BASES.values())[rest[0]](q))


def _network_width(rest: list[int], q: int) -> int:
    expect(0 < len(rest) <= _MOST_LAYERS and min(rest) >= 1, "layers of units")
    sizes = (q, *rest, 1)
    return sum((n_in + 1) * n_out for n_in, n_out in pairwise(sizes))


def _trees_width(rest: list[int], q: int) -> int:
    expect(len(rest) == 2 and 1 <= rest[0] <= 1000 and 1 <= rest[1] <= 10, "rounds and depth of boosted trees")
    return 1 + rest[0] * (4 * 2 ** rest[1] - 3)


def _unknown_width(rest: list[int], q: int) -> int:
    raise ModelFileError("expected a kind of classifiers that kernels know.")


_WIDTHS = {LINEAR: _linear_width, NETWORK: _network_width, TREES: _trees_width}


def _node_trees(theta: NDArray[np.float64], rounds: int, n_leaves: int, q: int) -> None:
    """Only thresholds may be infinite, and columns are covariates."""
    trees = theta[:, 1:].reshape(len(theta), rounds, -1)
    inner = trees[:, :, : 3 * (n_leaves - 1)].reshape(len(theta), rounds, n_leaves - 1, 3)
    column = inner[..., 0]
    expect(((column >= 0) & (column <= q - 1)).all(), "columns of boosted trees that are covariates")
    for values in (theta[:, 0], trees[:, :, 3 * (n_leaves - 1) :], inner[..., 2]):
        expect(np.isfinite(values).all(), "finite boosted trees")


# Bases


def _rotation(part: Rotation, d: int, visit: _Visit) -> None:
    _array(part.center, "center", (d,))
    _array(part.scale, "scale", (d,), low=_ABOVE_ZERO)
    _array(part.matrix, "matrix", (d, d), low=-2, high=2)
    expect(np.allclose(part.matrix @ part.matrix.T, np.eye(d), rtol=0, atol=1e-6), "an orthogonal matrix")


def _turned(rotation: Any, d: int, visit: _Visit) -> None:
    if rotation is not None:
        visit(rotation, d, Rotation)


def _support(part: Support, q: int, visit: _Visit) -> None:
    _array(part.low, "low", (-1,))
    d = len(part.low)
    expect(d > 0, "an outcome")
    _array(part.high, "high", (d,))
    expect((part.low < part.high).all(), "a box with its ends in order")
    with np.errstate(over="ignore"):
        _array(part.width, "width of the box", (d,), low=_ABOVE_ZERO)
    for tail in (part.low_tail, part.high_tail):
        _array(tail, "tail", (d,), low=0.0, high=0.4)
    _turned(part.rotation, d, visit)


def _student(part: Student, q: int, visit: _Visit) -> None:
    _array(part.location, "location", (-1,))
    d = len(part.location)
    expect(d > 0, "an outcome")
    _array(part.scale, "scale", (d,), low=_ABOVE_ZERO)
    _array(part.dof, "dof", (d,), low=_DEGREES[0], high=_DEGREES[1])
    _turned(part.rotation, d, visit)


def _conditional(part: Conditional, q: int, visit: _Visit) -> None:
    visit(part.transform, q, Transform)
    visit(part.mean, q, Mean)
    n_components = 1 + len(part.mean.components)
    visit(part.scores, q + n_components, BoostedScores)
    expect(len(part.scores.start) == 2 * n_components, "a log scale and a logit of each component")
    _number(part.floor, "floor", high=10.0)
    _number(part.log_broad, "log_broad", high=-1e-12)
    _range(part.bound, "bound")
    _range(part.support, "support")
    _pair(part.range, "range")
    for end in part.range:
        _array(end, "range", (q,))
    expect((part.range[0] <= part.range[1]).all(), "a range with its ends in order")
    _pair(part.typical, "typical")
    _array(part.typical[0], "typical", (2,))
    _array(part.typical[1], "typical", (2,), low=_ABOVE_ZERO)
    expect(part.rotation is None, "a conditional base that is not rotated")


def _transform(part: Transform, q: int, visit: _Visit) -> None:
    _number(part.center, "center")
    _number(part.scale, "scale", low=_ABOVE_ZERO)
    _number(part.power, "power", 0.0, 2.0)
    _number(part.origin, "origin")
    _number(part.unit, "unit", low=0.0)
    _range(part.ends, "ends")
    if part.unit > 0:
        expect(max(abs(part.center + part.scale * end) for end in part.ends) < 700, "ends of logarithms in range")


def _mean(part: Mean, q: int, visit: _Visit) -> None:
    _tuple(part.predictors, "predictors")
    n = len(part.predictors)
    _tuple(part.names, "names", n)
    expect(all(isinstance(name, str) for name in part.names), "names of the learners")
    for predictor in part.predictors:
        visit(predictor, q, *PREDICTORS)
    _array(part.weights, "weights", (n,), low=0.0, high=1.0 + 1e-6)
    _array(part.components, "components", (-1,), np.int64, 0, n - 1)


# Learners


def _polynomial(part: FittedPolynomial, q: int, visit: _Visit) -> None:
    expect(type(part.degree) is int and 1 <= part.degree <= 3, "a degree from 1 to 3")
    n_features = comb(q + part.degree, part.degree) - 1
    _array(part.low, "low", (q,))
    _array(part.high, "high", (q,))
    expect((part.low <= part.high).all(), "a range with its ends in order")
    _array(part.center, "center", (n_features,))
    _array(part.scale, "scale", (n_features,), low=_ABOVE_ZERO, finite=False)
    _array(part.coefficients, "coefficients", (n_features,))
    _number(part.offset, "offset")


def _process(part: FittedProcess, q: int, visit: _Visit) -> None:
    _array(part.log_params, "log_params", (q + 3,), low=-100.0, high=100.0)
    _array(part.inducing, "inducing", (-1, q))
    _array(part.weights, "weights", (len(part.inducing),))
    _array(part.slopes, "slopes", (q,))


def _networks(part: FittedNetworks, q: int, visit: _Visit) -> None:
    _tuple(part.layers, "layers")
    n_folds, n_in = -1, q
    for layer in part.layers:
        _pair(layer, "a layer")
        matrix, bias = layer
        _array(matrix, "weights of a layer", (n_folds, n_in, -1), np.float32)
        n_folds, _, n_in = matrix.shape
        _array(bias, "biases of a layer", (n_folds, 1, n_in), np.float32)
    expect(n_folds >= 1 and n_in == 1, "networks of one output")


def _first_score(part: FirstScore, q: int, visit: _Visit) -> None:
    visit(part.scores, q, BoostedScores)
    expect(len(part.scores.start) == 1, "scores of one output")


def _boosted_scores(part: BoostedScores, q: int, visit: _Visit) -> None:
    visit(part.binner, q, Binner)
    _array(part.start, "start", (-1,))
    _number(part.rate, "rate")
    _array(part.leaf, "leaf", (-1, -1, len(part.start)))
    n_trees, n_leaves, _ = part.leaf.shape
    expect(n_leaves >= 1 and n_leaves & (n_leaves - 1) == 0, "a power of two of leaves")
    _array(part.column, "column", (n_trees, n_leaves - 1), np.int64, -1, q - 1)
    _array(part.cut, "cut", (n_trees, n_leaves - 1), np.int64)
    _array(part.missing_left, "missing_left", (n_trees, n_leaves - 1), np.int64, 0, 1)
    _for_kernels(part.leaf, part.column, part.cut, part.missing_left)


def _binner(part: Binner, q: int, visit: _Visit) -> None:
    _tuple(part.edges, "edges", q)
    for edges in part.edges:
        _array(edges, "edges", (-1,), finite=False)
        expect(len(edges) < 255 and (np.diff(edges) >= 0).all(), "fewer than 255 edges in order")
    expect(type(part.n_bins) is int and 1 <= part.n_bins <= 255, "a number of bins")


# What the user's columns and outcomes were


def _covariates(part: Covariates, n_columns: int, visit: _Visit) -> None:
    _tuple(part.columns, "columns", n_columns)
    for column in part.columns:
        visit(column, 1, Number, Category)


def _number_column(part: Number, q: int, visit: _Visit) -> None:
    _number(part.median, "median")
    expect(type(part.has_gaps) is bool, "has_gaps to be true or false")


def _category(part: Category, q: int, visit: _Visit) -> None:
    _texts(part.levels, "levels")
    expect(len(set(part.levels)) == len(part.levels), "levels that differ")
    expect(type(part.n_indicators) is int, "a number of indicators")
    expect(1 <= part.n_indicators <= max(1, len(part.levels)), "indicators of levels")
    if isinstance(part.means, np.ndarray) and part.means.size:
        _array(part.means, "means", (len(part.levels) + 1, -1))
    else:
        _array(part.means, "means", (0, 0))


def _atoms(part: Atoms, q: int, visit: _Visit) -> None:
    _array(part.values, "values", (-1,))
    expect(len(part.values) > 0 and (np.diff(part.values) > 0).all(), "atoms in order")
    visit(part.standardize, q, Standardizer)
    visit(part.scores, q, BoostedScores)
    expect(len(part.scores.start) == len(part.values) + 1, "scores of no atom and of each")


def _grid(part: Grid, d: int, visit: _Visit) -> None:
    _array(part.origin, "origin", (d,))
    _array(part.step, "step", (d,), low=0.0)


PREDICTORS = (FittedPolynomial, FittedProcess, FittedNetworks, FirstScore)

# Every class that may be part of a model file, and how it is checked
CHECKS: dict[type, Callable[[Any, int, _Visit], None]] = {
    Mixture: _mixture,
    Family: _family,
    Chain: _chain,
    TreeFlow: _flow,
    TreeSequence: _trees,
    Standardizer: _standardizer,
    NearestPoint: _nearest_point,
    Support: _support,
    Student: _student,
    Rotation: _rotation,
    Conditional: _conditional,
    Transform: _transform,
    Mean: _mean,
    FittedPolynomial: _polynomial,
    FittedProcess: _process,
    FittedNetworks: _networks,
    FirstScore: _first_score,
    BoostedScores: _boosted_scores,
    Binner: _binner,
    Covariates: _covariates,
    Number: _number_column,
    Category: _category,
    Atoms: _atoms,
    Grid: _grid,
}
