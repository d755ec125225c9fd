"""Boosted trees at the nodes against plain Newton boosting, and the smooth bases of logistic nodes."""

import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.base import clone

from tests.helpers import laws
from treecdf import BoostedTrees, Logistic, Stage, TreeFlowRegressor
from treecdf._kernels.node_trees import next_level_of_one_side
from treecdf._kernels.transform import TREES, trees_logit
from treecdf.data.basis import Basis
from treecdf.data.binning import Bins, bin_edges
from treecdf.training.growing.splitting import Candidates
from treecdf.training.sources.rows import Rows

KNOTS = (-1.0, -0.5, 0.0, 0.5, 1.0)


@pytest.fixture
def rng():
    return np.random.default_rng(31)


def problem(rng, n=120, q=3):
    """Covariates, labels that depend on two of them, weights."""
    x = rng.normal(size=(n, q))
    left = rng.random(n) < expit(2 * np.sin(2 * x[:, 0]) + x[:, 1])
    return x, left, rng.uniform(0.5, 2.0, n)


def level_of(x, left, weight):
    """Rows of one node, labelled, and its split."""
    level = Rows(x, np.where(left, 0.25, 0.75)[:, None], weight)
    level.begin_tree(1.0, np.random.default_rng(0))
    box = np.zeros((1, 1)), np.ones((1, 1))
    splits = Candidates.collect(level, *box, np.array([0.5]), 0.1, Basis.empty()).pick(np.array([0]))
    level.arrange(splits.axis, splits.cut, Basis.empty())
    return level, splits


def fit_node(classifier, x, left, weight):
    """The node's parameters and log-likelihood."""
    fits = classifier.fit(*level_of(x, left, weight), np.random.default_rng(0))
    return fits.theta[0], fits.log_lik[0]


def served(classifier, theta, x):
    """Log-odds as the compiled transform evaluates them."""
    kind = np.array(classifier.kind(x.shape[1]))
    return np.array([trees_logit(theta[None], 0, kind, x, row) for row in range(len(x))])


# The naive twin: every split of every node tried, on real values


def naive_boosting(classifier, x, left, weight, at):
    """Log-odds at covariates `at` by Newton boosting, written slowly; no value is missing."""
    edges = [bin_edges(column, weight, classifier.n_bins) for column in x.T]
    share = weight[left].sum() / weight.sum()
    score, answer = np.full(len(x), logit(share)), np.full(len(at), logit(share))
    for _ in range(classifier.rounds):
        p = expit(score)
        gradient, hessian = weight * (p - left), weight * p * (1 - p)
        steps = naive_tree(classifier, edges, x, gradient, hessian, weight, classifier.max_depth)
        score = score + classifier.learning_rate * np.array([steps(row) for row in x])
        answer = answer + classifier.learning_rate * np.array([steps(row) for row in at])
    return answer


def naive_tree(classifier, edges, x, gradient, hessian, weight, depth):
    """A function from a row of covariates to the tree's step."""

    def score(some):
        return gradient[some].sum() ** 2 / (hessian[some].sum() + classifier.ridge)

    everything = np.ones(len(x), bool)
    best, highest = None, score(everything) + 1e-9
    for column in range(x.shape[1]) if depth else []:
        for threshold in edges[column]:
            is_left = x[:, column] <= threshold
            if min(weight[is_left].sum(), weight[~is_left].sum()) < classifier.min_rows:
                continue
            if score(is_left) + score(~is_left) > highest + 1e-9:
                best, highest = (column, threshold, is_left), score(is_left) + score(~is_left)
    if best is None:
        step = -gradient.sum() / (hessian.sum() + classifier.ridge)
        return lambda row: step
    column, threshold, is_left = best
    sides = [
        naive_tree(classifier, edges, x[some], gradient[some], hessian[some], weight[some], depth - 1)
        for some in (is_left, ~is_left)
    ]
    return lambda row: sides[0](row) if row[column] <= threshold else sides[1](row)


SETTINGS = {
    "default": BoostedTrees(),
    "one stump": BoostedTrees(rounds=1, max_depth=1),
    "few bins": BoostedTrees(n_bins=5),
    "deep and cautious": BoostedTrees(rounds=2, max_depth=5, learning_rate=0.1, min_rows=1, ridge=3.0),
    "leaves of half the rows": BoostedTrees(min_rows=50),
}


