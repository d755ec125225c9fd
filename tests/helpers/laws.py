"""Laws that every transform obeys, and random trees to try them on.

A transform has `forward_and_log_det(y, x)` and `inverse(u, x)`, with m points at each row of covariates: y and u are
(n, m, d), x is (n, q). A law takes a transform and the points to try it at, and fails by assertion.
"""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from scipy.special import expit, logit

from treecdf._kernels.transform import LINEAR, NETWORK, PYTHON, TREES
from treecdf.bases.box import Support
from treecdf.flows.tree import NODE, TreeSequence

KINDS = {  # of compiled node classifiers
    "logistic": (LINEAR, 0),
    "hinges": (LINEAR, 1),
    "cubic": (LINEAR, 2),
    "mlp": (NETWORK, 4, 4),
    "trees": (TREES, 3, 2),
}
STRIDE = 2**-20  # of finite differences: exact in binary, so that it adds no rounding of its own


# Random trees


def random_trees(rng, n_trees, depth, d, q, kind, *, c0=0.05, gamma=0.5, steepness=1.0):
    """A TreeSequence of random trees; kind is one of KINDS or "objects" (logistic, served by Python objects).

    Probabilities scatter around the uniform share, the more so the greater the steepness.
    """
    if kind == "objects":
        return as_objects(random_trees(rng, n_trees, depth, d, q, "logistic", c0=c0, gamma=gamma, steepness=steepness))
    trees = []
    for _ in range(n_trees):
        nodes = random_tree(rng, depth, d, c0, gamma)
        theta = steepness * rng.normal(size=(len(nodes), n_parameters(KINDS[kind], q)))
        theta[:, -1 if kind == "mlp" else 0] += logit(nodes["left_share"])
        if kind == "trees":
            random_splits(rng, KINDS[kind], theta, q)
        trees.append(TreeSequence(nodes, theta, np.array([0, len(nodes)]), np.array(KINDS[kind])))
    return TreeSequence.join(trees)


def n_parameters(kind, q):
    """Of a node's classifier of q covariates."""
    if kind[0] == NETWORK:
        return sum(n_out * (n_in + 1) for n_in, n_out in pairwise((q, *kind[1:], 1)))
    if kind[0] == TREES:
        return 1 + kind[1] * (4 * 2 ** kind[2] - 3)
    return 1 + q * (1, 6, 3)[kind[1]]


def random_splits(rng, kind, theta, q):
    """Make the inner nodes of packed x-trees valid: columns, thresholds, and where missing values go."""
    inner = theta[:, 1:].reshape(len(theta), kind[1], -1)[:, :, : 3 * (2 ** kind[2] - 1)]
    inner[..., 0::3] = rng.integers(0, q, inner[..., 0::3].shape)
    inner[..., 1::3] = rng.choice([-0.5, 0.0, 0.7, np.inf], inner[..., 1::3].shape)
    inner[..., 2::3] = rng.integers(0, 2, inner[..., 2::3].shape)


def random_tree(rng, depth, d, c0, gamma):
    """Node table of one tree, level by level; a fifth of the nodes below the root are leaves."""
    nodes = []
    level = [(np.zeros(d), np.ones(d), None, None)]  # box, and the parent's row and side
    for number in range(depth):
        below = []
        for lower, upper, parent, side in level:
            if parent is not None and rng.random() < 0.2:
                continue
            axis, share = rng.integers(d), rng.integers(1, 21) / 21
            node = np.zeros(1, NODE)
            node["axis"], node["depth"], node["left"], node["right"] = axis, number, -1, -1
            node["lower"], node["upper"], node["left_share"] = lower[axis], upper[axis], share
            node["cut"] = cut = lower[axis] + share * (upper[axis] - lower[axis])
            node["rate"] = c0 * (1 - np.log2(upper - lower).sum()) ** -gamma
            if parent is not None:
                nodes[parent][side] = len(nodes)
            left_upper, right_lower = upper.copy(), lower.copy()
            left_upper[axis] = right_lower[axis] = cut
            below += [(lower, left_upper, len(nodes), "left"), (right_lower, upper, len(nodes), "right")]
            nodes.append(node)
        level = below
    return np.concatenate(nodes)


@dataclass(frozen=True)
class PythonClassifier:
    """The same classifier as a node's packed parameters, as the object that the level-wise path asks."""

    theta: np.ndarray
    kind: tuple[int, ...]

    def left_prob(self, x):
        """Probability of the left child at covariates x (n, q)."""
        return expit(logit_of(self.theta, self.kind, x))


def logit_of(theta, kind, x):
    """Log-odds (n,) of a node with packed parameters `theta` (P,)."""
    if kind[0] == LINEAR:
        return theta[0] + features_of(kind, x) @ theta[1:]
    if kind[0] == TREES:
        return theta[0] + np.array([tree_leaves(theta, kind, row) for row in x])
    value, offset = x, 0
    for n_out in (*kind[1:], 1):
        n_weights = n_out * value.shape[1]
        weights = theta[offset : offset + n_weights].reshape(n_out, -1)
        inputs = value @ weights.T + theta[offset + n_weights : offset + n_weights + n_out]
        value, offset = np.maximum(inputs, 0.0), offset + n_weights + n_out
    return inputs[:, 0]


