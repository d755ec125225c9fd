"""Every kernel against its naive twin: the same signature in plain numpy, run through the same `Rows.sum`."""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import rosen, rosen_der
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from tests.helpers import laws, naive
from tests.helpers.networks import get_parameters, set_parameters
from treecdf import MLP, BoostedTrees, Constant, Logistic
from treecdf._kernels.lbfgs import LINE, MEMORY, lbfgs_advance
from treecdf._kernels.losses import cross_entropy, exp_tile, logistic_loss, mlp_loss
from treecdf._kernels.newton import solve
from treecdf._kernels.roots import step_roots
from treecdf._kernels.rows import find_bin, search_sums
from treecdf.data.basis import Basis
from treecdf.training.growing.grower import TreeGrower
from treecdf.training.growing.splitting import Candidates, score_test
from treecdf.training.settings import Growth
from treecdf.training.sources import rows
from treecdf.training.sources.rows import Rows

GROWTH = Growth(c0=0.1, gamma=0.5, eta=0.1, grid_size=8, min_samples_node=10, split_search="score", subsample=1.0)


@pytest.fixture
def rng():
    return np.random.default_rng(23)


def problem(rng, n=300, q=3, d=2):
    """Covariates, outcomes in the cube that depend on them (none above 0.9), weights."""
    x = rng.normal(size=(n, q))
    u = 0.9 * expit(0.8 * x[:, :1] + rng.normal(size=(n, d)))
    return x, u, rng.uniform(0.2, 3.0, n)


def two_nodes(x, u, weight):
    """Rows on a level with two nodes, split by the first outcome at 0.4, and the nodes' boxes."""
    level = Rows(x, u, weight)
    level.begin_tree(1.0, np.random.default_rng(0))
    level.descend(np.array([0]), np.array([0.4]), np.array([[0, 1]]), 2)
    lower, upper = np.zeros((2, u.shape[1])), np.ones((2, u.shape[1]))
    upper[0, 0] = lower[1, 0] = 0.4
    return level, lower, upper


def one_split(x, left, weight=None, basis=None, features=None):
    """Rows of one node, arranged so that those with `left` are in the left child, and the split."""
    weight = np.ones(len(x)) if weight is None else weight
    level = Rows(x, np.where(left, 0.25, 0.75)[:, None], weight)
    level.begin_tree(1.0, np.random.default_rng(0))
    basis = basis or Basis.linear(x.shape[1])
    box = np.zeros((1, 1)), np.ones((1, 1))
    splits = Candidates.collect(level, *box, np.array([0.5]), 0.1, basis).pick(np.array([0]))
    level.arrange(splits.axis, splits.cut, features)
    return level, splits


# Twins


def naive_search_sums(x, u, weight, order, start, source, knot, power, cuts, count, total, moment):
    for node, boundaries in enumerate(cuts):
        here = order[start[node] : start[node + 1]]
        feature = np.maximum(x[here][:, source], knot) ** power
        w = weight[here]
        for axis, cut in enumerate(boundaries):
            cell = np.searchsorted(cut, u[here, axis], side="left")
            np.add.at(count[node, axis], cell, w)
            np.add.at(total[node, axis], cell, w[:, None] * feature)
        extended = np.column_stack([feature, np.ones(len(here))])
        moment[node] += np.tril((extended * w[:, None]).T @ extended)


def naive_logistic_loss(sorted_x, weight, left, start, active, theta, loss, gradient, hessian):
    for node in np.flatnonzero(active):
        here = slice(start[node], start[node + 1])
        x = np.column_stack([np.ones(start[node + 1] - start[node]), sorted_x[:, here].T])
        w, label, p = weight[here], left[here], expit(x @ theta[node])
        loss[node] -= w @ np.log(np.where(label == 1, p, 1 - p))
        gradient[node] += x.T @ (w * (p - label))
        hessian[node] += np.tril((x * (w * p * (1 - p))[:, None]).T @ x)


def naive_mlp_loss(sorted_x, weight, left, start, active, theta, hidden, loss, gradient):
    for node in np.flatnonzero(active):
        here = slice(start[node], start[node + 1])
        value, slope = network_loss(theta[node], hidden, sorted_x[:, here].T, left[here], weight[here])
        loss[node] += value
        gradient[node] += slope


