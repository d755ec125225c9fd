"""What is trained on which table, and how a fitted model says so."""

import re
from functools import cache

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.tree import DecisionTreeRegressor

from treecdf import MLP, BoostedTrees, Constant, Logistic, Stage, TreeFlowRegressor
from treecdf.bases.components import describe_tail
from treecdf.bases.learners import Polynomial
from treecdf.data.table import has_repeats
from treecdf.training.defaults import default_learners, default_mixture
from treecdf.training.parameters import read_settings
from treecdf.training.plan import EFFORTS, OfLargeTable, make_plan, refining_recipe

FREE = (None, None)
ABOVE_ZERO = (0.0, None)


def settings_of(model):
    return read_settings(model.get_params(deep=False))


def plan(n=500, q=3, bounds=(FREE,), **settings):
    return make_plan(settings_of(TreeFlowRegressor(**settings)), n, q, list(bounds))


def repeats(bounds=(FREE, FREE), **settings):
    """The plan for several outcomes that come in the same combinations."""
    return make_plan(settings_of(TreeFlowRegressor(**settings)), 500, 3, list(bounds), has_repeats=True)


def offered(found, n=500, q=3):
    return [learner.name for learner in found.base(n, q).learners]


# Which families

# Outcomes, rows and settings; whether there are flows on a conditional base, and which others with which base.
CASES = {
    "one outcome": (1, 500, {}, True, {}),
    "two outcomes": (2, 500, {}, True, {}),
    "three outcomes": (3, 500, {}, True, {}),
    "many covariates": (1, 500, {"q": 20}, True, {}),
    "many covariates, two outcomes": (2, 500, {"q": 20}, True, {}),
    "many rows": (1, 50_000, {}, True, {}),
    "many rows of two outcomes": (2, 50_000, {}, True, {}),
    "few rows": (1, 20, {}, False, {"joint": "box"}),
    "few rows of two outcomes": (2, 20, {}, False, {"joint": "student"}),
    "few rows, but a conditional base by name": (1, 10, {"base": "conditional"}, True, {}),
    "few rows, but a regressor": (1, 10, {"base": Ridge()}, True, {}),
    "few rows, but a chain": (2, 10, {"structure": "chain"}, True, {}),
    "a fast fit": (1, 500, {"effort": "fast"}, True, {}),
    "a fast fit of two outcomes": (2, 500, {"effort": "fast"}, True, {}),
    "the best fit": (2, 500, {"effort": "best"}, True, {}),
    "a conditional base": (1, 500, {"base": "conditional"}, True, {}),
    "regressors": (2, 500, {"base": [Ridge(), LinearRegression()]}, True, {}),
    "a box": (1, 500, {"base": "box"}, False, {"joint": "box"}),
    "a box of two outcomes": (2, 500, {"base": "box"}, False, {"joint": "box"}),
    "a t": (2, 500, {"base": "student"}, False, {"joint": "student"}),
    "a normal of two outcomes": (2, 500, {"base": "normal"}, False, {"joint": "normal"}),
    "a t of one outcome": (1, 500, {"base": "student"}, False, {"joint": "student"}),
    "a chain": (2, 500, {"structure": "chain"}, True, {}),
    "joint flows": (2, 500, {"structure": "joint"}, False, {"joint": "student"}),
    "joint flows of one outcome": (1, 500, {"structure": "joint"}, True, {}),
    "rotations": (2, 500, {"rotations": 3}, False, {"joint": "student"}),
    "rotations of one outcome": (1, 500, {"rotations": 3}, True, {}),
    "no rotations": (2, 500, {"rotations": 0}, True, {}),
    "own stages": (1, 500, {"stages": [Stage(Constant(), 2)]}, True, {}),
    "own stages of joint flows": (
        2,
        500,
        {"structure": "joint", "stages": [Stage(Constant(), 2)]},
        False,
        {"joint": "student"},
    ),
    "bounds": (1, 500, {"bounds": [ABOVE_ZERO]}, True, {}),
    "bounds of one of two outcomes": (2, 500, {"bounds": [FREE, ABOVE_ZERO]}, True, {}),
    "joint flows with bounds": (2, 500, {"structure": "joint", "bounds": [FREE, ABOVE_ZERO]}, False, {"joint": "box"}),
}


