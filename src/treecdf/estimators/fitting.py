"""The fit of a TreeFlowRegressor from beginning to end; the estimator does not change before the result is complete."""

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
from treecdf._common.steps import Stop, Stopped, stop_by_interrupt
from treecdf._common.typing import Bound
from treecdf._kernels.compiling import announce_compilation, end_announcement
from treecdf.data.exposure import as_rates, check_exposure, read_exposure
from treecdf.data.reading import Schema, opened, opened_outcomes
from treecdf.data.recording import notes
from treecdf.data.table import (
    Table,
    check_bounds,
    check_counts,
    check_size,
    check_sum_of_weights,
    has_repeats,
    learn_table,
    note_on_weights,
    outcome_names,
    read_bounds,
    read_outcomes,
    read_table,
    read_weights,
)
from treecdf.data.twins import do_near_rows_tell, note_on_near_copies, note_on_twins
from treecdf.estimators.progress import Progress, expected_work, reporter, say_once
from treecdf.estimators.state import schema_state
from treecdf.flows.learnt import count_trees
from treecdf.flows.results import EndedStage, history_table, without_reach_of_last
from treecdf.flows.summary import note_on_memory, note_on_repeats
from treecdf.persist.checkpoint import NoCheckpoint
from treecdf.training.defaults import (
    FAR_BEHIND_FOR_LARGE_MIXTURE,
    FEWEST_ROWS_OF_LARGE_MIXTURE,
    NEAR_ROWS_TELL,
    ROWS_READ_WHOLE,
    SHARE_OF_FEWER_ROWS,
    WORTH_A_LARGE_MIXTURE,
)
from treecdf.training.ensemble import Ensemble, fit_ensemble
from treecdf.training.growing.screening import notes_on_width
from treecdf.training.importance import importances
from treecdf.training.jobs import ONE_BLAS_THREAD, Workers, n_threads
from treecdf.training.parameters import check_together
from treecdf.training.plan import OfLargeTable, Plan, is_conditional, make_plan
from treecdf.training.recording import Recording, learn_recording
from treecdf.training.settings import FitSettings
from treecdf.training.sources.memory import MemoryPieces
from treecdf.training.sources.pieces import PieceReader, Pieces
from treecdf.training.streaming import Sampled, chained, fit_pieces, half_of, is_one_flow, links_of

# X, y, sample_weight and groups as the user passes them.
Given = tuple[ArrayLike | Frame, ArrayLike, ArrayLike | None, ArrayLike | None]

# What an interrupt leaves out of the model of a large table.
_LARGE_MIXTURE, _TREES_OF_OTHERS = "a boosted mixture of more rows", "trees of the other rows"


@dataclass(frozen=True)
class FittedState:
    """The fitted attributes of a model by name, and what the user should be warned of."""

    attributes: dict[str, Any]
    missing: tuple[str, ...]  # because the fit was interrupted
    ended: tuple[EndedStage, ...]  # because outcomes repeat
    left_out: float = np.nan  # mean log density of left-out rows, if it was asked for
    was_stopped: bool = False  # by Ctrl-C, if only after all was learnt