def features_of(kind, x):
    """Features (n, p) that linear log-odds are linear in, covariate by covariate."""
    columns = []
    for column in x.T:
        if kind[1] == 1:
            columns += [column, *(np.maximum(column, knot) for knot in (-1.0, -0.5, 0.0, 0.5, 1.0))]
        else:
            columns += [column**power for power in range(1, kind[1] + 2)]
    return np.column_stack(columns)


def tree_leaves(theta, kind, row):
    """Sum of the leaves that one row of covariates falls into, one in every x-tree of a node."""
    _, rounds, depth = kind
    total = 0.0
    for tree in theta[1:].reshape(rounds, -1):
        inner, leaves = tree[: -(2**depth)].reshape(-1, 3), tree[-(2**depth) :]
        k = 0  # counted from the root through all levels; the children of k are 2 k + 1 and 2 k + 2
        for _ in range(depth):
            column, threshold, missing_left = inner[k]
            value = row[int(column)]
            left = missing_left == 1 if np.isnan(value) else value <= threshold
            k = 2 * k + (1 if left else 2)
        total += leaves[k - len(inner)]
    return total


def as_objects(trees):
    """The same trees, with Python objects as node classifiers."""
    theta = np.empty((len(trees.theta), 1), dtype=object)
    for i, parameters in enumerate(trees.theta):
        theta[i, 0] = PythonClassifier(parameters, tuple(trees.kind))
    return replace(trees, theta=theta, kind=np.array([PYTHON]))


@dataclass(frozen=True)
class SupportTransform:
    """The support alone, without trees, as a transform."""

    support: Support

    def forward_and_log_det(self, y, x):
        """Outcomes (n, m, d) -> the cube."""
        v, log_det = self.support.to_box(y)
        return self.support.to_unit(v), log_det

    def inverse(self, u, x):
        """The cube -> outcomes (n, m, d)."""
        return self.support.from_box(self.support.from_unit(u))


# Laws


def inverse_undoes_forward(transform, y, x, scale=1.0):
    """Data -> uniform -> data; `scale` is the length of the box, whose 1e-9 is the tolerance."""
    u, _ = transform.forward_and_log_det(y, x)
    assert np.abs(u - y).max() > 1e-3, "the identity would prove nothing"
    np.testing.assert_allclose((transform.inverse(u, x) - y) / scale, 0.0, atol=1e-9)


def forward_undoes_inverse(transform, u, x):
    """Uniform -> data -> uniform."""
    np.testing.assert_allclose(transform.forward_and_log_det(transform.inverse(u, x), x)[0], u, atol=1e-9)


def log_det_is_that_of_the_jacobian(transform, y, x, scale=1.0):
    """The log-determinant equals that of the full Jacobian by central differences, away from cuts.

    A difference crosses a cut if the log-determinant differs at its ends; most points must not.
    """
    d = y.shape[2]
    _, log_det = transform.forward_and_log_det(y, x)
    jacobian, crosses = np.empty((*y.shape, d)), np.zeros(log_det.shape, bool)
    for k in range(d):
        stride = STRIDE * np.broadcast_to(scale, d)[k] * np.eye(d)[k]
        above, log_det_above = transform.forward_and_log_det(y + stride, x)
        below, log_det_below = transform.forward_and_log_det(y - stride, x)
        jacobian[..., k] = (above - below) / (2 * stride[k])
        crosses |= np.maximum(abs(log_det_above - log_det), abs(log_det_below - log_det)) > 1e-4
    assert crosses.mean() < 0.1
    sign, expected = np.linalg.slogdet(jacobian[~crosses])
    assert (sign > 0).all()
    np.testing.assert_allclose(log_det[~crosses], expected, atol=1e-5)


def stays_in_the_cube(transform, u, x):
    """Images and preimages of points of (0, 1]^d are points of (0, 1]^d, with finite log-determinants."""
    image, log_det = transform.forward_and_log_det(u, x)
    assert np.isfinite(log_det).all()
    for points in (image, transform.inverse(u, x)):
        assert ((points > 0) & (points <= 1)).all()


def integrates_to_one(transform, x, edges, n_tail=0):
    """The density of y integrates to one at every row of x.

    edges: for each outcome, ascending ends of the cells of the box; midpoint rule over the cells, and over n_tail
    points on each side of the box, at distances 1 / t - 1 box lengths for t in (0, 1).
    """
    t = (np.arange(n_tail) + 0.5) / max(n_tail, 1)
    nodes, weights = [], []
    for edge in edges:
        length = edge[-1] - edge[0]
        beyond, tail = length * (1 / t - 1), length * t**-2 / max(n_tail, 1)
        nodes.append(np.concatenate([edge[0] - beyond, (edge[1:] + edge[:-1]) / 2, edge[-1] + beyond]))
        weights.append(np.concatenate([tail, np.diff(edge), tail]))
    y = np.stack(np.meshgrid(*nodes, indexing="ij"), axis=-1).reshape(-1, len(edges))
    weight = np.prod(np.stack(np.meshgrid(*weights, indexing="ij"), axis=-1), axis=-1).ravel()
    density = np.exp(transform.forward_and_log_det(np.tile(y, (len(x), 1, 1)), x)[1])
    assert np.ptp(density) > 0, "a constant density would prove nothing"
    np.testing.assert_allclose(density @ weight, 1.0, atol=1e-3)


def increases(transform, y, x):
    """One outcome: the transform increases along ascending y (n, m, 1), strictly."""
    assert (np.diff(y, axis=1) > 0).all()
    assert (np.diff(transform.forward_and_log_det(y, x)[0], axis=1) > 0).all()