def test_outcomes_that_come_again_together_get_a_family_for_it():
    model = TreeFlowRegressor()
    for q in (1, 20):
        assert list(make_plan(settings_of(model), 500, q, [FREE] * 2, has_repeats=True).joint) == ["repeats"]
        assert list(make_plan(settings_of(model), 500, q, [FREE] * 2, has_repeats=False).joint) == []
    assert make_plan(settings_of(model), 500, 2, [FREE, ABOVE_ZERO], has_repeats=True).joint["repeats"].base == "box"
    assert list(make_plan(settings_of(model), 500, 20, [FREE], has_repeats=True).joint) == []
    assert make_plan(settings_of(TreeFlowRegressor(effort="fast")), 500, 20, [FREE] * 2, has_repeats=True).joint == {}


def test_repeats_are_rows_of_outcomes_with_a_twin():
    values = np.arange(12.0).reshape(6, 2)
    assert not has_repeats(values)
    assert not has_repeats(np.vstack([values, values[:3, ::-1]]))
    assert has_repeats(np.vstack([values, values[:4]]))
    assert not has_repeats(np.vstack([values, values[:2]]))


def test_many_rows_take_quicker_flows_and_huge_tables_fewer_folds():
    few, many, huge = (plan(n) for n in (2000, 5001, 50_000))
    assert few.conditional.growth.c0 == 0.05
    assert many.conditional.growth.c0 == 0.2
    assert (few.n_folds, many.n_folds, huge.n_folds) == (5, 5, 4)
    assert plan(50_000, effort="best").n_folds == 10
    assert plan(50_000, effort="fast").n_folds == 3


def test_samples_of_large_tables_are_learnt_from_quickly_and_without_trees():
    given = 20_000, 3, [FREE]
    near, far = (
        make_plan(settings_of(TreeFlowRegressor()), *given, sample=OfLargeTable(tell)) for tell in (True, False)
    )
    assert (near.n_folds, near.conditional.max_trees) == (4, 0)
    fast = [make_plan(settings_of(TreeFlowRegressor(effort="fast")), *given, sample=OfLargeTable(k)) for k in (1, 0)]
    assert [found.n_folds for found in fast] == [3, 2]
    assert [None if found.contest is None else found.contest.only_best for found in (*fast, far)] == [None, True, False]
    assert [found.conditional.rows_of_tails for found in (near, far, plan(20_000))] == [10_000, 10_000, None]
    assert far.contest.kinds["mixture"](3000, 3) == default_mixture(3000, 3, "fast")
    (asks, is_told), usual = (found.base(20_000, 3) for found in (near, far)), plan(20_000).base(20_000, 3)
    assert "nearest neighbours" in offered(near, 20_000)
    assert asks.n_remembered == usual.n_remembered > 0
    assert "nearest neighbours" not in offered(far, 20_000)
    assert is_told.n_remembered == 0
    assert (usual.n_look, asks.n_look, is_told.n_look) == (None, None, 10_000)
    assert near.base(100, 3) == near.base(20_001, 3)  # a sample is large, however many rows are in it
    own = make_plan(settings_of(TreeFlowRegressor(stages=[Stage(Constant())])), *given, sample=OfLargeTable(True))
    assert own.conditional.max_trees > 0
    best = make_plan(settings_of(TreeFlowRegressor(effort="best")), *given, sample=OfLargeTable(True))
    assert best.n_folds == 10
    assert best.conditional.max_trees > 0


@pytest.mark.parametrize("name", CASES)
def test_families_are_those_of_the_table(name):
    d, n, settings, is_conditional, families = CASES[name]
    settings = {"bounds": [FREE] * d, **settings}
    found = plan(n, **settings)
    assert (found.conditional is not None) == is_conditional
    assert {family: recipe.base for family, recipe in found.joint.items()} == families
    for recipe in (*found.joint.values(), *([found.conditional] if is_conditional else [])):
        assert recipe.bounds == tuple(settings["bounds"])
        assert recipe.stages


