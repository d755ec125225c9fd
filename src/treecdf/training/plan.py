"""What "auto", None and `effort` mean: which flows are trained on a table, chosen by evidence (docs/results)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from treecdf._common.typing import Array
from treecdf._common.validation import is_int
from treecdf.bases.learners import Learner, as_learner
from treecdf.training.classifiers import MLP, BoostedTrees, Constant, Logistic, as_node_classifier
from treecdf.training.defaults import default_learners
from treecdf.training.settings import Growth, Recipe, Stage

PAPER_STAGES = (Stage(Logistic(), max_depth=6), Stage(MLP((4, 4), alpha=1e-4, max_iter=1000), max_depth=4))
JOINT_STAGES = (Stage(Logistic(), max_depth=6), Stage(MLP((4, 4)), max_depth=4))
TREE_STAGES = (Stage(BoostedTrees(), max_depth=6),)
SMOOTH_STAGES = (Stage(Logistic(basis="auto"), max_depth=6),)
DEEP_STAGES = (Stage(Logistic(), max_depth=10),)
REPEAT_STAGES = (Stage(Constant(), max_depth=10), Stage(MLP((4, 4)), max_depth=4))
STREAMED_STAGES = (Stage(Logistic(), max_depth=6), Stage(BoostedTrees(), max_depth=6))
CONDITIONAL_STAGES = (Stage(BoostedTrees(rounds=1, max_depth=2), max_depth=4),)
EFFORTS = ("fast", "default", "best")
STRUCTURES = ("auto", "chain", "joint")
BASES = ("auto", "conditional", "box", "student")
_FOLDS = {"fast": 3, "default": 5, "best": 10}
_ROTATIONS = {"default": 4, "best": 12}  # of two outcomes
_MEMBERS = {"default": 3, "best": 10}  # of a family of flows of one outcome
_FAST_WINDOW = 3
_FAST_TREES = 20
_MANY_ROWS, _MANY_TREES = 2500, 300  # on so many rows no more trees than that
_MOST_SMOOTH = 3  # covariates, for hinges at the nodes
_FEWEST_ROWS = 40  # for a conditional base
_SUBSAMPLE = 0.7
_MOST_ROWS = 5000  # for families of unconditional flows beside the conditional ones
_HUGE, _FOLDS_OF_HUGE = 20_000, 4  # on so many rows fewer folds do
_FEW_ROWS = 5  # of a node of deep trees


@dataclass(frozen=True)
class Plan:
    """What to train: one-outcome flows, joint flows or both."""

    conditional: Recipe | None  # one-outcome flows on a conditional base: the only outcome, or the links of chains
    learners: Callable[[int, int], Sequence[Learner]]  # of that base, for n rows of q covariates
    orders: Sequence[tuple[int, ...]]  # of the outcomes in the chains
    n_folds: int
    joint: Mapping[str, Recipe]  # families of flows of all outcomes at once
    rotations: Sequence[Array | None]  # of their members
    weights: str  # of their members: "equal", "stacked" or "likelihood"
    regions: Any
    validation_fraction: float


def make_plan(model: Any, n: int, q: int, bounds: Sequence[Any], has_repeats: bool = False) -> Plan:
    """The plan of a TreeFlowRegressor for n rows of q covariates and outcomes with these bounds.

    has_repeats: whether several outcomes come together in the same combinations again and again.
    """
    d = len(bounds)
    recipe = Recipe(
        stages=(),
        growth=model._growth(),
        max_trees=model.max_trees,
        window=model.early_stopping_window,
        bounds=tuple(bounds),
    )
    conditional, joint = None, dict[str, Recipe]()
    rotations = rotation_matrices(model.rotations if d > 1 else None, d)
    if _is_conditional(model, n, d):
        conditional = _conditional_recipe(model, recipe, n)
        if _is_all_automatic(model) and n <= _MOST_ROWS:
            joint = _joint_families(replace(recipe, base=_unconditional("auto", bounds)), q, has_repeats)
            rotations = _auto_rotations(model.effort, bounds)
    else:
        stages = _read_stages(model.stages, JOINT_STAGES)
        joint["joint"] = replace(recipe, stages=stages, base=_unconditional(model.base, bounds))
    return Plan(
        conditional=conditional,
        learners=_learners(model),
        orders=_orders(d, model.effort),
        n_folds=_n_folds(model.effort, n),
        joint=joint,
        rotations=rotations,
        weights=model.weights,
        regions=model.regions,
        validation_fraction=model.validation_fraction,
    )


def streamed_recipe(model: Any, bounds: Sequence[Any]) -> Recipe:
    """The one flow that a TreeFlowRegressor trains on rows that are not all in memory.

    With base="box" or "student" it is the joint flow that rows in memory would give. Networks take several times the
    passes of boosted trees, so "auto" prefers these.
    """
    is_auto = isinstance(model.base, str) and model.base == "auto"
    return Recipe(
        stages=_read_stages(model.stages, STREAMED_STAGES if is_auto else JOINT_STAGES),
        growth=model._growth(),
        max_trees=model.max_trees,
        window=model.early_stopping_window,
        bounds=tuple(bounds),
        base=_unconditional(model.base, bounds),
    )


def _conditional_recipe(model: Any, recipe: Recipe, n: int) -> Recipe:
    """Flows on a conditional base."""
    conditional = replace(recipe, stages=_read_stages(model.stages, CONDITIONAL_STAGES))
    if model.subsample is None:
        conditional = replace(conditional, growth=replace(recipe.growth, subsample=_SUBSAMPLE))
    if model.effort == "fast":
        window, max_trees = min(_FAST_WINDOW, recipe.window), min(_FAST_TREES, recipe.max_trees)
        conditional = replace(conditional, window=window, max_trees=max_trees)
    elif n > _MANY_ROWS and model.effort == "default":
        growth = replace(conditional.growth, c0=_quick(recipe.growth, 4.0).c0)
        conditional = replace(conditional, growth=growth, max_trees=min(_MANY_TREES, recipe.max_trees))
    return conditional


def _quick(growth: Growth, factor: float = 2.0) -> Growth:
    """On samples of the rows and at a rate that needs fewer trees."""
    return replace(growth, subsample=_SUBSAMPLE, c0=max(growth.c0, min(factor * growth.c0, 0.5)))


def _n_folds(effort: str, n: int) -> int:
    return min(_FOLDS[effort], _FOLDS_OF_HUGE) if n > _HUGE and effort != "best" else _FOLDS[effort]


def _is_all_automatic(model: Any) -> bool:
    """Whether families of other kinds may join those on a conditional base."""
    is_auto = isinstance(model.base, str) and model.base == "auto" and model.structure == "auto"
    return is_auto and model.stages is None and model.effort != "fast"


def _auto_rotations(effort: str, bounds: Sequence[Any]) -> list[Array | None]:
    """Of the members of joint families; without rotations they still set aside different rows."""
    d = len(bounds)
    if d == 1 or _is_bounded(bounds):
        return [None] * _MEMBERS[effort]
    return rotation_matrices(max(2, _ROTATIONS[effort] // (d * (d - 1) // 2)), d)


def _joint_families(recipe: Recipe, q: int, has_repeats: bool) -> dict[str, Recipe]:
    """Flows on unconditional bases, for shapes that no mixture around a mean has."""
    usual = recipe.growth
    deep = replace(usual, min_samples_node=min(_FEW_ROWS, usual.min_samples_node))
    if q > _MOST_SMOOTH:
        families = {}
        if len(recipe.bounds) > 1 and has_repeats:
            families["repeats"] = replace(recipe, stages=_read_stages(None, REPEAT_STAGES), growth=_quick(deep))
        families["trees"] = replace(recipe, stages=_read_stages(None, TREE_STAGES), growth=_quick(usual))
        return families
    families = {"smooth": replace(recipe, stages=_read_stages(None, SMOOTH_STAGES))}
    if len(recipe.bounds) > 1:
        families["deep"] = replace(recipe, stages=_read_stages(None, DEEP_STAGES), growth=deep)
    return families


def _unconditional(base: Any, bounds: Sequence[Any]) -> str:
    """The base of flows of all outcomes."""
    if base in ("box", "student"):
        return str(base)
    return "box" if len(bounds) == 1 or _is_bounded(bounds) else "student"


def _is_bounded(bounds: Sequence[Any]) -> bool:
    return any(end is not None for pair in bounds for end in pair)


def _is_conditional(model: Any, n: int, d: int) -> bool:
    """Whether one-outcome flows on a conditional base are trained."""
    if isinstance(model.base, str) and model.base in ("box", "student"):
        return False
    if d > 1 and (model.structure == "joint" or not has_no_rotations(model.rotations)):
        return False
    if d > 1 and model.structure == "chain":
        return True
    return n >= _FEWEST_ROWS or not isinstance(model.base, str) or model.base == "conditional"


def _read_stages(stages: Sequence[Stage] | None, default: Sequence[Stage]) -> tuple[tuple[Any, int], ...]:
    chosen = default if stages is None else stages
    return tuple((as_node_classifier(stage.classifier), stage.max_depth) for stage in chosen)


def _learners(model: Any) -> Callable[[int, int], Sequence[Learner]]:
    if isinstance(model.base, str):
        return lambda n, q: default_learners(n, q, model.effort)
    given = model.base if isinstance(model.base, (list, tuple)) else [model.base]
    return lambda n, q: [as_learner(regressor) for regressor in given]


def _orders(d: int, effort: str) -> list[tuple[int, ...]]:
    """Orders of the outcomes: as they are; with the best effort also backwards, and every one first."""
    forwards = tuple(range(d))
    if effort != "best":
        return [forwards]
    turned = [forwards[k:] + forwards[:k] for k in range(1, d)]
    return list(dict.fromkeys([forwards, forwards[::-1], *turned]))


def has_no_rotations(rotations: Any) -> bool:
    """Whether the parameter is None or 0."""
    return rotations is None or (is_int(rotations) and rotations == 0)


def rotation_matrices(rotations: Any, n_outcomes: int) -> list[Array | None]:
    """The members' rotations: None for outcomes as they are.

    A number J means J equally spaced angles in every coordinate plane; a quarter turn maps axes to axes, so they
    divide [0, pi / 2), and the angle 0, which all planes share, is taken once.
    """
    if has_no_rotations(rotations):
        return [None]
    if is_int(rotations):
        matrices: list[Array | None] = [np.eye(n_outcomes)]
        angles = np.pi / 2 * np.arange(1, rotations) / rotations
        for j in range(n_outcomes):
            for k in range(j + 1, n_outcomes):
                matrices += [_plane_rotation(n_outcomes, j, k, angle) for angle in angles]
        return matrices
    return [_read_rotation(matrix, n_outcomes) for matrix in rotations]


def _plane_rotation(d: int, j: int, k: int, angle: float) -> Array:
    matrix = np.eye(d)
    matrix[j, j] = matrix[k, k] = np.cos(angle)
    matrix[j, k], matrix[k, j] = np.sin(angle), -np.sin(angle)
    return matrix


def _read_rotation(matrix: Any, d: int) -> Array:
    values = np.array(matrix, dtype=np.float64)
    is_small = values.shape == (d, d) and bool((np.abs(values) < 2).all())
    if not is_small or not np.allclose(values @ values.T, np.eye(d), rtol=0, atol=1e-8):
        raise ValueError(f"Expected rotations to be orthogonal matrices of shape ({d}, {d}); got {matrix!r}.")
    return values