def network_loss(theta, hidden, x, left, weight):
    """Cross entropy of a ReLU network and its gradient by the chain rule."""
    values, layers, offset = [x], [], 0
    for n_out in (*hidden, 1):
        n_in = values[-1].shape[1]
        weights = theta[offset : offset + n_out * n_in].reshape(n_out, n_in)
        z = values[-1] @ weights.T + theta[offset + n_out * n_in :][:n_out]
        layers.append(weights)
        values.append(np.maximum(z, 0.0))
        offset += n_out * (n_in + 1)
    loss = weight @ (np.logaddexp(0.0, z[:, 0]) - left * z[:, 0])
    delta, pieces = (weight * (expit(z[:, 0]) - left))[:, None], []
    for weights, value in zip(layers[::-1], values[-2::-1], strict=True):
        pieces = [(delta.T @ value).ravel(), delta.sum(axis=0), *pieces]
        delta = delta @ weights * (value > 0)
    return loss, np.concatenate(pieces)


# Passes over the rows


@pytest.mark.parametrize("cuts", [np.array([0.5]), np.arange(1, 21) / 21, 0.3 + 1e-12 * np.arange(1, 6)])
@pytest.mark.parametrize("misjudged", [1.0, 0.5, 3.0], ids=lambda factor: f"step times {factor}")
def test_find_bin_follows_the_cuts_whatever_the_guess(cuts, misjudged, rng):
    step = misjudged * (len(cuts) - 1) / (cuts[-1] - cuts[0]) if len(cuts) > 1 else 0.0
    values = np.concatenate(
        [cuts, np.nextafter(cuts, 0.0), np.nextafter(cuts, 1.0), rng.random(200), [1e-300, 0.5, 1.0]]
    )
    found = [find_bin(value, cuts, step) for value in values]
    np.testing.assert_array_equal(found, np.searchsorted(cuts, values, side="left"))


BASES = {"linear": Basis.linear(3), "hinges": Basis.hinges(3), "cubic": Basis.cubic(3), "no features": Basis.empty()}


@pytest.mark.parametrize("fractions", [np.array([0.5]), np.arange(1, 8) / 8], ids=["one cut", "seven cuts"])
@pytest.mark.parametrize("basis", BASES.values(), ids=BASES)
def test_search_sums(basis, fractions, rng):
    x, u, weight = problem(rng)
    u[:50] = rng.integers(1, 9, (50, 2)) / 8  # on the cuts of the box (0, 1]
    level, lower, upper = two_nodes(x, u, weight)
    cuts = lower[:, :, None] + (upper - lower)[:, :, None] * fractions
    (k, d, s), p = cuts.shape, len(basis)
    args = (*basis.arrays, cuts)
    shapes = [(k, d, s + 1), (k, d, s + 1, p), (k, p + 1, p + 1)]
    expected = level.sum(naive_search_sums, "level", args, shapes)
    for ours, theirs in zip(level.sum(search_sums, "level", args, shapes), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-10)


def test_arrange_sorts_rows_into_nodes_and_labels_them(rng):
    x, u, weight = problem(rng)
    level, _, _ = two_nodes(x, u, weight)
    cut = np.array([u[u[:, 0] <= 0.4, 1][5], u[u[:, 0] > 0.4, 0][5]])  # a row on the cut is left of it
    level.arrange(np.array([1, 0]), cut)
    for node, inside in enumerate([u[:, 0] <= 0.4, u[:, 0] > 0.4]):
        sorted_x, left, sorted_weight = level.node_rows(node)
        np.testing.assert_array_equal(sorted_x, x[inside])
        np.testing.assert_array_equal(sorted_weight, weight[inside])
        np.testing.assert_array_equal(left, u[inside, 1 - node] <= cut[node])


def test_descend_keeps_the_rows_of_growing_children_in_order(rng):
    x, u, weight = problem(rng)
    level, _, _ = two_nodes(x, u, weight)
    cut = np.array([u[u[:, 0] <= 0.4, 1][5], u[u[:, 0] > 0.4, 1][5]])
    # The left child of the first node and the right child of the second one are leaves.
    level.descend(np.array([1, 1]), cut, np.array([[-1, 1], [0, -1]]), 2)
    level.arrange(np.array([0, 0]), np.array([0.5, 0.5]))
    expected = [(u[:, 0] > 0.4) & (u[:, 1] <= cut[1]), (u[:, 0] <= 0.4) & (u[:, 1] > cut[0])]
    for node, inside in enumerate(expected):
        np.testing.assert_array_equal(level.node_rows(node)[0], x[inside])