def test_stages_are_those_that_suit_the_base():
    def classifiers(recipe):
        return [type(classifier) for classifier, _ in recipe.stages]

    found = plan(bounds=[FREE, FREE])
    assert classifiers(found.conditional) == [BoostedTrees]
    assert classifiers(repeats().joint["repeats"]) == [Constant, MLP]
    assert classifiers(plan(base="box").joint["joint"]) == [Logistic, MLP]


@pytest.mark.parametrize("base", ["auto", "conditional", "box", "student", "normal", Ridge()])
def test_own_stages_are_taken_as_they_are(base):
    found = plan(base=base, stages=[Stage(Constant(), 2), Stage(MLP((3,)), 5)])
    (recipe,) = [recipe for recipe in (found.conditional, *found.joint.values()) if recipe is not None]
    assert recipe.stages == ((Constant(), 2), (MLP((3,)), 5))


# Folds, rotations, orders


def test_folds_grow_with_the_effort_and_shrink_with_the_rows():
    few, many = ({effort: plan(n, effort=effort).n_folds for effort in EFFORTS} for n in (500, 100_000))
    assert 1 < few["fast"] < few["default"] < few["best"]
    assert many["fast"] <= many["default"] < few["default"]
    assert many["best"] == few["best"]


@pytest.mark.parametrize("d", [2, 3, 5])
def test_automatic_joint_flows_are_turned(d):
    """Every plane by as many angles as the effort allows, at least two."""
    default, best = (repeats([FREE] * d, effort=effort).rotations for effort in ("default", "best"))
    planes = d * (d - 1) // 2
    assert len(best) >= len(default) >= planes + 1
    assert len(best) > len(default) or d == 5
    for rotations in (default, best):
        assert (len(rotations) - 1) % planes == 0
        assert np.array_equal(rotations[0], np.eye(d))
        for matrix in rotations:
            np.testing.assert_allclose(matrix @ matrix.T, np.eye(d), atol=1e-12)


def test_what_cannot_be_turned_has_members_that_set_aside_other_rows():
    default, best = (repeats([FREE, ABOVE_ZERO], effort=effort).rotations for effort in ("default", "best"))
    assert set(default) == set(best) == {None}
    assert 1 < len(default) < len(best)


def test_named_rotations_are_taken_as_they_are():
    turned = np.array([[0.6, 0.8], [-0.8, 0.6]])
    found = plan(rotations=[np.eye(2), turned], bounds=[FREE, FREE]).rotations
    assert np.array_equal(found, [np.eye(2), turned])
    assert len(plan(rotations=3, bounds=[FREE] * 3).rotations) == 7
    assert plan(base="box", bounds=[FREE, FREE]).rotations == [None]


@pytest.mark.parametrize(
    ("d", "orders"),
    [
        (1, [(0,)]),
        (2, [(0, 1), (1, 0)]),
        (3, [(0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1)]),
    ],
)
def test_the_best_fit_has_chains_of_several_orders(d, orders):
    assert plan(effort="best", bounds=[FREE] * d).orders == orders
    for effort in ("fast", "default"):
        assert plan(effort=effort, bounds=[FREE] * d).orders == [tuple(range(d))]


def test_every_outcome_comes_first_once_and_last_once_in_the_best_orders():
    orders = plan(effort="best", bounds=[FREE] * 5).orders
    assert len(set(orders)) == len(orders)
    assert {order[0] for order in orders} == {order[-1] for order in orders} == set(range(5))


# Trees and rows of a flow


def test_trees_on_a_conditional_base_see_some_of_the_rows_unless_told_otherwise():
    found = plan(bounds=[FREE, FREE])
    assert found.conditional.growth.subsample == 0.7  # as documented
    assert repeats().joint["repeats"].growth.subsample == 0.7
    assert plan(base="box").joint["joint"].growth.subsample == 1.0
    for settings in ({}, {"base": "box"}):
        told = plan(subsample=0.4, **settings)
        recipes = [recipe for recipe in (told.conditional, *told.joint.values()) if recipe is not None]
        assert {recipe.growth.subsample for recipe in recipes} == {0.4}