@ONE_BLAS_THREAD
def fit_table(
    settings: FitSettings,
    train: Given,
    validation: Given | None,
    checkpoint: NoCheckpoint,
    exposure: ArrayLike | None = None,
    sample: OfLargeTable | None = None,
) -> FittedState:
    """The fitted state of a model of a table in memory, with validation rows if they are given.

    sample: what is known of the table as a sample of a large one, on whose other rows trees will be grown; None if it
    is not a sample.
    """
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
    told = note_on_weights(table) if sample_weight is not None else ()
    if groups is None:
        told += note_on_twins(table.x) or note_on_near_copies(table.x, table.y)
    recording, table, held_out = learn_recording(settings, table, held_out, bounds, rng)
    if recording.said is not None:
        say_once(recording.said)
    if recording.is_discrete:  # the flow is never asked
        settings = replace(settings, base="box", structure="joint", stages=None, rotations=None, max_trees=0)
    if exposure is not None:
        table = as_rates(table)
    sample = sample if recording.grid is None else None  # no trees will be grown on the other rows
    plan = make_plan(settings, len(table), table.x.shape[1], bounds, has_repeats(table.y), sample)
    recipes = [recipe for recipe in (plan.conditional, *plan.joint.values()) if recipe is not None]
    told = notes_on_width(recipes, table.x.shape[1]) + told
    recording = replace(recording, notes=recording.notes + told)
    with _workers(settings, checkpoint, plan) as (workers, stop):
        ensemble = fit_ensemble(plan, table, held_out, rng, workers)
        was_stopped = stop()
    attributes = {**schema_state(schema), **_recorded(names, recording)}
    if exposure is not None:
        ensemble = replace(ensemble, families=tuple(map(without_reach_of_last, ensemble.families)))
        attributes["exposure_"] = True
    state = _state(settings, ensemble, table, rng, attributes)
    if sample is None:
        return state
    left_out = ensemble.left_out((table if held_out is None else held_out).weight)
    return replace(state, left_out=left_out, was_stopped=was_stopped)


def fit_in_memory(
    settings: FitSettings,
    train: Given,
    validation: Given | None,
    checkpoint: NoCheckpoint,
    exposure: ArrayLike | None = None,
) -> FittedState:
    """The fitted state of a model of a table in memory.

    More than 50,000 rows are fitted as if they were in files, if there is a conditional base and no exposure.
    """
    X, y, weight, groups = train
    X, y = opened(X), opened_outcomes(y)
    n = (*np.shape(X), 0)[0]
    if exposure is not None or n <= ROWS_READ_WHOLE or not is_conditional(settings, n, read_outcomes(y).shape[1]):
        return fit_table(settings, (X, y, weight, groups), validation, checkpoint, exposure)
    if settings.weights_are == "relative" and weight is not None:
        counts = read_weights(weight, n)
        weight = counts / counts[counts > 0].mean()
    pieces = MemoryPieces(X, y, weight, groups)
    return fit_table_in_pieces(replace(settings, weights_are="counts"), pieces, validation, checkpoint)


@ONE_BLAS_THREAD
def fit_table_in_pieces(
    settings: FitSettings, pieces: Pieces, validation: Given | None, checkpoint: NoCheckpoint
) -> FittedState:
    """The fitted state of a model of rows in files or in a Dask collection.

    Up to 50,000 rows are read into memory. With more rows, one flow on an unconditional base is trained by sums over
    all rows; any other model is fitted to a sample, and trees are grown on the other rows.
    """
    sizes = pieces.sizes()
    if not sizes[:, 1].any():
        raise ValueError("Found 0 row(s) (n_samples = 0) with a weight above zero: at least 2 are required.")
    if sizes[:, 0].sum() <= ROWS_READ_WHOLE:
        return fit_table(settings, pieces.whole(), validation, checkpoint)
    if settings.weights_are == "relative":
        raise ValueError(
            f"weights_are='relative' is for at most {ROWS_READ_WHOLE:,} rows: divide the weights by their mean."
        )
    if not is_one_flow(settings):
        return _fit_sampled(settings, Sampled.of(pieces, sizes), validation, checkpoint)
    for name, given in (("Validation rows", validation), ("A checkpoint", settings.checkpoint)):
        if given is not None:
            raise ValueError(f"{name} of base={settings.base!r}: expected at most {ROWS_READ_WHOLE:,} rows.")
    rng = as_generator(settings.random_state)
    with _workers(settings, NoCheckpoint()) as (workers, _):
        fitted = fit_pieces(settings, pieces, sizes, rng, workers)
    width = notes_on_width([fitted.recipe], fitted.sample.x.shape[1])
    recording = Recording(
        None, None, notes(fitted.sample, settings.atoms, settings.resolution, in_memory=False) + width
    )
    attributes = {**schema_state(fitted.schema), **_recorded(fitted.outcome_names, recording)}
    return _state(settings, fitted.ensemble, fitted.sample, rng, attributes)