@pytest.mark.parametrize("classifier", SETTINGS.values(), ids=SETTINGS)
def test_log_odds_are_those_of_plain_newton_boosting(classifier, rng):
    x, left, weight = problem(rng)
    theta, log_lik = fit_node(classifier, x, left, weight)
    at = np.concatenate([x, 2 * rng.normal(size=(200, 3))])
    expected = naive_boosting(classifier, x, left, weight, at)
    np.testing.assert_allclose(served(classifier, theta, at), expected, atol=1e-9)
    p = expit(expected[: len(x)])
    np.testing.assert_allclose(log_lik, weight @ np.log(np.where(left, p, 1 - p)), rtol=1e-10)
    assert np.ptp(expected) > 0.1


def test_nodes_of_a_level_do_not_touch_one_another(rng):
    """With a bin for every value, other rows move the thresholds but not what the node's own rows get."""
    classifier = BoostedTrees(n_bins=255)
    x, left, weight = problem(rng, 240)
    u = np.where(left, 0.2, 0.8) + rng.choice([-0.1, 0.1], 240)
    level = Rows(x, u[:, None], weight)
    level.begin_tree(1.0, rng)
    level.descend(np.array([0]), np.array([0.5]), np.array([[0, 1]]), 2)
    lower, upper = np.array([[0.0], [0.5]]), np.array([[0.5], [1.0]])
    splits = Candidates.collect(level, lower, upper, np.array([0.4]), 0.1, Basis.empty()).pick(np.zeros(2, int))
    level.arrange(splits.axis, splits.cut, Basis.empty())
    together = classifier.fit(level, splits, rng)
    for node, inside in enumerate([u <= 0.5, u > 0.5]):
        is_left = u[inside] <= splits.cut[node]
        theta, log_lik = fit_node(classifier, x[inside], is_left, weight[inside])
        np.testing.assert_allclose(together.log_lik[node], log_lik, rtol=1e-12)
        ours, alone = (served(classifier, each, x[inside]) for each in (together.theta[node], theta))
        np.testing.assert_allclose(ours, alone, atol=1e-12)