def test_fast_and_huge_fits_have_fewer_trees():
    def limits(n=500, **settings):
        recipe = plan(n, **settings).conditional
        return recipe.max_trees, recipe.window

    assert limits() == limits(50_000, effort="best") == (1000, 10)
    trees, window = limits(effort="fast")
    assert trees < 1000
    assert window < 10
    assert limits(effort="fast", max_trees=7, early_stopping_window=2) == (7, 2)
    assert limits(50_000)[0] < 1000
    assert limits(50_000, max_trees=50) == (50, 10)


def test_trees_of_repeats_go_down_to_few_rows():
    for given, least in ((20, 5), (2, 2)):
        assert repeats(min_samples_node=given).joint["repeats"].growth.min_samples_node == least


def test_settings_reach_every_recipe():
    given = {"c0": 0.2, "gamma": 0.3, "eta": 0.4, "grid_size": 7, "max_trees": 9, "early_stopping_window": 4}
    two = {"bounds": [FREE, FREE], **given}
    for recipe in (plan(**two).conditional, plan(base="box", **two).joint["joint"]):
        growth = recipe.growth
        assert (growth.c0, growth.gamma, growth.eta, growth.grid_size) == (0.2, 0.3, 0.4, 7)
        assert (recipe.max_trees, recipe.window) == (9, 4)
    told = plan(weights="stacked", regions=5, validation_fraction=0.2)
    assert (told.weights, told.regions, told.validation_fraction) == ("stacked", 5, 0.2)


def test_learners_are_those_of_the_table_or_the_users_own():
    for effort in EFFORTS:
        expected = [learner.name for learner in default_learners(700, 5, effort)]
        assert offered(plan(effort=effort), 700, 5) == expected
    own = Polynomial(2)
    assert plan(base=own).base(500, 3).learners == [own]
    assert offered(plan(base=[Ridge(), own])) == ["Ridge", "quadratic"]
    assert offered(plan(base=(DecisionTreeRegressor(),))) == ["DecisionTreeRegressor"]


# The paper


@pytest.mark.parametrize(
    ("d", "base", "penalty"), [(1, "normal", "row"), (2, "student", "row"), (3, "student", "node")]
)
@pytest.mark.parametrize("n", [20, 500, 50_000])
def test_the_papers_settings_are_joint_flows(d, base, penalty, n):
    model = TreeFlowRegressor.paper()
    assert (model.base, model.structure) == ("unconditional", "joint")
    found = make_plan(settings_of(model), n, 3, [FREE] * d)
    assert found.conditional is None
    assert found.rotations == [None]
    (recipe,) = found.joint.values()
    assert (recipe.base, recipe.margin, recipe.growth.penalty) == (base, 0.001, penalty)
    assert [(type(classifier), depth) for classifier, depth in recipe.stages] == [(Logistic, 6), (MLP, 4)]
    assert recipe.stages[1][0].hidden == (4, 4)
    assert recipe.growth.subsample == 1.0


def test_the_papers_settings_may_be_overridden():
    model = TreeFlowRegressor.paper(base="student", max_trees=3)
    assert (model.base, model.structure, model.max_trees) == ("student", "joint", 3)
    assert TreeFlowRegressor.paper(stages=None).stages is None


# Summaries


def table(d, n=120):
    rng = np.random.default_rng(d)
    x = rng.normal(size=(n, 2))
    y = np.sin(x[:, :1]) * np.arange(1, d + 1) + 0.3 * rng.gamma(0.5, size=(n, d))
    return x, y[:, 0] if d == 1 else y


@cache
def fitted(kind):
    stages = [Stage(BoostedTrees(rounds=1, max_depth=2), 3)]
    settings = {
        "one outcome": (1, {"base": [Ridge(), DecisionTreeRegressor(max_depth=2)]}),
        "chain": (2, {"structure": "chain", "base": Ridge()}),
        "chains": (2, {"structure": "chain", "base": Ridge(), "effort": "best", "max_trees": 2}),
        "joint": (2, {"structure": "joint", "rotations": 2}),
        "box": (1, {"base": "box"}),
        "no validation": (1, {"base": Ridge(), "validation_fraction": 0, "max_trees": 3}),
    }
    d, own = settings[kind]
    model = TreeFlowRegressor(**{"stages": stages, "c0": 0.3, "max_trees": 6, "random_state": 0, **own})
    return model.fit(*table(d))