def _fit_sampled(
    settings: FitSettings, sampled: Sampled, validation: Given | None, checkpoint: NoCheckpoint
) -> FittedState:
    """The model of a sample of the rows, with trees of all other rows unless its outcomes are on a grid."""
    sampled, given = sampled.drawn()
    known = OfLargeTable(_do_near_rows_tell(settings, given))
    n = len(given[0])
    state = fit_table(settings, given, validation, checkpoint, sample=known if sampled.leaves_enough(n) else None)
    if n == sampled.n_rows:
        return state
    if state.was_stopped and not state.missing:
        state = replace(state, missing=(_TREES_OF_OTHERS,))
    mixture = None if state.missing else _large_mixture(settings, sampled, given, state, validation)
    if mixture is not None:
        return mixture
    try:
        refined = None if state.missing else _refined(settings, sampled, state)
    except KeyboardInterrupt:
        if settings.on_interrupt != "keep":
            raise
        state, refined = replace(state, missing=(_TREES_OF_OTHERS,)), None
    n_trees = 0 if refined is None else sum(sum(history.kept) for history in refined.histories)
    of = f"{n:,} of {sampled.n_rows:,} rows"
    if refined is None:
        note = f"note: learnt from a random sample, {of}: no trees were grown on the others"
    else:
        note = f"note: learnt from a random sample, {of}; {n_trees} trees were grown on all others"
    notes = (*state.attributes["notes_"], note)
    if refined is None:
        return replace(state, attributes=state.attributes | {"notes_": notes})
    more = {
        "notes_": (*notes, *map(note_on_repeats, refined.ended)),
        "mixture_": refined.mixture(),
        "families_": refined.families,
        "family_weights_": refined.weights,
        "history_": history_table(refined.histories),
        "n_trees_": count_trees(refined.mixture()),
    }
    return FittedState(state.attributes | more, refined.missing, state.ended + refined.ended)


def _large_mixture(
    settings: FitSettings, sampled: Sampled, given: Given, state: FittedState, validation: Given | None
) -> FittedState | None:
    """A boosted mixture of many more rows than the sample; None unless left-out rows are more likely by it (ADR 52).

    It is tried if mixtures of the sample, whose rows are `given`, promise that it is worth more than `state`, the model
    of the sample. What an interrupt ends is missing.
    """
    known = state.attributes
    is_tried = settings.base in ("auto", "mixture") and settings.stages is None
    is_tried &= is_conditional(settings, sampled.n_rows, known["n_outcomes_"])
    is_tried &= known["grid_"] is None and known["atoms_"] is None
    if not is_tried or sampled.n_rows < FEWEST_ROWS_OF_LARGE_MIXTURE:
        return None
    own = replace(settings, base="mixture", max_trees=0)
    try:
        larger = sampled.larger()
        if not _is_promising(own, given, validation, state.left_out, larger.expected):
            return None
        larger, rows = larger.drawn()
        is_slow, nearly = settings.effort != "fast", state.left_out - WORTH_A_LARGE_MIXTURE
        if is_slow and not _look(own, half_of(rows), validation) > nearly:
            return None
        found = fit_table(own, rows, validation, NoCheckpoint(), sample=OfLargeTable(False, is_for_mixture=True))
    except KeyboardInterrupt:
        if settings.on_interrupt != "keep":
            raise
        return replace(state, missing=(_LARGE_MIXTURE,))
    if found.missing:
        return replace(state, missing=(_LARGE_MIXTURE,))
    more = found.attributes
    has_values = more["grid_"] is not None or more["atoms_"] is not None
    if has_values or not found.left_out > state.left_out + WORTH_A_LARGE_MIXTURE:
        return replace(state, missing=(_TREES_OF_OTHERS,)) if found.was_stopped else None
    gain = found.left_out - state.left_out
    n = int(np.shape(rows[0])[0])
    note = (
        f"note: learnt from {n:,} of {larger.n_rows:,} rows by a boosted mixture: left-out rows are more likely by "
        f"{gain:.3f} nats than by the model of a smaller sample"
    )
    return replace(found, attributes=more | {"notes_": (*more["notes_"], note)})


