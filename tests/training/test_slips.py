"""The slips of the paper, one test each: the law holds for our form and is broken by the printed one."""

import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression

from tests.helpers import laws, naive
from treecdf import Constant, Logistic
from treecdf._kernels.transform import LINEAR
from treecdf.flows.tree import NODE, TreeSequence
from treecdf.training.boosting import boost
from treecdf.training.classifiers import as_node_classifier
from treecdf.training.growing.grower import TreeGrower
from treecdf.training.growing.splitting import Candidates
from treecdf.training.settings import Growth, Recipe
from treecdf.training.sources.rows import Rows

GROWTH = {
    "c0": 0.3,
    "gamma": 0.5,
    "eta": 0.1,
    "grid_size": 9,
    "min_samples_node": 10,
    "split_search": "score",
    "subsample": 1.0,
}


def grow(u, classifier, depth=1, x=None, **growth):
    x = np.random.default_rng(0).normal(size=(len(u), 2)) if x is None else x
    source = Rows(x, u, np.ones(len(u)))
    return TreeGrower(source, classifier, depth, Growth(**{**GROWTH, **growth}), np.random.default_rng(0)).grow()


def stump(share, left_mass):
    """A tree of one node, split at `share`, whose left child has mass `left_mass` whatever x."""
    node = np.zeros(1, NODE)
    node["left"] = node["right"] = -1
    node["cut"] = node["left_share"] = share
    node["upper"] = node["rate"] = 1.0
    theta = np.array([[logit(left_mass)]])
    return TreeSequence(node, theta, np.array([0, 1]), np.array([LINEAR, 0]))


def apply(tree, u):
    return tree.forward_and_log_det(np.asarray(u, float)[None, :, None], np.zeros((1, 0)))[0][0, :, 0]


def undo(tree, u):
    return tree.inverse(np.asarray(u, float)[None, :, None], np.zeros((1, 0)))[0, :, 0]


@pytest.mark.parametrize(("f", "g"), [(0.25, 0.6), (0.7, 0.2)])
def test_slip_1_the_left_branch_is_fixed_at_the_lower_end(f, g):
    def printed(u):
        a, b = 0.0, 1.0
        left, right = g / ((f - a) / (b - a)), (1 - g) / ((b - f) / (b - a))
        return np.where(u <= f, left * u + (1 - left) * b, right * u + (1 - right) * b)

    u = np.array([1e-9, f, np.nextafter(f, 1.0), 1.0])
    onto_the_box = [0.0, g, g, 1.0]
    np.testing.assert_allclose(apply(stump(f, g), u), onto_the_box, atol=1e-8)
    np.testing.assert_allclose(printed(u)[2:], onto_the_box[2:], atol=1e-8)  # the right branch is printed well
    assert abs(printed(u)[:2] - onto_the_box[:2]).min() > 0.1


@pytest.mark.parametrize(("f", "g"), [(0.25, 0.6), (0.7, 0.2)])
def test_slip_2_the_inverse_has_a_condition_for_each_branch(f, g):
    def printed(z):
        first = f * z / g
        second = f + (1 - f) * (z - g) / (1 - g)
        return np.where(z <= g, second, np.nan), np.where(z <= g, first, np.nan)

    z = np.linspace(0.05, 0.95, 19)
    np.testing.assert_allclose(apply(stump(f, g), undo(stump(f, g), z)), z, atol=1e-12)
    for branch in printed(z):  # whichever of the two branches is meant, z > G has none
        assert np.isnan(branch[z > g]).all()
    last_wins = printed(z)[0][z <= g]
    assert abs(apply(stump(f, g), np.clip(last_wins, 1e-9, 1)) - z[z <= g]).max() > 0.1