def test_score_test_is_the_formula(rng):
    """log-lik of the share + g' (p (1 - p) M + ridge I)^-1 g / 2 + C_A, cut off at a likelihood of one."""
    x, u, weight = problem(rng)
    level, lower, upper = two_nodes(x, u, weight)
    fractions = np.arange(1, 6) / 6
    candidates = Candidates.collect(level, lower, upper, fractions, 0.1, Basis.linear(3))
    score = score_test(candidates, ridge=2.0)
    for node, inside in enumerate([u[:, 0] <= 0.4, u[:, 0] > 0.4]):
        w, centred = weight[inside], x[inside] - np.average(x[inside], axis=0, weights=weight[inside])
        scatter = (centred * w[:, None]).T @ centred
        for axis in (0, 1):
            for s, f in enumerate(fractions):
                width = upper[node, axis] - lower[node, axis]
                left = u[inside, axis] <= lower[node, axis] + f * width
                n_left, n = w[left].sum(), w.sum()
                p = np.clip(n_left / n, 0.5 / n, 1 - 0.5 / n)
                g = w[left] @ centred[left]
                gain = g @ np.linalg.solve(p * (1 - p) * scatter + 2.0 * np.eye(3), g) / 2
                share = n_left * np.log(p) + (n - n_left) * np.log(1 - p)
                balance = -n_left * np.log(f) - (n - n_left) * np.log(1 - f) - 0.1 * width * abs(f - 0.5)
                np.testing.assert_allclose(score[node, axis, s], min(share + gain, 0) + balance, atol=1e-8)


# Losses


def test_exp_tile_is_exp_to_the_last_bits(rng):
    z = np.concatenate([np.linspace(-700, 700, 4001), rng.normal(size=500), [0.0, -0.0, 1e-300, -745e-18]])
    ours = z.copy()
    exp_tile(ours, len(ours), np.empty(len(ours), np.int64))
    np.testing.assert_allclose(ours, np.exp(z), rtol=5e-16)


def test_exp_tile_cuts_off_what_exp_cannot_hold_and_leaves_the_rest_alone():
    z = np.array([np.inf, 1e300, 701.0, -701.0, -1e300, -np.inf, 5.0])
    exp_tile(z, 6, np.empty(7, np.int64))
    np.testing.assert_allclose(z, [*[np.exp(700)] * 3, *[np.exp(-700)] * 3, 5.0], rtol=1e-15)


def test_cross_entropy(rng):
    z = np.concatenate([rng.normal(size=40), [0.0, -0.0, 1e-12, 40.0, -40.0, 600.0, -600.0, 1e4, -1e4]])
    n, first = len(z), 3  # its rows begin at the fourth
    weight, left = rng.uniform(0.1, 2.0, n + 3), rng.integers(0, 2, n + 3).astype(float)
    w, label = weight[first:], left[first:]
    slope, work = z.copy(), np.empty(n)
    loss = cross_entropy(slope, n, weight, left, first, work, np.empty(n, np.int64))
    np.testing.assert_allclose(loss, w @ (np.logaddexp(0.0, z) - label * z), rtol=1e-13)
    np.testing.assert_allclose(slope, w * (expit(z) - label), rtol=1e-13, atol=1e-300)
    np.testing.assert_allclose(work, np.exp(np.maximum(-abs(z), -700)), rtol=1e-14)


@pytest.mark.parametrize("gap", [0, 20, 1000])
def test_a_loss_does_not_depend_on_where_its_arrays_lie_in_memory(gap, rng):
    """A loop that both stores and sums gets two compiled forms, chosen by the distance of its arrays.

    They round differently, so one seed would not always give the same model.
    """
    memory, work, bits = np.zeros(4096), np.empty(64), np.empty(64, np.int64)
    near, far = memory[1000:1064], memory[1064 + gap : 1128 + gap]
    for _ in range(50):  # the two forms agree by chance on many an example
        z, weight, left = rng.normal(size=64), rng.uniform(0.2, 3.0, 64), rng.integers(0, 2, 64).astype(float)
        losses = []
        for first, second in [(near, far), (far, near), (np.empty(64), np.empty(64))]:
            first[:], second[:] = z, weight
            losses.append(cross_entropy(first, 64, second, left, 0, work, bits))
        assert losses[0] == losses[1] == losses[2]


