"""What "auto", None and `effort` mean: which flows are trained on a table, chosen by measurements (docs/results)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from treecdf._common.protocols import Clusterer, Regressor
from treecdf._common.typing import Array, Bound
from treecdf.bases.components import ComponentLearner, MixtureLearner
from treecdf.bases.learners import Learner, Neighbours, as_learner
from treecdf.bases.stacked import Stack
from treecdf.training.classifiers import MLP, BoostedTrees, Constant, Logistic, NodeClassifier, as_node_classifier
from treecdf.training.contest import USUAL, Contest
from treecdf.training.defaults import (
    FAST_TREES,
    FAST_TREES_ON_MANY_OTHERS,
    FAST_WINDOW,
    FEWEST_ROWS_OF_CONDITIONAL,
    FEWEST_ROWS_OF_MIXTURE,
    FOLDS,
    FOLDS_OF_FAST_SAMPLE,
    FOLDS_OF_HUGE_TABLES,
    FOLDS_OF_LARGE_MIXTURE,
    GAIN_A_TREE,
    HUGE_ROWS,
    MANY_OTHERS,
    MANY_ROWS,
    MEMBERS,
    MOST_OUTCOMES_OF_ROW_PENALTY,
    MOST_ROWS_OF_JOINT_FLOWS,
    ROTATIONS,
    ROWS_OF_DEEP_NODE,
    ROWS_OF_LOOK,
    SUBSAMPLE,
    TREES_ON_MANY_ROWS,
    WORTH_TREES,
    default_learners,
    default_mixture,
    default_network_mixture,
    default_remembered,
    default_scales,
    large_mixture,
    look_at_large_mixture,
)
from treecdf.training.settings import FitSettings, Growth, Recipe, Stage

PAPER_STAGES = (Stage(Logistic(), max_depth=6), Stage(MLP((4, 4), alpha=1e-4, max_iter=1000), max_depth=4))
PAPER_SETTINGS = {
    "base": "unconditional",
    "margin": 0.001,
    "structure": "joint",
    "weights": "mean_likelihood",
    "penalty": "auto",
    "subsample": 1.0,
    "resolution": None,
}
JOINT_STAGES = (Stage(Logistic(), max_depth=6), Stage(MLP((4, 4)), max_depth=4))
REPEAT_STAGES = (Stage(Constant(), max_depth=10), Stage(MLP((4, 4)), max_depth=4))
CONDITIONAL_STAGES = (Stage(BoostedTrees(rounds=1, max_depth=2), max_depth=4),)
REFINING_STAGES = (Stage(BoostedTrees(rounds=1, max_depth=4), max_depth=4),)
EFFORTS = ("fast", "default", "best")
STRUCTURES = ("auto", "chain", "joint")
CONDITIONAL_NAMES = ("conditional", "mixture", "network")
UNCONDITIONAL_NAMES = ("unconditional", "box", "student", "normal")
BASE_NAMES = ("auto", *CONDITIONAL_NAMES, *UNCONDITIONAL_NAMES)


@dataclass(frozen=True)
class OfLargeTable:
    """Properties of rows that are a sample of a large table."""

    near_rows_tell: bool  # whether the nearest of more rows tells much more (ADR 49)
    is_for_mixture: bool = False  # whether these are many rows, for one boosted mixture (ADR 52)
    is_look: bool = False  # whether this mixture only tells what one of more rows would be worth


@dataclass(frozen=True)
class Plan:
    """What to train: one-outcome flows, joint flows or both."""

    conditional: Recipe | None  # one-outcome flows on a conditional base: the only outcome, or the links of chains
    base: Callable[[int, int], ComponentLearner]  # how that base is learnt from n rows of q covariates
    contest: Contest | None  # between it and other bases, from which it follows which are trained; None: first looks
    mixtures: Mapping[str, Callable[[int, int], MixtureLearner]]  # other bases beside it, for shapes; by family
    orders: Sequence[tuple[int, ...]]  # of the outcomes in the chains
    n_folds: int
    joint: Mapping[str, Recipe]  # families of flows of all outcomes at once
    rotations: Sequence[Array | None]  # of their members
    weights: str  # of their members: "equal", "stacked", "likelihood" or "mean_likelihood"
    regions: int | str | Clusterer
    validation_fraction: float


def make_plan(
    settings: FitSettings,
    n: int,
    q: int,
    bounds: Sequence[Bound],
    has_repeats: bool = False,
    sample: OfLargeTable | None = None,
) -> Plan:
    """The plan for n rows of q covariates and outcomes with these bounds.

    has_repeats: whether several outcomes occur in the same combinations again and again. sample: properties of the rows
    as a sample of a large table on whose other rows trees will be grown; None if they are not a sample.
    """
    d, is_large_mixture = len(bounds), sample is not None and sample.is_for_mixture
    if settings.effort == "best" and not is_large_mixture:
        sample = None
    if sample is not None:
        n = max(n, HUGE_ROWS + 1)  # a sample is learnt from as large tables are, however many rows are in it
    recipe = Recipe(
        stages=(),
        growth=_growth(settings, d),
        max_trees=settings.max_trees,
        window=settings.early_stopping_window,
        bounds=tuple(bounds),
        margin=settings.margin,
        remember_rows=bool(settings.remember_rows),
    )
    conditional, joint, mixtures = None, dict[str, Recipe](), dict[str, Callable[[int, int], MixtureLearner]]()
    rotations = rotation_matrices(settings.rotations if d > 1 else None, d)
    if is_conditional(settings, n, d):
        conditional = _conditional_recipe(settings, recipe, n)
        if sample is not None:
            conditional = replace(conditional, rows_of_tails=ROWS_OF_LOOK)
        if sample is not None and settings.stages is None:
            conditional = replace(conditional, max_trees=0)
        if settings.base == "auto" and settings.stages is None and n >= FEWEST_ROWS_OF_MIXTURE:
            mixtures["mixture"] = partial(default_mixture, effort=settings.effort)
            mixtures["network"] = partial(default_network_mixture, effort=settings.effort)
        if d > 1 and has_repeats and _is_all_automatic(settings) and n <= MOST_ROWS_OF_JOINT_FLOWS:
            joint["repeats"] = _recipe_of_repeats(replace(recipe, base=_unconditional("auto", bounds)))
            rotations = _auto_rotations(settings.effort, bounds)
    else:
        stages = _read_stages(settings.stages, JOINT_STAGES)
        joint["joint"] = replace(recipe, stages=stages, base=_unconditional(settings.base, bounds))
    return Plan(
        conditional=conditional,
        base=partial(_component_learner, settings, sample=sample),
        contest=_contest(settings) if _is_contested(settings, sample) and conditional is not None else None,
        mixtures=mixtures,
        orders=_orders(d, settings.effort),
        n_folds=FOLDS_OF_LARGE_MIXTURE
        if is_large_mixture
        else _n_folds(settings.effort, n, _is_contested(settings, sample)),
        joint=joint,
        rotations=rotations,
        weights=settings.weights,
        regions=settings.regions,
        validation_fraction=settings.validation_fraction,
    )


def streamed_recipe(settings: FitSettings, bounds: Sequence[Bound]) -> Recipe:
    """The recipe of the one flow that is trained on rows that are not all in memory.

    It is the joint flow that rows in memory would get.
    """
    return Recipe(
        stages=_read_stages(settings.stages, JOINT_STAGES),
        growth=_growth(settings, len(bounds)),
        max_trees=settings.max_trees,
        window=settings.early_stopping_window,
        bounds=tuple(bounds),
        margin=settings.margin,
        base=_unconditional(settings.base, bounds),
    )


def refining_recipe(settings: FitSettings, bounds: Sequence[Bound], n: int) -> Recipe:
    """The recipe of the trees that are grown on the n other rows of a large table, on the model of a sample.

    Each tree sees all these rows unless the settings say otherwise: subsamples depend on row numbers, and so on the
    order.
    """
    growth, is_fast = _growth(settings, len(bounds)), settings.effort == "fast"
    is_quick = is_fast and n >= MANY_OTHERS
    most = FAST_TREES_ON_MANY_OTHERS if is_quick else FAST_TREES if is_fast else TREES_ON_MANY_ROWS
    return Recipe(
        stages=_read_stages(None, REFINING_STAGES),
        growth=replace(growth, c0=_quick(growth, 10.0 if is_quick else 4.0).c0),
        max_trees=min(most, settings.max_trees),
        window=min(FAST_WINDOW, settings.early_stopping_window) if is_fast else settings.early_stopping_window,
        bounds=tuple(bounds),
        margin=settings.margin,
        least_gain=WORTH_TREES,
        gain_a_tree=GAIN_A_TREE,
    )


def _conditional_recipe(settings: FitSettings, recipe: Recipe, n: int) -> Recipe:
    """The recipe of flows on a conditional base, for n rows."""
    conditional = replace(recipe, stages=_read_stages(settings.stages, CONDITIONAL_STAGES))
    if settings.stages is None:
        conditional = replace(conditional, least_gain=WORTH_TREES)
    if settings.subsample is None:
        conditional = replace(conditional, growth=replace(recipe.growth, subsample=SUBSAMPLE))
    if settings.effort == "fast":
        window, max_trees = min(FAST_WINDOW, recipe.window), min(FAST_TREES, recipe.max_trees)
        conditional = replace(conditional, window=window, max_trees=max_trees)
    elif n > MANY_ROWS and settings.effort == "default":
        growth = replace(conditional.growth, c0=_quick(recipe.growth, 4.0).c0)
        conditional = replace(conditional, growth=growth, max_trees=min(TREES_ON_MANY_ROWS, recipe.max_trees))
    return conditional


def _growth(settings: FitSettings, d: int) -> Growth:
    """The settings of growing trees on d outcomes."""
    if settings.penalty != "auto":
        return settings.growth
    return replace(settings.growth, penalty="row" if d <= MOST_OUTCOMES_OF_ROW_PENALTY else "node")


def _quick(growth: Growth, factor: float = 2.0) -> Growth:
    """Settings for growing on samples of the rows, at a rate that needs fewer trees."""
    return replace(growth, subsample=SUBSAMPLE, c0=max(growth.c0, min(factor * growth.c0, 0.5)))


def _n_folds(effort: str, n: int, is_contested: bool) -> int:
    if effort == "fast" and is_contested:
        return FOLDS_OF_FAST_SAMPLE
    return min(FOLDS[effort], FOLDS_OF_HUGE_TABLES) if n > HUGE_ROWS and effort != "best" else FOLDS[effort]


def _is_all_automatic(settings: FitSettings) -> bool:
    """Whether families of other kinds may be added to those on a conditional base."""
    is_auto = settings.base == "auto" and settings.structure == "auto"
    return is_auto and settings.stages is None and settings.effort != "fast"


def _auto_rotations(effort: str, bounds: Sequence[Bound]) -> list[Array | None]:
    """The rotations of the members of joint families; members without rotations set aside different rows."""
    d = len(bounds)
    if _is_bounded(bounds):
        return [None] * MEMBERS[effort]
    return rotation_matrices(max(2, ROTATIONS[effort] // (d * (d - 1) // 2)), d)


def _recipe_of_repeats(recipe: Recipe) -> Recipe:
    """The recipe of joint flows for outcomes that occur in the same combinations again and again (ADR 16)."""
    deep = replace(recipe.growth, min_samples_node=min(ROWS_OF_DEEP_NODE, recipe.growth.min_samples_node))
    return replace(recipe, stages=_read_stages(None, REPEAT_STAGES), growth=_quick(deep))


def _unconditional(base: str | tuple[Regressor | Learner, ...], bounds: Sequence[Bound]) -> str:
    """The name of the base of flows of all outcomes."""
    if base in ("box", "student", "normal"):
        return str(base)
    if _is_bounded(bounds):
        return "box"
    if len(bounds) > 1:
        return "student"
    return "normal" if base == "unconditional" else "box"


def _is_bounded(bounds: Sequence[Bound]) -> bool:
    return any(end is not None for pair in bounds for end in pair)


def is_conditional(settings: FitSettings, n: int, d: int) -> bool:
    """Whether one-outcome flows on a conditional base are trained."""
    if settings.base in UNCONDITIONAL_NAMES:
        return False
    if d > 1 and (settings.structure == "joint" or settings.has_rotations):
        return False
    if d > 1 and settings.structure == "chain":
        return True
    return n >= FEWEST_ROWS_OF_CONDITIONAL or not isinstance(settings.base, str) or settings.base in CONDITIONAL_NAMES


def _read_stages(stages: Sequence[Stage] | None, default: Sequence[Stage]) -> tuple[tuple[NodeClassifier, int], ...]:
    chosen = default if stages is None else stages
    return tuple((as_node_classifier(stage.classifier), stage.max_depth) for stage in chosen)


def _component_learner(settings: FitSettings, n: int, q: int, sample: OfLargeTable | None) -> ComponentLearner:
    """How a conditional base is learnt from n rows of q covariates: by the user's regressors, or by the usual ones.

    A sample of a large table is learnt from as large tables are, however many rows are in it.
    """
    if sample is not None:
        n = max(n, HUGE_ROWS + 1)
    if sample is not None and sample.is_for_mixture:
        return look_at_large_mixture(q) if sample.is_look else large_mixture(q, settings.effort)
    if settings.base == "mixture":
        return default_mixture(n, q, settings.effort)
    if settings.base == "network":
        return default_network_mixture(n, q, settings.effort)
    if isinstance(settings.base, str):
        learners = default_learners(n, q, settings.effort, settings.remember_rows)
        if sample is None or sample.near_rows_tell:
            return Stack(learners, default_scales(n), default_remembered(n, q) if settings.remember_rows else 0)
        learners = [learner for learner in learners if not isinstance(learner, Neighbours)]
        return Stack(learners, default_scales(n), n_look=ROWS_OF_LOOK)
    return Stack([as_learner(regressor) for regressor in settings.base], default_scales(n))


def _is_contested(settings: FitSettings, sample: OfLargeTable | None) -> bool:
    """Whether a contest on few rows decides which bases are trained: for large tables, unless near rows help."""
    is_automatic = settings.base == "auto" and settings.stages is None
    return sample is not None and not sample.near_rows_tell and is_automatic


def _contest(settings: FitSettings) -> Contest:
    """Between bases as fast fits have them; fast fits train the best one only."""

    def usual(n: int, q: int) -> ComponentLearner:
        learners = default_learners(n, q, "fast", remember_rows=False)
        return Stack(learners, default_scales(HUGE_ROWS + 1))

    kinds: dict[str, Callable[[int, int], ComponentLearner]] = {
        USUAL: usual,
        "mixture": partial(default_mixture, effort="fast"),
        "network": partial(default_network_mixture, effort="fast"),
    }
    return Contest(kinds, only_best=settings.effort == "fast")


def _orders(d: int, effort: str) -> list[tuple[int, ...]]:
    """Orders of the outcomes: as they are; with the best effort also backwards, and every one first."""
    forwards = tuple(range(d))
    if effort != "best":
        return [forwards]
    turned = [forwards[k:] + forwards[:k] for k in range(1, d)]
    return list(dict.fromkeys([forwards, forwards[::-1], *turned]))


def rotation_matrices(rotations: int | Sequence[Array] | None, n_outcomes: int) -> list[Array | None]:
    """The members' rotations: None for outcomes as they are.

    A number J means J equally spaced angles in every coordinate plane; a quarter turn maps axes to axes, so they
    divide [0, pi / 2), and the angle 0, which all planes share, is taken once.
    """
    if rotations is None:
        return [None]
    if isinstance(rotations, int | np.integer):
        if rotations == 0:
            return [None]
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


def _read_rotation(matrix: ArrayLike, d: int) -> Array:
    values = np.array(matrix, dtype=np.float64)
    is_small = values.shape == (d, d) and bool((np.abs(values) < 2).all())
    if not is_small or not np.allclose(values @ values.T, np.eye(d), rtol=0, atol=1e-8):
        raise ValueError(f"Expected rotations to be orthogonal matrices of shape ({d}, {d}); got {matrix!r}.")
    return values