@pytest.mark.parametrize("gamma", [0.5, 1.0])
def test_slip_3_the_rate_falls_with_the_volume_and_never_ends(gamma):
    u = np.random.default_rng(1).random((400, 1)) ** 3
    tree = grow(u, Constant(), depth=6, gamma=gamma)
    volume = tree.nodes["upper"] - tree.nodes["lower"]
    assert volume.min() < 0.25
    np.testing.assert_allclose(tree.nodes["rate"], 0.3 * (1 - np.log2(volume)) ** -gamma)
    order = np.argsort(volume)
    assert (np.diff(tree.nodes["rate"][order]) >= -1e-15).all()
    assert ((tree.nodes["rate"] > 0) & (tree.nodes["rate"] <= 0.3)).all()
    with np.errstate(invalid="ignore", divide="ignore"):
        printed = 0.3 * (1 + np.log2(volume)) ** -gamma
    assert not np.all((printed > 0) & (printed <= 0.3))  # undefined, negative or growing below 1 / 2


def test_slip_4_the_classifier_maximises_the_likelihood():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(300, 2))
    u = np.where(rng.random(300) < expit(2 * x[:, 0]), 0.25, 0.75)[:, None]
    tree = grow(u, Logistic(), x=x, split_search="middle")

    def l_bin(theta):
        return -np.logaddexp(0.0, np.where(u[:, 0] <= 0.5, -1, 1) * (theta[0] + x @ theta[1:])).sum()

    fitted = tree.theta[0]
    assert l_bin(fitted) > l_bin(np.zeros(3)) + 20
    # The printed argmin walks the other way, for ever: there is no least likely classifier.
    assert l_bin(-fitted) < l_bin(np.zeros(3))
    assert l_bin(-100 * fitted) < l_bin(-10 * fitted) < l_bin(-fitted)


@pytest.mark.parametrize(("penalty", "count"), [("node", 1.0), ("row", 40.0)])
def test_slip_5_the_penalty_is_eta_times_the_distance_from_the_middle(penalty, count):
    """Once a node as printed, or once a row; in a narrow box too, where the distance is that in the cube."""
    u = 0.5 + 0.25 * np.random.default_rng(3).random((40, 1))
    source = Rows(np.zeros((40, 1)), u, np.ones(40))
    source.begin_tree(1.0, np.random.default_rng(0))
    box, fractions = (np.array([[0.5]]), np.array([[0.75]])), np.arange(1, 10) / 10
    basis = Constant().search_basis(1)
    free, penalised = (Candidates.collect(source, *box, fractions, eta, basis, penalty) for eta in (0.0, 3.0))
    found = (penalised.balance - free.balance)[0, 0]
    np.testing.assert_allclose(found, -3.0 * count * abs(penalised.cuts[0, 0] - 0.625), atol=1e-12)


def test_slip_5_the_penalty_decides_between_equal_splits():
    """Uniform outcomes on the points of a grid: every cut is as good as another, so the middle one wins."""
    u = (np.arange(1, 101)[:, None] - 0.5) / 100
    for eta, cut in [(0.1, 0.5), (1e-6, 0.5)]:
        assert grow(u, Constant(), eta=eta).nodes["cut"][0] == pytest.approx(cut)


def overfitting(*stages, **how):
    """A flow on 60 rows, which 200 validation rows contradict after some trees."""
    rng = np.random.default_rng(4)
    x, u = rng.normal(size=(260, 2)), rng.beta(2, 4, (260, 1))
    train, validation = Rows(x[:60], u[:60], np.ones(60)), Rows(x[60:], u[60:], np.ones(200))
    growth = Growth(**{**GROWTH, "min_samples_node": 4})
    recipe = Recipe(stages, growth, max_trees=50, window=4, bounds=(), **how)
    (blocks,), history = boost([(train, validation)], recipe, np.random.default_rng(0))
    return blocks, history, x, u[:, None]