@pytest.mark.parametrize("q", [1, 3, 9])
def test_logistic_loss(q, rng):
    level, _, _ = two_nodes(*problem(rng, q=q))
    level.arrange(np.array([1, 1]), np.array([0.5, 0.6]))
    theta = rng.normal(size=(2, q + 1))
    shapes = [(2,), (2, q + 1), (2, q + 1, q + 1)]
    for active in ([1, 1], [0, 1]):
        args = (np.array(active), theta)
        expected = level.sum(naive_logistic_loss, "node", args, shapes)
        for ours, theirs in zip(level.sum(logistic_loss, "node", args, shapes), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-11)


def network_problem(rng, q, hidden, to_weight=np.asarray):
    x, u, weight = problem(rng, n=211, q=q)
    level, _, _ = two_nodes(x, u, to_weight(weight))
    level.arrange(np.array([1, 1]), np.array([0.5, 0.6]))
    sizes = (q, *hidden, 1)
    n_parameters = sum(n_out * (n_in + 1) for n_in, n_out in pairwise(sizes))
    return level, rng.normal(size=(2, n_parameters)), [(2,), (2, n_parameters)]


NETWORKS = [(3, (4, 4)), (1, (4, 4)), (9, (5,)), (2, (3, 6, 2)), (4, (1,))]