@pytest.mark.parametrize("whole", [True, False], ids=["whole weights", "any weights"])
def test_one_of_two_siblings_is_added_up_in_large_tables(whole, rng, monkeypatch):
    """The other's histogram is what the parent has more; the model is the same up to rounding."""
    classifier = BoostedTrees(rounds=4, max_depth=4, min_rows=2)
    x, left, weight = problem(rng, 600)
    x[::7, 1] = np.nan
    weight = np.ceil(weight) if whole else weight
    seen, add = [], Rows.add

    def counted_add(self, kernel, args, shapes):
        seen.append((kernel.__name__, shapes[0][0]))
        return add(self, kernel, args, shapes)

    monkeypatch.setattr(Rows, "add", counted_add)
    theta, log_lik = fit_node(classifier, x, left, weight)
    assert [nodes for name, nodes in seen if name == "next_level"] == 4 * [2, 4, 8]
    monkeypatch.setattr("treecdf.data.blocks.BLOCK_ROWS", 250)
    theta_of_one, log_lik_of_one = fit_node(classifier, x, left, weight)
    assert [nodes for name, nodes in seen if name == "next_level_of_one_side"] == 4 * [1, 2, 4]
    np.testing.assert_allclose(theta_of_one, theta, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(log_lik_of_one, log_lik, rtol=1e-12)


def test_histograms_of_one_child_are_those_of_plain_sums(rng):
    n, q, n_bins = 300, 2, 6
    codes = rng.integers(0, n_bins, (q, n)).astype(np.uint8)
    state, weight = rng.normal(size=(3, n, 1)), rng.uniform(0.5, 2.0, n)
    order, start, learns = np.arange(n), np.array([0, 100, 200, 300]), np.array([True, False, True])
    place = np.concatenate([rng.integers(0, 2, 100), np.full(100, -1), rng.integers(4, 6, 100)])  # two nodes in each
    column, cut, missing_left = rng.integers(-1, q, (3, 3)), rng.integers(1, n_bins, (3, 3)), rng.integers(0, 2, (3, 3))
    before, sums = place.copy(), np.zeros((6, q, n_bins, 3))
    side = np.array([1, 0, 0, 0, 0, 1])
    arrays = codes, np.empty((n, 1)), weight, order, start, state, place
    next_level_of_one_side(*arrays, learns, 1, column, cut, missing_left, side, sums)
    expected = np.zeros_like(sums)
    for i in np.r_[0:100, 200:300]:
        root, at = before[i] >> 1, 1 + (before[i] & 1)
        b = codes[max(column[root, at], 0), i]
        right = column[root, at] >= 0 and (b > cut[root, at] if b else not missing_left[root, at])
        if right == side[before[i]]:
            expected[before[i], np.arange(q), codes[:, i]] += state[0, i, 0], state[1, i, 0], weight[i]
        assert place[i] == 2 * before[i] + right
    np.testing.assert_allclose(sums, expected, atol=1e-12)
    assert (sums[[0, 1, 4, 5]] != 0).any(axis=(1, 2, 3)).sum() >= 3


def test_a_node_with_rows_on_one_side_keeps_the_clipped_share(rng):
    x, _, _ = problem(rng)
    theta, log_lik = fit_node(BoostedTrees(), x, np.ones(120, bool), np.ones(120))
    share = 1 - 0.5 / 120
    np.testing.assert_allclose(served(BoostedTrees(), theta, x), logit(share), rtol=1e-12)
    np.testing.assert_allclose(log_lik, 120 * np.log(share))


def test_constant_covariates_leave_the_share(rng):
    _, left, weight = problem(rng)
    theta, _ = fit_node(BoostedTrees(), np.zeros((120, 2)), left, weight)
    share = weight[left].sum() / weight.sum()
    np.testing.assert_allclose(served(BoostedTrees(), theta, rng.normal(size=(5, 2))), logit(share), rtol=1e-12)


def test_no_covariates_at_all_leave_the_share(rng):
    _, left, weight = problem(rng)
    theta, _ = fit_node(BoostedTrees(), np.zeros((120, 0)), left, weight)
    np.testing.assert_allclose(theta[0], logit(weight[left].sum() / weight.sum()), rtol=1e-12)


@pytest.mark.parametrize("missing_side", [True, False], ids=["left", "right"])
def test_missing_values_go_the_way_they_learnt(missing_side, rng):
    """The search for splits of y does not know missing values yet, the trees on x do."""
    x = rng.normal(size=(200, 2))
    left = x[:, 0] > 0
    x[:60, 0], left[:60] = np.nan, missing_side
    theta, _ = fit_node(BoostedTrees(rounds=5), x, left, np.ones(200))
    at = np.array([[np.nan, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    found = served(BoostedTrees(rounds=5), theta, at)
    assert (found > 0).tolist() == [missing_side, True, False]
    kind = np.array([TREES, 5, 3])
    np.testing.assert_allclose(found, laws.logit_of(theta, kind, at), rtol=1e-12)


# Bins


def test_few_values_get_a_bin_each_and_missing_ones_bin_zero():
    column = np.array([3.0, 1.0, np.nan, 2.0, 3.0])
    bins = Bins.fit([(column, np.ones(5)), (np.zeros(5), np.ones(5))], 10)
    np.testing.assert_array_equal(bins.edges, [[1.5, 2.5], [np.inf, np.inf]])
    np.testing.assert_array_equal(bins.codes(np.column_stack([column, np.zeros(5)])), [[3, 1, 0, 2, 3], [1] * 5])
    assert bins.n_bins == 3


def test_many_values_are_cut_at_quantiles_of_the_weights(rng):
    column, weight = rng.gamma(1.0, size=2000), rng.integers(1, 4, 2000).astype(float)
    edges = bin_edges(column, weight, 16)
    assert len(edges) == 15
    shares = np.bincount(np.searchsorted(edges, column), weight) / weight.sum()
    np.testing.assert_allclose(shares, 1 / 16, atol=3 / weight.sum())
    np.testing.assert_array_equal(
        edges, bin_edges(np.repeat(column, weight.astype(int)), np.ones(int(weight.sum())), 16)
    )


def test_a_heavy_value_takes_the_bins_it_fills(rng):
    column = np.concatenate([np.zeros(500), rng.random(500)])
    edges = bin_edges(column, np.ones(1000), 10)
    assert 4 <= len(edges) <= 6
    assert (np.diff(edges) > 0).all()


def test_bins_are_found_once(rng):
    level = Rows(rng.normal(size=(50, 2)), rng.random((50, 1)), np.ones(50))
    assert level.bins(8) is level.bins(8)
    assert level.bins(8).n_bins == 8 != level.bins(9).n_bins


# Whole models


def table(rng, n=400, q=2):
    x = rng.normal(size=(n, q))
    return x, np.sin(3 * x[:, 0]) * (1 + (x[:, 1] > 0)) + 0.2 * rng.normal(size=n)


CLASSIFIERS = {"trees": BoostedTrees(), "hinges": Logistic(basis="hinges"), "cubic": Logistic(basis="cubic")}


@pytest.mark.parametrize("classifier", CLASSIFIERS.values(), ids=CLASSIFIERS)
def test_training_and_serving_give_the_same_numbers(classifier, rng):
    x, y = table(rng)
    x_val, y_val = table(rng)
    model = TreeFlowRegressor(base="box", stages=[Stage(classifier, 4)], max_trees=10, random_state=0)
    model.fit(x, y, X_val=x_val, y_val=y_val)
    kept = model.history_["kept"]
    assert kept.all()
    np.testing.assert_allclose(model.score(x, y), model.history_["train"][-1], rtol=1e-12)
    np.testing.assert_allclose(model.score(x_val, y_val), model.history_["validation"][-1], rtol=1e-12)
    np.testing.assert_allclose(model.feature_importances_.sum(), 1.0)


@pytest.mark.parametrize("classifier", CLASSIFIERS.values(), ids=CLASSIFIERS)
def test_nonlinear_nodes_beat_linear_ones_on_a_nonlinear_table(classifier, rng):
    (x, y), (x_test, y_test) = table(rng, 1000), table(rng, 1000)
    scores = [
        TreeFlowRegressor(base="box", stages=[Stage(kind, 4)], random_state=0).fit(x, y).score(x_test, y_test)
        for kind in (Logistic(), classifier)
    ]
    assert scores[1] > scores[0] + 0.04


@pytest.mark.parametrize("classifier", CLASSIFIERS.values(), ids=CLASSIFIERS)
def test_far_covariates_do_no_harm(classifier, rng):
    x, y = table(rng)
    x[0], x_test = 1e8, np.array([[1e12, -1e12], [0.0, 0.0]])
    model = TreeFlowRegressor(base="box", stages=[Stage(classifier, 4)], max_trees=10, random_state=0).fit(x, y)
    assert np.isfinite(model.log_prob(x_test, [0.0, 0.0])).all()


def test_settings_survive_clone_and_get_params():
    model = TreeFlowRegressor(stages=[Stage(BoostedTrees(rounds=5), 3), Stage(Logistic(basis="auto"), 2)])
    first, second = clone(model).get_params()["stages"]
    assert first.classifier == BoostedTrees(rounds=5)
    assert second.classifier == Logistic(basis="auto")


@pytest.mark.parametrize("q", [1, 3])
def test_hinges_are_the_users_own_hinges_in_a_linear_node(q, rng):
    """A level's fit, score test and packed parameters; only the standardisation of a whole model would differ."""
    x = rng.normal(size=(300, q))
    left = rng.random(300) < expit(3 * abs(x[:, 0]) - 2)
    expanded = np.column_stack([np.maximum(column, knot) for column in x.T for knot in (-np.inf, *KNOTS)])
    found = []
    for covariates, classifier in ((x, Logistic(basis="hinges", tol=1e-10)), (expanded, Logistic(tol=1e-10))):
        level = Rows(covariates, np.where(left, 0.25, 0.75)[:, None], np.ones(300))
        level.begin_tree(1.0, rng)
        width = covariates.shape[1]
        box = np.zeros((1, 1)), np.ones((1, 1))
        candidates = Candidates.collect(level, *box, np.array([0.5]), 0.1, classifier.search_basis(width))
        splits = candidates.pick(np.array([0]))
        level.arrange(splits.axis, splits.cut, classifier.fit_basis(width))
        fits = classifier.fit(level, splits, rng)
        found.append((fits.theta, fits.log_lik, splits.gradient))
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)
    kind = Logistic(basis="hinges").kind(q)
    logits = found[0][0][0, 0] + expanded @ found[0][0][0, 1:]
    np.testing.assert_allclose(laws.logit_of(found[0][0][0], kind, x), logits, atol=1e-12)


@pytest.mark.parametrize("basis", ["linear", "hinges", "cubic"])
def test_the_compiled_features_are_the_plain_ones(basis, rng):
    x = rng.normal(size=(50, 3))
    classifier = Logistic(basis=basis)
    expected = laws.features_of(classifier.kind(3), x)
    np.testing.assert_allclose(classifier.fit_basis(3)(x), expected, rtol=1e-14)


def test_auto_takes_hinges_of_few_covariates():
    for q, name in ((1, "hinges"), (3, "hinges"), (4, "linear")):
        assert Logistic(basis="auto").kind(q) == Logistic(basis=name).kind(q)
        assert len(Logistic(basis="auto").fit_basis(q)) == len(Logistic(basis=name).fit_basis(q))


@pytest.mark.parametrize("basis", ["linear", "hinges", "cubic"])
def test_importances_of_a_basis_are_one_for_each_covariate(basis, rng):
    x, y = table(rng, q=3)
    model = TreeFlowRegressor(stages=[Stage(Logistic(basis=basis), 3)], max_trees=5, random_state=0).fit(x, y)
    assert model.feature_importances_.shape == (3,)
    np.testing.assert_allclose(model.feature_importances_.sum(), 1.0)