def test_slip_6_only_the_trees_up_to_the_best_validation_score_are_kept():
    (trees,), history, x, u = overfitting((Logistic(), 5))
    scores = [0.0, *history.validation]
    grown, best = len(history.validation), int(np.argmax(scores))
    assert 0 < best < grown < 50, "the example must overfit"
    # It stops at the first tree that is not above the one a window ago ...
    assert [k for k in range(4, grown + 1) if scores[k] - scores[k - 4] <= 0] == [grown]
    # ... keeps what came before the best score ...
    assert len(trees) == best
    assert history.kept == [k < best for k in range(grown)]
    kept = trees.forward_and_log_det(u[60:], x[60:])[1].mean()
    np.testing.assert_allclose(kept, max(scores), atol=1e-12)
    # ... and that is better than what the paper would keep.
    assert kept > scores[-1] + 1e-3


def test_trees_that_gain_too_little_are_the_last():
    _, whole, _, _ = overfitting((Logistic(), 5))
    (trees,), history, _, _ = overfitting((Logistic(), 5), gain_a_tree=0.02)
    scores, grown = [0.0, *history.validation], len(history.validation)
    assert [k for k in range(4, grown + 1) if scores[k] - scores[k - 4] <= 4 * 0.02] == [grown]
    assert grown < len(whole.validation)
    assert history.validation == whole.validation[:grown]
    assert len(trees) == int(np.argmax(scores))


def test_slip_6_the_next_stage_goes_on_from_the_kept_trees():
    (trees, _), history, x, u = overfitting((Logistic(), 5), (Constant(), 2))
    moved, log_det = trees.forward_and_log_det(u[:60], x[:60])
    tree = grow(moved[:, 0], Constant(), depth=2, x=x[:60], min_samples_node=4)
    expected = log_det.mean() + tree.forward_and_log_det(moved, x[:60])[1].mean()
    np.testing.assert_allclose(history.train[history.stage.index(1)], expected, atol=1e-12)
    last_of_first_stage = history.train[history.stage.index(1) - 1]
    assert abs(last_of_first_stage - log_det.mean()) > 1e-3, "the first stage must roll back"


WEIGHTS = {"rows of weight one": 1.0, "rows of weight two": 2.0, "rows of weight 0.3": 0.3}


@pytest.mark.parametrize("weight", WEIGHTS.values(), ids=WEIGHTS)
@pytest.mark.parametrize("u_range", [(0.0, 0.19), (0.81, 1.0)], ids=["right child empty", "left child empty"])
@pytest.mark.parametrize("kind", ["logistic", "scikit-learn"])
def test_slip_7_an_empty_child_still_wins_the_split_and_gets_no_classifier(kind, u_range, weight):
    """All rows are in a fifth of the cube: the best cut of a grid of four squeezes the rest out."""
    rng = np.random.default_rng(5)
    x, u = rng.normal(size=(80, 2)), rng.uniform(*u_range, (80, 1))
    source = Rows(x, u, np.full(80, weight))
    classifier = Logistic() if kind == "logistic" else as_node_classifier(LogisticRegression())
    growth = Growth(**{**GROWTH, "grid_size": 4})
    tree = TreeGrower(source, classifier, 1, growth, np.random.default_rng(0)).grow()
    left_is_full = u_range[0] == 0.0
    assert tree.nodes["cut"][0] == pytest.approx(0.2 if left_is_full else 0.8)
    share = 1 - 0.5 / (80 * weight)  # half a row away from certainty
    expected = share if left_is_full else 1 - share
    if kind == "logistic":
        np.testing.assert_allclose(tree.theta[0], [logit(expected), 0.0, 0.0], atol=1e-9)
    else:
        assert tree.theta[0, 0].model is None
        assert tree.theta[0, 0].share == pytest.approx(expected)
    _, log_det = tree.forward_and_log_det(u[:, None], x)
    assert (log_det > 0.3).all()  # the density has grown where the rows are
    laws.stays_in_the_cube(tree, rng.random((80, 1, 1)), x)


def test_slip_7_scikit_learn_alone_could_not_fit_an_empty_child():
    """What the oracle does as well: without the rule there is nothing to fit."""
    x = np.random.default_rng(6).normal(size=(80, 2))
    with pytest.raises(ValueError, match="class"):
        naive.logistic().fit(x, np.ones(80, int))
