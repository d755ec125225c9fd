"""The tree flow of the paper, written slowly and literally: the oracle of the test suite.

It shares no code with the package. Algorithm 2 is `grow_tree`, Algorithm 1 is `train_flow`, appendix A is
`forward_and_log_det` and `inverse`. Where the paper has a slip, the corrected form is used and marked "slip".

Throughout: `x` (n, q) standardised covariates, `u` (n, d) outcomes in (0, 1]^d, label 1 means "left".
"""

import warnings
from collections import deque
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier


def logistic(tol=1e-4):
    """The paper's logistic node classifier; a smaller `tol` takes the optimiser's slack out."""
    return LogisticRegression(random_state=42, max_iter=1000, solver="lbfgs", tol=tol)


def mlp(hidden=(4, 4), random_state=42):
    """The paper's multilayer perceptron node classifier; a RandomState gives each its own starting weights."""
    return MLPClassifier(random_state=random_state, max_iter=1000, solver="lbfgs", hidden_layer_sizes=hidden)


@dataclass
class Node:
    """A node A with box prod_j (lower_j, upper_j]; the fields after `n` are set only when it is split."""

    lower: np.ndarray  # a, shape (d,)
    upper: np.ndarray  # b, shape (d,)
    n: int  # n(A), training rows inside the box
    axis: int | None = None  # j
    cut: float | None = None  # s_j; a row is left iff u_j <= s_j
    left_share: float | None = None  # f = mu(A_l) / mu(A)
    rate: float | None = None  # c(A)
    model: Any = None  # fitted classifier, None when a child is empty
    share: float | None = None  # the constant p that replaces the model when a child is empty
    gain: float | None = None  # l_bin + C_A of the split, penalty included
    left: "Node | None" = None
    right: "Node | None" = None

    @property
    def is_leaf(self):
        return self.left is None


def grow_tree(
    x,
    u,
    make_classifier,
    *,
    max_depth=6,
    min_samples=10,
    grid_size=20,
    eta=0.1,
    c0=0.05,
    gamma=0.5,
    split_search="exhaustive",
):
    """Algorithm 2 with the shrinkage of section 2.3: the root of a tree grown breadth first."""
    d = u.shape[1]
    root = Node(np.zeros(d), np.ones(d), len(u))
    queue = deque([(root, x, u)])
    for _ in range(max_depth):
        for _ in range(len(queue)):  # the level as it was before its children joined the queue
            node, x_node, u_node = queue.popleft()
            if node.n < min_samples:
                continue
            split = best_split(node, x_node, u_node, make_classifier, grid_size, eta, split_search)
            if split is None:
                continue
            vars(node).update(vars(split))  # in place, because the parent already points to this node
            volume = np.prod(node.upper - node.lower)
            node.rate = c0 * (1 - np.log2(volume)) ** -gamma  # slip: printed 1 + log2, undefined below 1/2
            is_left = u_node[:, node.axis] <= node.cut
            add_children(node, is_left)
            queue.append((node.left, x_node[is_left], u_node[is_left]))
            queue.append((node.right, x_node[~is_left], u_node[~is_left]))
    return root


def candidate_cuts(node, grid_size, split_search):
    """Yield every (axis, cut) to try: axis by axis, cuts ascending, equally spaced inside the box."""
    if split_search not in ("exhaustive", "middle"):
        raise ValueError(f"Expected split_search 'exhaustive' or 'middle'; got {split_search!r}")
    size = 1 if split_search == "middle" else grid_size
    for axis, (a, b) in enumerate(zip(node.lower, node.upper, strict=True)):
        for k in range(1, size + 1):
            yield axis, a + (b - a) * k / (size + 1)


def best_split(node, x, u, make_classifier, grid_size, eta, split_search):
    """Steps 1 and 2 of section 2.2: train a classifier per candidate, keep the first best by l_bin + C_A.

    Slip: step 1 prints argmin, but l_bin is a log-likelihood. None if every candidate scores -inf.
    """
    best, highest = None, -np.inf
    for axis, cut in candidate_cuts(node, grid_size, split_search):
        candidate = try_split(node, axis, cut, x, u, make_classifier, eta)
        if candidate.gain > highest:
            best, highest = candidate, candidate.gain
    return best


def try_split(node, axis, cut, x, u, make_classifier, eta):
    """Copy of `node` split at `cut`, its classifier trained, its gain l_bin (eq. 2) + C_A (appendix B)."""
    a, b = node.lower[axis], node.upper[axis]
    f = (cut - a) / (b - a)
    is_left = u[:, axis] <= cut
    n, n_left = len(u), is_left.sum()
    split = replace(node, axis=axis, cut=cut, left_share=f)

    if 0 < n_left < n:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the iteration limit is the paper's choice
            split.model = make_classifier().fit(x, is_left.astype(int))
    else:
        # One class only: nothing to train, yet the split may win, which is how empty space is squeezed out.
        split.share = np.clip(n_left / n, 0.5 / n, 1 - 0.5 / n)

    p = left_prob(split, x)
    with np.errstate(divide="ignore"):  # a saturated classifier that is wrong scores -inf and cannot win
        l_bin = np.log(np.where(is_left, p, 1 - p)).sum()
    c_a = -n_left * np.log(f) - (n - n_left) * np.log(1 - f) - eta * abs(cut - (a + b) / 2)
    split.gain = l_bin + c_a
    return split