every_kind = pytest.mark.parametrize("kind", ["one outcome", "chain", "chains", "joint", "box", "no validation"])


@every_kind
def test_a_summary_names_the_families_their_weights_and_scores(kind):
    model = fitted(kind)
    text = model.summary()
    headings = [line for line in text.splitlines() if not line.startswith((" ", "training rows"))]
    assert len(headings) == len(model.families_)
    for line, family, weight in zip(headings, model.families_, model.family_weights_, strict=True):
        assert line.startswith(f"{family.name}, weight {weight:.2f}:")
        known = family.left_out[np.isfinite(family.left_out)]
        assert line.endswith(f"{known.mean():.3f}" if len(known) else "unknown")
    assert ("unknown" in text) == (kind == "no validation")


@every_kind
def test_a_summary_counts_all_flows_and_trees(kind):
    model = fitted(kind)
    found = re.findall(r"(\d+) flows?, (\d+) trees", model.summary())
    assert sum(int(flows) for flows, _ in found) == len(model.mixture_.tree_flows())
    assert sum(int(trees) for _, trees in found) == model.n_trees_
    assert model.n_trees_ > 0


def test_a_summary_of_one_outcome_names_the_learners_and_their_shares():
    model = fitted("one outcome")
    base = model.mixture_.members[0].base
    (line,) = re.findall(r"mean: (.*)", model.summary())
    shares = dict(re.findall(r"(\w+) (\d+)%", line))
    assert set(shares) <= {"Ridge", "DecisionTreeRegressor"}
    for name, weight in zip(base.components.mean.names, base.components.mean.weights, strict=True):
        assert int(shares.get(name, 0)) == pytest.approx(100 * weight, abs=0.51)
    assert f"transform of the outcome: {base.transform.name}" in model.summary()
    parts = f"{base.components.n_components} {describe_tail(base.tail)}"
    assert f"components: {parts}, and a broad one of weight" in model.summary()


def test_a_summary_of_a_chain_names_the_outcomes_in_its_order():
    for kind in ("chain", "chains"):
        model = fitted(kind)
        orders = [family.members[0].order for family in model.families_]
        found = [int(number) for number in re.findall(r"outcome y(\d+):", model.summary())]
        assert found == [outcome for order in orders for outcome in order]
        assert model.summary().count("mean: Ridge 100%") == len(found)


def test_a_summary_of_unconditional_flows_names_the_base():
    assert "degrees of freedom" in fitted("joint").summary()
    assert "box with tails" in fitted("box").summary()
    assert "mean:" not in fitted("joint").summary() + fitted("box").summary()


def test_a_summary_says_how_the_outcome_was_transformed():
    x, y = table(1)
    model = TreeFlowRegressor(base=Ridge(), max_trees=2, random_state=0)
    model.fit(x, np.exp(3 * y))
    assert "transform of the outcome: logarithm" in model.summary()
    model.fit(x, 10 + (y - y.min()) ** 3)
    power = model.mixture_.members[0].base.transform.power
    assert power < 1
    assert f"Yeo-Johnson {power:g}" in model.summary()


def test_there_is_no_summary_before_fit():
    with pytest.raises(NotFittedError):
        TreeFlowRegressor().summary()


def test_fast_trees_on_many_other_rows_are_few_and_learn_quickly():
    def own(**given):
        return read_settings(TreeFlowRegressor(**given).get_params(deep=False))

    few, many = (refining_recipe(own(effort="fast"), [(None, None)], n) for n in (39_999, 40_000))
    assert (few.max_trees, many.max_trees) == (20, 10)
    assert many.growth.c0 == 2.5 * few.growth.c0
    slow = [refining_recipe(own(effort="default"), [(None, None)], n) for n in (2000, 10**6)]
    assert slow[0] == slow[1]
