"""Validation of the parameters of TreeFlowRegressor, each by itself and together."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import is_regressor

from treecdf._common.typing import Bound
from treecdf._common.validation import check_setting, is_int, is_real
from treecdf.training.classifiers import as_node_classifier
from treecdf.training.plan import BASE_NAMES, CONDITIONAL_NAMES, EFFORTS, STRUCTURES
from treecdf.training.settings import FitSettings, Stage

_SEARCHES = ("score", "exhaustive", "middle")
_WEIGHTS = ("equal", "stacked", "likelihood", "mean_likelihood")
_PENALTIES = ("auto", "node", "row")
_INTERRUPTS = ("raise", "keep")


def _is_list_of_matrices(value: object) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim == 3 and len(value) > 0
    return isinstance(value, list | tuple) and len(value) > 0


def _is_base(value: object) -> bool:
    if isinstance(value, str):
        return value in BASE_NAMES
    regressors = value if isinstance(value, list | tuple) else [value]
    return len(regressors) > 0 and all(_is_regressor(part) for part in regressors)


def _is_regressor(value: object) -> bool:
    return not isinstance(value, type) and (
        hasattr(value, "cross_fit") or (hasattr(value, "fit") and is_regressor(value))
    )


def _is_clusterer(value: object) -> bool:
    return hasattr(value, "predict") and not isinstance(value, type)


def _is_seed(value: object) -> bool:
    generators = (np.random.Generator, np.random.RandomState, np.random.SeedSequence, np.random.BitGenerator)
    is_number = isinstance(value, int | np.integer) and is_int(value) and bool(value >= 0)
    return value is None or is_number or isinstance(value, generators)


# What each parameter may be, and how to say so.
RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "effort": (lambda v: isinstance(v, str) and v in EFFORTS, f"one of {', '.join(map(repr, EFFORTS))}"),
    "structure": (lambda v: isinstance(v, str) and v in STRUCTURES, f"one of {', '.join(map(repr, STRUCTURES))}"),
    "base": (_is_base, f"one of {', '.join(map(repr, BASE_NAMES))}, a regressor or a list of regressors"),
    "rotations": (
        lambda v: v is None or (is_int(v) and v >= 0) or _is_list_of_matrices(v),
        "None, an integer of at least 0 or a list of orthogonal matrices",
    ),
    "weights": (lambda v: isinstance(v, str) and v in _WEIGHTS, f"one of {', '.join(map(repr, _WEIGHTS))}"),
    "regions": (
        lambda v: v == "hdbscan" if isinstance(v, str) else (is_int(v) and v >= 1) or _is_clusterer(v),
        "an integer of at least 1, 'hdbscan' or a clusterer with predict",
    ),
    "weights_are": (lambda v: isinstance(v, str) and v in ("counts", "relative"), "'counts' or 'relative'"),
    "remember_rows": (lambda v: isinstance(v, bool | np.bool_), "True or False"),
    "margin": (lambda v: is_real(v) and 0 < v <= 10, "a number above 0, at most 10"),
    "c0": (lambda v: is_real(v) and 0 < v < 1, "a number between 0 and 1"),
    "gamma": (lambda v: is_real(v) and v >= 0, "a number of at least 0"),
    "eta": (lambda v: is_real(v) and v >= 0, "a number of at least 0"),
    "penalty": (lambda v: isinstance(v, str) and v in _PENALTIES, "'auto', 'node' or 'row'"),
    "grid_size": (lambda v: is_int(v) and 1 <= v <= 1000, "an integer from 1 to 1000"),
    "min_samples_node": (lambda v: is_real(v) and v >= 1, "a number of at least 1"),
    "max_trees": (lambda v: is_int(v) and v >= 0, "an integer of at least 0"),
    "early_stopping_window": (lambda v: is_int(v) and v >= 1, "an integer of at least 1"),
    "validation_fraction": (lambda v: is_real(v) and 0 <= v < 1, "a number from 0 to below 1"),
    "subsample": (lambda v: v is None or (is_real(v) and 0 < v <= 1), "None or a number above 0, at most 1"),
    "split_search": (lambda v: v in _SEARCHES, f"one of {', '.join(map(repr, _SEARCHES))}"),
    "random_state": (_is_seed, "None, an integer of at least 0, or a generator of numpy's"),
    "n_jobs": (lambda v: v is None or (is_int(v) and v != 0), "None or an integer other than 0"),
    "checkpoint": (lambda v: v is None or (isinstance(v, str | os.PathLike) and os.fspath(v) != ""), "None or a path"),
    "on_interrupt": (lambda v: isinstance(v, str) and v in _INTERRUPTS, "'raise' or 'keep'"),
    "verbose": (lambda v: isinstance(v, bool) or (is_int(v) and v >= 0), "an integer of at least 0"),
}


def check_parameter(name: str, value: object) -> None:
    """Raise a ValueError if a parameter has a value that is not allowed."""
    is_valid, expected = RULES[name]
    check_setting(name, value, is_valid(value), expected)


def read_settings(parameters: Mapping[str, Any]) -> FitSettings:
    """The parameters of a TreeFlowRegressor as frozen settings, validated."""
    for name in RULES:
        check_parameter(name, parameters[name])
    stages = parameters["stages"]
    if stages is not None:
        if not isinstance(stages, list | tuple) or not all(isinstance(stage, Stage) for stage in stages):
            raise TypeError(f"Expected stages to be a list of Stage; got {stages!r}.")
        for stage in stages:
            depth = stage.max_depth
            check_setting("max_depth", depth, is_int(depth) and 1 <= depth <= 30, "an integer from 1 to 30")
            as_node_classifier(stage.classifier)
    base, rotations = parameters["base"], parameters["rotations"]
    if not isinstance(base, str):
        base = tuple(base) if isinstance(base, list | tuple) else (base,)
    return FitSettings(
        **{
            **parameters,
            "base": base,
            "stages": None if stages is None else tuple(stages),
            "rotations": int(rotations) if is_int(rotations) else rotations,
        }
    )


def check_together(settings: FitSettings, bounds: Sequence[Bound]) -> None:
    """Raise a ValueError about settings that contradict each other or the bounds."""
    has_rotations, n_outcomes = settings.has_rotations, len(bounds)
    if n_outcomes == 1 and has_rotations:
        warnings.warn("rotations are for several outcomes; with one they are ignored.", UserWarning, stacklevel=3)
        has_rotations = False
    is_unconditional = settings.base in ("box", "student", "normal")
    if n_outcomes > 1 and settings.structure == "chain" and (is_unconditional or has_rotations):
        raise ValueError("structure='chain' has a conditional base and no rotations: expected structure='joint'.")
    has_regressors = not isinstance(settings.base, str)
    if not settings.remember_rows:
        _check_memory(settings, has_rotations)
    if has_rotations and has_regressors:
        raise ValueError("rotations are for joint flows, a regressor is for one outcome: expected only one of them.")
    if n_outcomes > 1 and settings.structure == "joint" and (has_regressors or settings.base in CONDITIONAL_NAMES):
        raise ValueError("structure='joint' has no conditional base: expected base='student' or 'box'.")
    if not any(end is not None for pair in bounds for end in pair):
        return
    if has_rotations:
        raise ValueError("bounds cannot be kept by rotated outcomes: expected rotations or bounds, got both.")
    if settings.base in ("student", "normal"):
        raise ValueError(f"bounds cannot be kept by base={settings.base!r}: expected base='box' with them.")


def _check_memory(settings: FitSettings, has_rotations: bool) -> None:
    """Raise a ValueError about parts that hold training rows although remember_rows is False."""
    learners = () if isinstance(settings.base, str) else settings.base
    if any(getattr(learner, "holds_rows", False) for learner in learners):
        raise ValueError("Neighbours and GaussianProcess(holds_rows=True) hold rows: expected remember_rows=True.")
    if has_rotations and settings.weights != "equal" and settings.regions == "hdbscan":
        raise ValueError("regions='hdbscan' hold rows: expected a number of regions, or remember_rows=True.")