def add_children(node, is_left):
    left_upper, right_lower = node.upper.copy(), node.lower.copy()
    left_upper[node.axis] = right_lower[node.axis] = node.cut
    node.left = Node(node.lower, left_upper, int(is_left.sum()))
    node.right = Node(right_lower, node.upper, int((~is_left).sum()))


def left_prob(node, x):
    """p(x), shape (n,): the node classifier's probability of "left", before shrinkage."""
    if node.model is None:
        return np.full(len(x), node.share)
    if len(x) == 0:  # scikit-learn refuses empty tables
        return np.empty(0)
    return node.model.predict_proba(x)[:, 1]


def left_mass(node, x):
    """G(A_l | A), shape (n,): p(x) shrunk towards the uniform share (section 2.3)."""
    return node.rate * left_prob(node, x) + (1 - node.rate) * node.left_share


def forward_and_log_det(tree, x, u):
    """Bold G_x(u) (n, d) and log g_x(u) (n,) of one tree: children first, the root last."""
    u, log_det = u.copy(), np.zeros(len(u))
    if tree.is_leaf:
        return u, log_det

    # The side is that of the incoming row; the children's maps do not leave their own boxes.
    is_left = u[:, tree.axis] <= tree.cut
    for child, rows in ((tree.left, is_left), (tree.right, ~is_left)):
        u[rows], log_det[rows] = forward_and_log_det(child, x[rows], u[rows])

    j, a, b = tree.axis, tree.lower[tree.axis], tree.upper[tree.axis]
    f, g = tree.left_share, left_mass(tree, x)
    slope = np.where(is_left, g / f, (1 - g) / (1 - f))
    fixed = np.where(is_left, a, b)  # slip: printed b for both children
    u[:, j] = fixed + slope * (u[:, j] - fixed)
    return u, log_det + np.log(slope)


def inverse(tree, x, u):
    """Inverse of bold G_x, shape (n, d): the root is undone first, then the child the row lands in."""
    u = u.copy()
    if tree.is_leaf:
        return u

    j, s, a, b = tree.axis, tree.cut, tree.lower[tree.axis], tree.upper[tree.axis]
    g = left_mass(tree, x)
    z = (u[:, j] - a) / (b - a)
    is_left = z <= g  # slip: printed as the condition of both branches
    u[:, j] = np.where(is_left, a + (s - a) * z / g, s + (b - s) * (z - g) / (1 - g))
    for child, rows in ((tree.left, is_left), (tree.right, ~is_left)):
        u[rows] = inverse(child, x[rows], u[rows])
    return u


def train_flow(x, u, x_val, u_val, stages, *, window=10, max_trees=1000, **growing):
    """Algorithm 1, run once per stage of `stages`, a list of (make_classifier, max_depth).

    `max_trees` is per stage; `growing` (c0, gamma, eta, grid_size, min_samples, split_search) goes to
    `grow_tree`. Returns the kept trees in order and the history: for each grown tree, kept or rolled back,
    the mean log-likelihood of the flow that ends with it on the training and on the validation rows.
    """
    trees, history = [], []
    train, validation = 0.0, 0.0  # LL(0)
    for stage, (make_classifier, max_depth) in enumerate(stages):
        grown = []
        path = [(u, u_val, train, validation)]  # path[k]: residuals and LL after k trees of this stage
        for k in range(1, max_trees + 1):
            tree = grow_tree(x, u, make_classifier, max_depth=max_depth, **growing)
            u, step = forward_and_log_det(tree, x, u)
            u_val, step_val = forward_and_log_det(tree, x_val, u_val)
            train, validation = train + step.mean(), validation + step_val.mean()
            grown.append(tree)
            path.append((u, u_val, train, validation))
            if k >= window and validation - path[k - window][3] <= 0:
                break

        # Roll back to the first best score, perhaps to no tree at all; the paper keeps the trees past it.
        n_kept = int(np.argmax([point[3] for point in path]))
        trees += grown[:n_kept]
        for k, (_, _, ll, ll_val) in enumerate(path[1:], start=1):
            history.append({"stage": stage, "train": ll, "validation": ll_val, "kept": k <= n_kept})
        u, u_val, train, validation = path[n_kept]
    return trees, history


def flow_log_density(trees, x, u):
    """Eq. 1, shape (n,): log f_x(u) as the sum of the trees' log densities at the successive residuals."""
    log_density = np.zeros(len(u))
    for tree in trees:
        u, step = forward_and_log_det(tree, x, u)
        log_density += step
    return log_density


def flow_inverse(trees, x, u):
    """Uniform rows to outcomes, shape (n, d): the last tree is undone first."""
    for tree in reversed(trees):
        u = inverse(tree, x, u)
    return u
