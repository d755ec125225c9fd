"""Trees of the flow and the classifiers in their nodes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from treecdf._kernels.transform import LINEAR, NETWORK, TREES
from treecdf.data.basis import FEATURE_BASES
from treecdf.flows.tree import NODE, TreeSequence
from treecdf.persist.checks.values import Check, ModelFileError, Numbers, Visit, expect, expect_array, expect_contiguous

_DEEPEST_TREE = 30  # levels, as in the estimator
_MOST_LAYERS = 64


def _trees(part: TreeSequence, q: int, visit: Visit) -> None:
    nodes, theta, roots = part.nodes, part.theta, part.roots
    expect(isinstance(nodes, np.ndarray) and nodes.dtype == NODE and nodes.ndim == 1, "a table of nodes")
    expect_array(roots, "roots", (-1,), np.int64, 0, len(nodes))
    whole = len(roots) > 0 and roots[0] == 0 and roots[-1] == len(nodes) and (np.diff(roots) >= 0).all()
    expect(whole, "roots that divide the nodes into trees")
    _links(nodes, roots)
    lower, cut, upper = nodes["lower"], nodes["cut"], nodes["upper"]
    expect(((lower >= 0) & (lower < upper) & (upper <= 1)).all(), "boxes inside the cube")
    expect(((lower <= cut) & (cut <= upper)).all(), "cuts inside their boxes")
    for name in ("left_share", "rate"):
        expect_array(nodes[name], name, (-1,), low=0.0, high=1.0)
    expect_array(part.kind, "kind", (-1,), np.int64)
    expect(len(part.kind) > 0, "a kind of classifiers")
    width = _WIDTHS.get(int(part.kind[0]), _unknown_width)(part.kind[1:].tolist(), q)
    if part.kind[0] == LINEAR and isinstance(theta, np.ndarray) and theta.shape[1:] == (1,):
        width = 1  # constants have no slopes
    expect_array(theta, "theta", (len(nodes), width), finite=part.kind[0] != TREES)
    expect_contiguous(nodes, theta, roots, part.kind)
    if part.kind[0] == TREES:
        _node_trees(theta, int(part.kind[1]), 2 ** int(part.kind[2]), q)


def check_axes(trees: TreeSequence, n_outcomes: int) -> None:
    """Raise ModelFileError about nodes that cut an outcome that does not exist."""
    axis = trees.nodes["axis"]
    expect(((axis >= 0) & (axis < n_outcomes)).all(), "axes that are outcomes")


def _links(nodes: Numbers, roots: NDArray[np.int64]) -> None:
    """Check that children come after their parents, in the same tree and one level deeper."""
    depth, number = nodes["depth"], np.arange(len(nodes))
    expect(((depth >= 0) & (depth < _DEEPEST_TREE)).all(), f"trees of at most {_DEEPEST_TREE} levels")
    expect((depth[roots[:-1][np.diff(roots) > 0]] == 0).all(), "roots on the first level")
    end = np.repeat(roots[1:], np.diff(roots))
    for side in ("left", "right"):
        child = nodes[side].astype(np.int64)
        parent = child != -1
        expect((~parent | ((child > number) & (child < end))).all(), "children after their parents, in their tree")
        expect((depth[child[parent]] == depth[parent] + 1).all(), "children one level below their parents")
    children = np.concatenate([nodes[side][nodes[side] != -1] for side in ("left", "right")]).astype(np.int64)
    expect((np.bincount(children, minlength=len(nodes)) == (depth > 0)).all(), "nodes with one parent each")


def _linear_width(rest: list[int], q: int) -> int:
    expect(len(rest) == 1 and 0 <= rest[0] < len(FEATURE_BASES), "a basis")
    return 1 + len(list(FEATURE_BASES.values())[rest[0]](q))


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
    """Check that only thresholds are infinite and that columns are covariates."""
    trees = theta[:, 1:].reshape(len(theta), rounds, -1)
    inner = trees[:, :, : 3 * (n_leaves - 1)].reshape(len(theta), rounds, n_leaves - 1, 3)
    column = inner[..., 0]
    expect(((column >= 0) & (column <= q - 1)).all(), "columns of boosted trees that are covariates")
    for values in (theta[:, 0], trees[:, :, 3 * (n_leaves - 1) :], inner[..., 2]):
        expect(np.isfinite(values).all(), "finite boosted trees")


CHECKS: dict[type, Check] = {
    TreeSequence: _trees,
}