def _is_promising(settings: FitSettings, given: Given, validation: Given | None, least: float, n_larger: int) -> bool:
    """Whether left-out rows may have more than `least`, the sample's, by a mixture of n_larger rows.

    Quick mixtures of half of the sample and of all of it tell. More rows are taken to gain at most 1.5 times what the
    second one gained by twice the rows, or so much by every doubling if the mixture will be trained with more care.
    """
    half = _look(settings, half_of(given), validation)
    if not half > least - FAR_BEHIND_FOR_LARGE_MIXTURE:
        return False
    whole = _look(settings, given, validation)
    doublings = 1.5 if settings.effort == "fast" else float(np.log2(n_larger / np.shape(given[0])[0]))
    return least + WORTH_A_LARGE_MIXTURE - whole <= doublings * max(whole - half, 0.0)


def _look(settings: FitSettings, rows: Given, validation: Given | None) -> float:
    """Mean log density of left-out rows by a quick mixture of some rows; NaN if these cannot be learnt from.

    Half of the rows may lack the texts of a column, or all groups but one.
    """
    kind = OfLargeTable(False, is_for_mixture=True, is_look=True)
    quick = replace(settings, effort="fast", verbose=0)
    try:
        state = fit_table(quick, rows, validation, NoCheckpoint(), sample=kind)
    except ValueError:
        return np.nan
    if state.was_stopped:
        raise Stopped
    return state.left_out


def _do_near_rows_tell(settings: FitSettings, given: Given) -> bool:
    """Whether the nearest rows of a smaller sample would predict clearly worse, being less near (ADR 49)."""
    table = learn_table(*given, settings.categorical_features, np.random.default_rng(0))[0]
    return do_near_rows_tell(table.x, table.y, SHARE_OF_FEWER_ROWS, NEAR_ROWS_TELL[settings.effort])


def _refined(settings: FitSettings, sampled: Sampled, state: FittedState) -> Ensemble | None:
    """The sample's model with trees of all other rows, for every link of a chain; None if it has no such form."""
    known, mixture = state.attributes, state.attributes["mixture_"]
    links = links_of(mixture)
    if known["grid_"] is not None or not links:
        return None
    names, atoms = known.get("feature_names_in_"), known["atoms_"]
    schema = Schema(None if names is None else tuple(names), known["covariates_"])
    bounds = read_bounds(settings.bounds, known["n_outcomes_"])
    reader = PieceReader(schema, bounds, atoms=np.empty(0) if atoms is None else atoms.values)
    with _workers(settings, NoCheckpoint()) as (workers, _):
        parts = sampled.refine(settings, links, reader, as_generator(settings.random_state), workers)
    if not parts:
        return None
    return parts[0] if len(links) == 1 else chained(parts, mixture.members[0].order)


def _state(
    settings: FitSettings,
    ensemble: Ensemble,
    table: Table,
    rng: np.random.Generator,
    attributes: dict[str, Any],
) -> FittedState:
    """The complete fitted state: the schema, the mixture, its history and the importances of the covariates."""
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
        "n_trees_": count_trees(mixture),
        "feature_importances_": importances(mixture, table, places, rng, n_threads(settings.n_jobs)),
    }
    return FittedState(attributes, ensemble.missing, ensemble.ended)


def _recorded(names: tuple[str, ...], recording: Recording) -> dict[str, Any]:
    """The fitted attributes that describe the outcomes: names, atoms, grid and notes."""
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
    """The validation rows as a table, None if there are none."""
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
def _workers(
    settings: FitSettings, checkpoint: NoCheckpoint, plan: Plan | None = None
) -> Iterator[tuple[Workers, Stop]]:
    """The workers for the training jobs of a plan, and what Ctrl-C asks of them, with progress on the terminal."""
    announce_compilation(rewrite=not settings.verbose)
    with (
        contextlib.ExitStack() as ending,
        contextlib.closing(Progress(settings.verbose)) as progress,
        stop_by_interrupt(settings.on_interrupt) as stop,
        checkpoint,
    ):
        ending.callback(end_announcement)
        work = None if plan is None else expected_work(plan)
        yield Workers(settings.n_jobs, reporter(progress, work), partial(checkpoint.steps, stop)), stop
        progress.finish()
