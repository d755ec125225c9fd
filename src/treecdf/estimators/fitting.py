"""A fit of TreeFlowRegressor from beginning to end; nothing of the estimator changes until its result is whole."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from treecdf._common.protocols import Frame
from treecdf._common.random import as_generator
from treecdf._common.steps import stop_by_interrupt
from treecdf._common.typing import Bound
from treecdf._kernels.compiling import announce_compilation, end_announcement
from treecdf.data.exposure import as_rates, check_exposure, read_exposure
from treecdf.data.reading import Schema
from treecdf.data.recording import notes
from treecdf.data.table import (
    Table,
    check_bounds,
    check_counts,
    check_size,
    check_sum_of_weights,
    has_repeats,
    learn_table,
    outcome_names,
    read_bounds,
    read_outcomes,
    read_table,
)
from treecdf.data.twins import note_on_twins
from treecdf.estimators.progress import Progress, expected_work, reporter, say_once
from treecdf.estimators.state import schema_state
from treecdf.flows.results import EndedStage, history_table, without_reach_of_last
from treecdf.flows.summary import note_on_memory, note_on_repeats
from treecdf.persist.checkpoint import NoCheckpoint
from treecdf.training.ensemble import Ensemble, fit_ensemble
from treecdf.training.growing.screening import notes_on_width
from treecdf.training.importance import importances
from treecdf.training.jobs import Workers, n_threads
from treecdf.training.parameters import check_together
from treecdf.training.plan import Plan, make_plan
from treecdf.training.recording import Recording, learn_recording
from treecdf.training.settings import FitSettings
from treecdf.training.sources.pieces import Pieces
from treecdf.training.streaming import fit_pieces

# X, y, sample_weight and groups as the user passes them.
Given = tuple[ArrayLike | Frame, ArrayLike, ArrayLike | None, ArrayLike | None]


@dataclass(frozen=True)
class FittedState:
    """The fitted attributes of a model by name, and what its user should hear of."""

    attributes: dict[str, Any]
    missing: tuple[str, ...]  # because the fit was interrupted
    ended: tuple[EndedStage, ...]  # because outcomes repeat


def fit_table(
    settings: FitSettings,
    train: Given,
    validation: Given | None,
    checkpoint: NoCheckpoint,
    exposure: ArrayLike | None = None,
) -> FittedState:
    """Fit to a table in memory, with validation rows if there are any."""
    X, y, sample_weight, groups = train
    rng = checkpoint.generator(settings.random_state)
    how = settings.categorical_features, rng
    last = None if exposure is None else np.log(read_exposure(exposure, len(read_outcomes(y))))
    table, schema = learn_table(X, y, sample_weight, groups, *how, weights_are=settings.weights_are, last=last)
    check_size(table)
    check_counts(table, settings.min_samples_node)
    names = outcome_names(y, table.y.shape[1])
    bounds = read_bounds(settings.bounds, len(names))
    check_bounds(table, bounds, "y")
    check_together(settings, bounds)
    if exposure is not None:
        check_exposure(bounds, validation is not None)
    held_out = _read_validation(settings, schema, bounds, validation)
    checkpoint.begin(settings.shaping(), table, held_out)
    recording, table, held_out = learn_recording(settings, table, held_out, bounds, rng)
    if recording.said is not None:
        say_once(recording.said)
    if recording.is_discrete:  # the flow is never asked
        settings = replace(settings, base="box", structure="joint", stages=None, rotations=None, max_trees=0)
    if exposure is not None:
        table = as_rates(table)
    plan = make_plan(settings, len(table), table.x.shape[1], bounds, has_repeats(table.y))
    recipes = [recipe for recipe in (plan.conditional, *plan.joint.values()) if recipe is not None]
    told = notes_on_width(recipes, table.x.shape[1]) + (note_on_twins(table.x) if groups is None else ())
    recording = replace(recording, notes=recording.notes + told)
    with _workers(settings, checkpoint, plan) as workers:
        ensemble = fit_ensemble(plan, table, held_out, rng, workers)
    attributes = {**schema_state(schema), **_recorded(names, recording)}
    if exposure is not None:
        ensemble = replace(ensemble, families=tuple(map(without_reach_of_last, ensemble.families)))
        attributes["exposure_"] = True
    return _state(settings, ensemble, table, rng, attributes)


def fit_table_in_pieces(settings: FitSettings, pieces: Pieces) -> FittedState:
    """Fit to rows that are not all in memory."""
    if settings.weights_are == "relative":
        raise ValueError("weights_are='relative' is for rows in memory: divide the weights by their mean.")
    rng = as_generator(settings.random_state)
    with _workers(settings, NoCheckpoint()) as workers:
        fitted = fit_pieces(settings, pieces, rng, workers)
    width = notes_on_width([fitted.recipe], fitted.sample.x.shape[1])
    recording = Recording(
        None, None, notes(fitted.sample, settings.atoms, settings.resolution, in_memory=False) + width
    )
    attributes = {**schema_state(fitted.schema), **_recorded(fitted.outcome_names, recording)}
    return _state(settings, fitted.ensemble, fitted.sample, rng, attributes)


def _state(
    settings: FitSettings,
    ensemble: Ensemble,
    table: Table,
    rng: np.random.Generator,
    attributes: dict[str, Any],
) -> FittedState:
    """The whole fitted state: what is known of the table, the mixture, its history and the importances."""
    mixture, places = ensemble.mixture(), attributes["covariates_"].places()
    attributes |= {
        "notes_": (
            note_on_memory(mixture, settings.remember_rows),
            *attributes["notes_"],
            *map(note_on_repeats, ensemble.ended),
        ),
        "mixture_": mixture,
        "families_": ensemble.families,
        "family_weights_": ensemble.weights,
        "history_": history_table(ensemble.histories),
        "n_trees_": sum(len(stage) for flow in mixture.tree_flows() for stage in flow.stages),
        "feature_importances_": importances(mixture, table, places, rng, n_threads(settings.n_jobs)),
    }
    return FittedState(attributes, ensemble.missing, ensemble.ended)


def _recorded(names: tuple[str, ...], recording: Recording) -> dict[str, Any]:
    """The fitted attributes that say what the outcomes are."""
    return {
        "n_outcomes_": len(names),
        "outcome_names_": names,
        "atoms_": recording.atoms,
        "grid_": recording.grid,
        "notes_": recording.notes,
    }


def _read_validation(
    settings: FitSettings, schema: Schema, bounds: Sequence[Bound], given: Given | None
) -> Table | None:
    """The validation rows, None if there are none."""
    if given is None:
        has_rotations = len(bounds) > 1 and settings.has_rotations
        if has_rotations and settings.weights == "stacked" and settings.validation_fraction == 0:
            raise ValueError("weights='stacked' needs validation rows: expected validation_fraction above 0.")
        return None
    validation = read_table(schema, *given)
    read_outcomes(validation.y, len(bounds))
    with np.errstate(over="ignore"):
        check_sum_of_weights(float(validation.weight.sum()))
    check_bounds(validation, bounds, "y_val")
    return validation


@contextlib.contextmanager
def _workers(settings: FitSettings, checkpoint: NoCheckpoint, plan: Plan | None = None) -> Iterator[Workers]:
    """What runs the training jobs of a plan, with progress on a terminal and what Ctrl-C does."""
    announce_compilation(rewrite=not settings.verbose)
    with (
        contextlib.ExitStack() as ending,
        contextlib.closing(Progress(settings.verbose)) as progress,
        stop_by_interrupt(settings.on_interrupt) as stop,
        checkpoint,
    ):
        ending.callback(end_announcement)
        work = None if plan is None else expected_work(plan)
        yield Workers(settings.n_jobs, reporter(progress, work), partial(checkpoint.steps, stop))
        progress.finish()