@pytest.mark.parametrize(("q", "hidden"), NETWORKS)
def test_mlp_loss(q, hidden, rng):
    level, theta, shapes = network_problem(rng, q, hidden)
    for active in ([1, 1], [0, 1]):
        args = (np.array(active), theta, np.array(hidden))
        expected = level.sum(naive_mlp_loss, "node", args, shapes)
        for ours, theirs in zip(level.sum(mlp_loss, "node", args, shapes), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(("q", "hidden"), NETWORKS)
def test_mlp_gradient_is_the_derivative_of_the_loss(q, hidden, rng):
    level, theta, shapes = network_problem(rng, q, hidden)

    def loss_and_gradient(at):
        return level.sum(mlp_loss, "node", (np.ones(2, int), at, np.array(hidden)), shapes)

    _, gradient = loss_and_gradient(theta)
    stride = 1e-7  # so short that no unit of these networks switches on or off on the way
    for i in range(theta.shape[1]):
        shift = stride * (np.arange(theta.shape[1]) == i)
        difference = loss_and_gradient(theta + shift)[0] - loss_and_gradient(theta - shift)[0]
        np.testing.assert_allclose(gradient[:, i], difference / (2 * stride), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("alpha", [1e-4, 3.0])
@pytest.mark.parametrize(("q", "hidden"), NETWORKS)
def test_mlp_loss_and_gradient_are_scikit_learns_at_the_same_weights(q, hidden, alpha, rng):
    """Mean loss with its penalty, as the optimiser sees it; a row of weight 3 is three rows of scikit-learn's."""
    level, theta, shapes = network_problem(rng, q, hidden, to_weight=np.ceil)
    loss, slope = level.sum(mlp_loss, "node", (np.ones(2, int), theta, np.array(hidden)), shapes)
    nodes = [level.node_rows(node) for node in (0, 1)]
    line, gradient, direction, point = np.zeros(2, LINE), np.zeros_like(theta), np.zeros_like(theta), theta.copy()
    pairs = np.zeros((2, 2, MEMORY, theta.shape[1]))
    state = (np.ones(2, int), line, point, gradient, direction, theta, *pairs)
    total = np.array([weight.sum() for _, _, weight in nodes])
    lbfgs_advance(*state, loss, slope, penalties(q, hidden, alpha), total, 0.0, 0)
    for node, (x, left, weight) in enumerate(nodes):
        repeated = [np.repeat(part, weight.astype(int), axis=0) for part in (x, left)]
        value, expected = scikit_learns_objective(point[node], hidden, alpha, *repeated)
        np.testing.assert_allclose(line["value"][node], value, rtol=1e-11)
        np.testing.assert_allclose(gradient[node], expected, rtol=1e-9, atol=1e-12)


def scikit_learns_objective(theta, hidden, alpha, x, left):
    """Mean penalised loss at theta, and its gradient: what a step of gradient descent at rate 1 takes off."""
    descent = {"solver": "sgd", "learning_rate_init": 1.0, "momentum": 0.0, "batch_size": len(x)}
    model = MLPClassifier(hidden, alpha=alpha, **descent).partial_fit(x, left, classes=[0.0, 1.0])
    set_parameters(model, theta)
    model.partial_fit(x, left)
    return model.loss_, theta - get_parameters(model)


# Optimisers


@pytest.mark.parametrize("n", [1, 2, 7])
def test_solve(n, rng):
    root = rng.normal(size=(n, n))
    hessian, gradient = root @ root.T + np.eye(n), rng.normal(size=n)
    direction = np.empty(n)
    slope = solve(np.tril(hessian), gradient, direction)
    np.testing.assert_allclose(direction, -np.linalg.solve(hessian, gradient), rtol=1e-8)
    np.testing.assert_allclose(slope, direction @ gradient)


def naive_step(wanted, cdf, density, rows, y, low, high, last, gaps):
    """One step towards quantiles in plain numpy."""
    here, level, gap = y[rows], wanted[rows], cdf - wanted[rows]
    low[rows], high[rows] = np.where(gap <= 0, here, low[rows]), np.where(gap > 0, here, high[rows])
    with np.errstate(divide="ignore", invalid="ignore"):
        following = here - gap / density
        is_good = (following > low[rows]) & (following < high[rows]) & (np.abs(following - here) <= last[rows] / 2)
        is_there = np.abs(gap) <= 1e-13 * np.minimum(level, 1 - level) + 5e-15 * level
        is_there |= np.abs(gap) <= 2 * np.spacing(np.abs(here)) * density
        following = np.where(is_good, following, np.where(is_there, here, low[rows] / 2 + high[rows] / 2))
        y[rows], last[rows] = following, np.abs(following - here)
        gaps[rows] = np.where(~is_there & (last[rows] > np.spacing(np.abs(following))), np.abs(gap), 0.0)


def test_a_step_to_quantiles_is_that_of_its_naive_twin(rng):
    wanted, rows = rng.uniform(size=(9, 4)), np.array([0, 2, 3, 7, 8])
    cdf, density = wanted[rows] + rng.choice([-0.3, -1e-16, 0.0, 1e-15, 0.2], (5, 4)), rng.uniform(0, 2, (5, 4))
    density[0] = 0.0
    y = rng.normal(size=(9, 4))
    low, high = y - rng.exponential(size=(9, 4)), y + rng.exponential(size=(9, 4))
    low[3, 0], y[3, 0], cdf[2, 0] = -np.inf, -np.inf, wanted[3, 0]  # a level of 0
    last = high - low
    ours, twins = ([part.copy() for part in (y, low, high, last, np.zeros((9, 4)))] for _ in range(2))
    step_roots(wanted, cdf, density, rows, *ours)
    naive_step(wanted, cdf, density, rows, *twins)
    for one, twin in zip(ours, twins, strict=True):
        np.testing.assert_allclose(one, twin, rtol=1e-14)
    assert 0 < np.count_nonzero(ours[4]) < 20


def labels(rng, x):
    return rng.random(len(x)) < expit(1.5 * x[:, 0] - 1)


def logistic_problems():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(200, 3))
    left = labels(rng, x)
    wide = rng.normal(size=(30, 50))
    one = np.arange(200) == 17
    return {
        "plain": (x, left, np.ones(200), 1.0),
        "weak penalty": (x, left, np.ones(200), 1e3),
        "strong penalty": (x, left, np.ones(200), 1e-3),
        "separable": (x, x[:, 0] > 0.3, np.ones(200), 1.0),
        "separable, weak penalty": (x, x[:, 0] > 0.3, np.ones(200), 1e4),
        "weights": (x, left, rng.uniform(0.0, 5.0, 200), 1.0),
        "small weights": (x, left, np.full(200, 0.005), 1.0),
        "one row left": (x, one, np.ones(200), 1.0),
        "collinear columns": (np.column_stack([x, x[:, 0], x[:, 1] - x[:, 0]]), left, np.ones(200), 1.0),
        "constant column": (np.column_stack([x, np.zeros(200)]), left, np.ones(200), 1.0),
        "more columns than rows": (wide, labels(rng, wide), np.ones(30), 1.0),
        "far outlier": (np.where(one[:, None], 100.0, x), left, np.ones(200), 1.0),
    }


@pytest.mark.parametrize(("x", "left", "weight", "strength"), logistic_problems().values(), ids=logistic_problems())
def test_logistic_fit_is_scikit_learns(x, left, weight, strength, rng):
    level, splits = one_split(x, left, weight)
    fit = Logistic(C=strength, tol=1e-12).fit(level, splits, rng)
    model = LogisticRegression(C=strength, tol=1e-12, max_iter=10_000, solver="newton-cholesky")
    model.fit(x, left, sample_weight=weight)
    expected = np.concatenate([model.intercept_, model.coef_[0]])
    np.testing.assert_allclose(fit.theta[0], expected, rtol=1e-5, atol=1e-6)
    log_p = -np.logaddexp(0.0, np.where(left, -1, 1) * model.decision_function(x))
    np.testing.assert_allclose(fit.log_lik[0], weight @ log_p, rtol=1e-6)


def test_logistic_nodes_of_a_level_do_not_touch_one_another(rng):
    x, u, weight = problem(rng)
    level, lower, upper = two_nodes(x, u, weight)
    candidates = Candidates.collect(level, lower, upper, np.array([0.5]), 0.1, Basis.linear(3))
    splits = candidates.pick(np.array([1, 0]))
    level.arrange(splits.axis, splits.cut)
    together = Logistic(tol=1e-12).fit(level, splits, rng)
    for node in (0, 1):
        node_x, left, node_weight = level.node_rows(node)
        alone = Logistic(tol=1e-12).fit(*one_split(np.ascontiguousarray(node_x), left == 1, node_weight), rng)
        np.testing.assert_allclose(together.theta[node], alone.theta[0], rtol=1e-7)


def test_tolerance_bounds_the_derivative_of_the_mean_loss(rng):
    x = rng.normal(size=(200, 3))
    left = labels(rng, x)
    for tol in (1e-2, 1e-5, 1e-8):
        theta = Logistic(tol=tol).fit(*one_split(x, left), rng).theta[0]
        p = expit(theta[0] + x @ theta[1:])
        gradient = np.column_stack([np.ones(200), x]).T @ (p - left) + [0, *theta[1:]]
        assert abs(gradient).max() <= tol * 200


def penalties(q, hidden, alpha):
    """L2 penalty of each parameter of a network; biases have none."""
    sizes = pairwise((q, *hidden, 1))
    return alpha * np.concatenate([np.repeat([1.0, 0.0], [n_out * n_in, n_out]) for n_in, n_out in sizes])


def mlp_objective(theta, classifier, x, left, weight):
    """Mean loss with the penalty of the weights, and its gradient, as scikit-learn defines them."""
    loss, gradient = network_loss(theta, classifier.hidden, x, left, weight)
    penalty = penalties(x.shape[1], classifier.hidden, classifier.alpha) * theta
    return (loss + penalty @ theta / 2) / weight.sum(), (gradient + penalty) / weight.sum()


def fitted_mlp(x, left, weight, seed, **options):
    classifier = MLP((4, 4), **options)
    level, splits = one_split(x, left, weight, classifier.search_basis(x.shape[1]))
    return classifier, classifier.fit(level, splits, np.random.default_rng(seed))


def test_more_iterations_never_raise_the_mlp_loss(rng):
    x = rng.normal(size=(200, 3))
    left, weight = labels(rng, x), np.ones(200)
    values = []
    for max_iter in range(40):
        classifier, fit = fitted_mlp(x, left, weight, 3, max_iter=max_iter, tol=0.0)
        value, _ = mlp_objective(fit.theta[0], classifier, x, left.astype(float), weight)
        log_p = -network_loss(fit.theta[0], (4, 4), x, left.astype(float), weight)[0]
        np.testing.assert_allclose(fit.log_lik[0], log_p, rtol=1e-9)
        values.append(value)
    assert (np.diff(values) <= 1e-12).all()
    assert values[-1] < values[0] - 0.1


def test_lbfgs_finds_the_minimum_of_smooth_functions_and_never_climbs():
    """Rosenbrock's valley from two starts, side by side, and a node that is not active."""
    point = np.array([[-1.2, 1.0, -0.5, 2.0], [3.0, 3.0, 3.0, 3.0], [5.0, 5.0, 5.0, 5.0]])
    trial, line, weight = point.copy(), np.zeros(3, LINE), np.array([1.0, 4.0, 1.0])
    gradient, direction = np.zeros_like(point), np.zeros_like(point)
    steps, changes = np.zeros((2, 3, MEMORY, 4))
    active, values = np.array([1, 1, 0]), [[], []]
    while active.any():
        loss, slope = weight * rosen(trial.T), weight[:, None] * rosen_der(trial.T).T
        state = (active, line, point, gradient, direction, trial, steps, changes)
        lbfgs_advance(*state, loss, slope, np.zeros(4), weight, 1e-9, 500)
        for node in (0, 1):
            values[node].append(line["value"][node])
    np.testing.assert_allclose(point, [[1.0] * 4, [1.0] * 4, [5.0] * 4], atol=1e-6)
    assert all((np.diff(path) <= 0).all() for path in values)
    assert (line["iterations"] < 100).all()


# Serving: the transform's kernels against the recursion of the paper


def as_naive(trees, tree):
    """Tree number `tree` as the oracle's nodes, boxes rebuilt from the cuts alone."""
    first, d = trees.roots[tree], trees.nodes["axis"].max() + 1

    def build(i, lower, upper):
        if i < 0:
            return naive.Node(lower, upper, 0)
        row = trees.nodes[i]
        axis, cut = int(row["axis"]), row["cut"]
        np.testing.assert_allclose([row["lower"], row["upper"]], [lower[axis], upper[axis]], rtol=1e-14)
        left_upper, right_lower = upper.copy(), lower.copy()
        left_upper[axis] = right_lower[axis] = cut
        classifier = laws.PythonClassifier(trees.theta[i], tuple(trees.kind))
        share = (cut - lower[axis]) / (upper[axis] - lower[axis])
        node = naive.Node(lower, upper, 0, axis, cut, share, row["rate"])
        node.model = SimpleNamespace(predict_proba=lambda x: np.tile(classifier.left_prob(x), (2, 1)).T)
        node.left, node.right = build(row["left"], lower, left_upper), build(row["right"], right_lower, upper)
        return node

    return build(first, np.zeros(d), np.ones(d))


@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("kind", laws.KINDS)
def test_forward_and_inverse_are_the_papers_recursion(kind, d, rng):
    trees = laws.random_trees(rng, 5, 5, d, 3, kind, c0=0.5)
    nodes = [as_naive(trees, tree) for tree in range(5)]
    x, u = rng.normal(size=(300, 3)), rng.random((300, d))
    np.testing.assert_allclose(trees.inverse(u[:, None], x)[:, 0], naive.flow_inverse(nodes, x, u), atol=1e-11)
    for row, node in zip(u, trees[:1].nodes, strict=False):
        row[node["axis"]] = node["cut"]  # which is left of the cut
    moved, log_det = trees.forward_and_log_det(u[:, None], x)
    expected = u
    for node in nodes:
        expected, _ = naive.forward_and_log_det(node, x, expected)
    np.testing.assert_allclose(moved[:, 0], expected, atol=1e-12)
    np.testing.assert_allclose(log_det[:, 0], naive.flow_log_density(nodes, x, u), atol=1e-11)


# Nothing depends on how the rows are cut up, or counted


def grow(x, u, weight, classifier, search="score", pool=None):
    growth = Growth(**{**vars(GROWTH), "split_search": search})
    return TreeGrower(Rows(x, u, weight, pool), classifier, 4, growth, np.random.default_rng(0)).grow()


def assert_same_tree(one, other, atol):
    for name in one.nodes.dtype.names:
        np.testing.assert_allclose(one.nodes[name], other.nodes[name], atol=max(atol, 1e-9), err_msg=name)
    np.testing.assert_allclose(one.theta, other.theta, atol=atol)


def test_sums_do_not_depend_on_the_size_of_a_shard(rng, monkeypatch):
    table, hinges = problem(rng), Basis.hinges(3)
    cuts, both = np.full((2, 2, 1), 0.5), np.ones(2, int)
    theta, network = rng.normal(size=(2, 4)), rng.normal(size=(2, 41))
    passes = [
        (search_sums, "level", (*hinges.arrays, cuts), [(2, 2, 2), (2, 2, 2, 18), (2, 19, 19)]),
        (logistic_loss, "node", (both, theta), [(2,), (2, 4), (2, 4, 4)]),
        (mlp_loss, "node", (both, network, np.array([4, 4])), [(2,), (2, 41)]),
    ]
    results = []
    for size in (16_384, 64):
        monkeypatch.setattr(rows, "SHARD_ROWS", size)
        level, _, _ = two_nodes(*table)
        level.arrange(np.array([1, 1]), np.array([0.5, 0.6]))
        results.append([output for arguments in passes for output in level.sum(*arguments)])
    for whole, cut_up in zip(*results, strict=True):
        np.testing.assert_allclose(whole, cut_up, rtol=1e-9, atol=1e-9)


GROWN = {
    "constant": (Constant(), "score"),
    "logistic": (Logistic(), "score"),
    "logistic, exhaustive": (Logistic(), "exhaustive"),
    # Few iterations: further on, the kinks of the loss turn differences of rounding into other minima.
    "network": (MLP((4, 4), max_iter=5), "score"),
    "hinges": (Logistic(basis="hinges"), "score"),
    "trees": (BoostedTrees(), "score"),
    "trees, exhaustive": (BoostedTrees(rounds=2, max_depth=2, n_bins=10), "exhaustive"),
}


@pytest.mark.parametrize(("classifier", "search"), GROWN.values(), ids=GROWN)
def test_trees_do_not_depend_on_the_size_of_a_shard(classifier, search, rng, monkeypatch):
    table = problem(rng)
    whole = grow(*table, classifier, search)
    monkeypatch.setattr(rows, "SHARD_ROWS", 64)
    assert_same_tree(whole, grow(*table, classifier, search), atol=1e-9)


@pytest.mark.parametrize(("classifier", "search"), GROWN.values(), ids=GROWN)
def test_trees_do_not_depend_on_the_threads_at_all(classifier, search, rng, monkeypatch):
    monkeypatch.setattr(rows, "SHARD_ROWS", 64)
    table = problem(rng)
    alone = grow(*table, classifier, search)
    with ThreadPoolExecutor(3) as pool:
        threaded = grow(*table, classifier, search, pool)
    assert alone.nodes.tobytes() == threaded.nodes.tobytes()
    assert alone.theta.tobytes() == threaded.theta.tobytes()


@pytest.mark.parametrize(("classifier", "search"), GROWN.values(), ids=GROWN)
def test_a_row_of_weight_two_equals_the_row_twice(classifier, search, rng):
    x, u, _ = problem(rng, n=200)
    heavy = grow(x, u, np.full(200, 2.0), classifier, search)
    twice = grow(np.repeat(x, 2, axis=0), np.repeat(u, 2, axis=0), np.ones(400), classifier, search)
    assert_same_tree(heavy, twice, atol=1e-7)


def test_constant_nodes_hold_the_share_of_the_weights(rng):
    x, _, weight = problem(rng)
    left = labels(rng, x)
    fit = Constant().fit(*one_split(x, left, weight), rng)
    share = weight[left].sum() / weight.sum()
    np.testing.assert_allclose(fit.theta, [[logit(share)]])
    np.testing.assert_allclose(fit.log_lik, weight @ np.log(np.where(left, share, 1 - share)))


def test_a_subsample_that_happens_to_be_empty_is_no_disaster(rng):
    growth = Growth(**{**vars(GROWTH), "min_samples_node": 1, "subsample": 0.05})
    source = Rows(*problem(rng, n=30))
    for seed in range(20):  # a fifth of them draw no row at all
        tree = TreeGrower(source, Logistic(), 2, growth, np.random.default_rng(seed)).grow()
        assert np.isfinite(tree.theta).all()
