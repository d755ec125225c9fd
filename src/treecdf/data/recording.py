"""How outcomes were recorded: values with a probability of their own (atoms), and rounding to a grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from treecdf._common.typing import Array, Ints
from treecdf._common.validation import is_real
from treecdf.data.few_values import FEWEST_ROWS, closed_grid, distinct_values, find_values, step_of
from treecdf.data.grids import AnyGrid, ClosedGrid, Grid, ListedValues, cells_of
from treecdf.data.table import Table

__all__ = [
    "FEW",
    "AnyGrid",
    "ClosedGrid",
    "Grid",
    "ListedValues",
    "atom_labels",
    "continuous_part",
    "find_atoms",
    "is_few",
    "note_on_few_values",
    "notes",
    "read_atoms",
    "read_grid",
    "recognise",
    "recording_step",
]
FEW = "few"  # the default of `resolution`: a grid, or atoms, if the outcome has few values

_SMALLEST_SHARE = 0.02  # share of all rows that a value needs to be found as an atom
_WORTH_A_HINT = 0.1  # share of all rows that a value of a rounded outcome needs to be told: smaller ones are everywhere
_STANDS_OUT = 10.0  # an atom comes so many times as often as the values around it
_NEIGHBOURS = 10  # values on either side that are "around" an atom
_MOST_ATOMS = 20  # atoms that are found at most
Setting = object  # what a user passed as `atoms` or `resolution`, before it was looked at


def is_few(resolution: Setting) -> bool:
    """Whether the setting is the default, by which only outcomes of few values are on a grid."""
    return isinstance(resolution, str) and resolution == FEW


def read_atoms(atoms: Setting, table: Table) -> Array:
    """The atoms (K,) of a table of one outcome, ascending, by the user's setting; empty for None."""
    if atoms is None:
        return np.empty(0)
    if table.y.shape[1] > 1:
        raise ValueError("atoms are for one outcome: expected y of shape (n,), or atoms=None.")
    if isinstance(atoms, str) and atoms == "auto":
        return find_atoms(table.y[:, 0], table.weight)
    given = list(atoms) if isinstance(atoms, (list, tuple, np.ndarray)) else [atoms]
    if not len(given) or not all(is_real(value) for value in given):
        raise ValueError(f"Expected atoms to be None, 'auto' or numbers; got {atoms!r}.")
    return np.unique(np.asarray(given, dtype=np.float64))


def find_atoms(y: Array, weight: Array) -> Array:
    """Values that are far more frequent among outcomes y (n,) than the values around them; of two values both."""
    values, place = np.unique(y, return_inverse=True)
    count = np.bincount(place, weight)
    if len(values) == 2:
        return values if count.min() >= 2 and count.sum() >= FEWEST_ROWS else values[:0]
    often = np.flatnonzero(count >= max(FEWEST_ROWS, _SMALLEST_SHARE * weight.sum()))
    found = []
    for k in often:
        around = np.r_[count[max(k - _NEIGHBOURS, 0) : k], count[k + 1 : k + 1 + _NEIGHBOURS]]
        if len(around) >= 2 and count[k] >= _STANDS_OUT * np.median(around):
            found.append(k)
    best = sorted(found, key=lambda k: -count[k])[:_MOST_ATOMS]
    return values[np.sort(np.array(best, dtype=np.int64))]


def read_grid(resolution: Setting, table: Table) -> AnyGrid | None:
    """The grid of the outcomes by the user's setting, None if there is none."""
    if resolution is None:
        return None
    d = table.y.shape[1]
    if is_few(resolution) and d == 1:
        return find_values(table.y[:, 0], table.weight.sum())
    if is_few(resolution):
        found = [find_values(column, table.weight.sum(), is_only=False) for column in table.y.T]
        step = np.array([part.step[0] if isinstance(part, Grid) else 0.0 for part in found])
    elif isinstance(resolution, str) and resolution == "auto":
        step = np.array([recording_step(column) for column in table.y.T])
    else:
        step = _read_steps(resolution, d)
    if not (step > 0).any():
        return None
    return closed_grid(table.y[:, 0], float(step[0])) if d == 1 else Grid(table.y[0].copy(), step)


def recognise(table: Table, atoms: Setting, resolution: Setting) -> tuple[Array, AnyGrid | None]:
    """Atoms (K,) and grid of a table's outcomes by the user's settings; a grid is looked for without the atoms."""
    values = read_atoms(atoms, table)
    if is_few(resolution) and len(values):
        table = table.take(atom_labels(table.y[:, 0], values) == 0)
    return values, read_grid(resolution, table) if len(table) else None


def _read_steps(resolution: Setting, d: int) -> Array:
    """Steps (d,) of the outcomes as the user gave them, 0 for None."""
    given = list(resolution) if isinstance(resolution, (list, tuple, np.ndarray)) else [resolution] * d
    steps = [0.0 if value is None else value for value in given]
    if len(steps) != d or not all(_is_step(value) for value in steps):
        expected = "None, 'few', 'auto', a positive number, or one number or None for each outcome"
        raise ValueError(f"Expected resolution to be {expected}; got {resolution!r}.")
    return np.array(steps, dtype=np.float64)


def _is_step(value: Any) -> bool:
    """Whether it is a number of at least 0."""
    return is_real(value) and value >= 0


def continuous_part(
    table: Table,
    atoms: Array,
    grid: AnyGrid | None,
    bounds: Sequence[tuple[float | None, float | None]],
    rng: np.random.Generator,
) -> Table:
    """The rows that are not at an atom, with their cells; outcomes are spread over their cells, within the bounds."""
    if len(atoms):
        table = table.take(atom_labels(table.y[:, 0], atoms) == 0)
    if grid is None:
        return table
    y = grid.spread(table.y, rng)
    ends = [(-np.inf if low is None else low, np.inf if high is None else high) for low, high in bounds]
    for j, (low, high) in enumerate(ends):
        inside = np.where(y[:, j] < low, low + (low - y[:, j]), y[:, j])
        inside = np.where(inside > high, high - (inside - high), inside)
        y[:, j] = np.clip(inside, low, high)  # a bound holds to the last bit
    lows, highs = np.array(ends).T
    return replace(table, y=y, cells=cells_of(grid, table.y, y, lows, highs))


def notes(table: Table, atoms: Setting, resolution: Setting, in_memory: bool = True) -> tuple[str, ...]:
    """Notes for the summary about repeated values and rounding of the outcomes, given the settings.

    in_memory: the table has all rows; otherwise it is a sample, and atoms and grids are not modelled.
    """
    steps = [recording_step(column) for column in table.y.T]
    values, grid = recognise(table, atoms, resolution)
    is_told = grid is not None and is_few(resolution) and in_memory
    is_two = is_told and len(distinct_values(table.y[:, 0])[0]) == 2
    told = _notes_on_values(table, atoms, values, steps[0]) if table.y.shape[1] == 1 and not is_two else []
    if not in_memory:
        if is_few(resolution) and (grid is not None or len(values)):
            told.append(
                "note: the outcome has few values, but rows from files and Dask have a plain density; a sample in "
                "memory would have a probability for each value"
            )
        return tuple(told)
    if len(values) and atom_labels(table.y[:, 0], values).all():
        told.append("note: all outcomes are atoms: every other value has probability 0")
    elif grid is None and any(steps) and _is_coarse(table.y, steps):
        told.append(
            f"note: outcomes are recorded in steps of {', '.join(f'{s:g}' for s in steps)}; see resolution='auto'"
        )
    if grid is not None and is_told:
        told.append(f"note: {note_on_few_values(table.y, grid)}")
    elif isinstance(grid, Grid):
        told.append(f"note: outcomes are taken as rounded to {', '.join(f'{s:g}' for s in grid.step)}")
    if grid is not None:
        told.append(
            "note: the log density of an outcome on a grid is the log of its cell's probability over the cell's width; "
            "a plain density may be higher, by spikes: to compare, use the CRPS (treecdf.metrics.crps_scorer)"
        )
    if len(values):
        told.append(
            "note: with atoms the log density has a unit of its own; to compare with a model that has others, use the "
            "CRPS (treecdf.metrics.crps_scorer)"
        )
    return tuple(told)


def note_on_few_values(y: Array, grid: AnyGrid) -> str:
    """The note about outcomes y (n, d) that were recognised as having few values."""
    way_out = "resolution=None gives a plain density"
    if isinstance(grid, Grid) and len(grid.step) > 1:
        names = ", ".join(f"outcome {j} in steps of {step:g}" for j, step in enumerate(grid.step) if step > 0)
        return f"few values ({names}) are modelled as cells of a grid; {way_out}"
    values, _ = distinct_values(y[:, 0])
    if len(values) == 2:
        return f"{_two(values)}; each has its probability here; {way_out}"
    few = (
        f"{len(values)} values, {values[0]:g} to {values[-1]:g} in steps of {grid.step[0]:g}"
        if isinstance(grid, Grid)
        else f"the values {grid.describe()}"
    )
    return f"the outcome has {few}; each is modelled as a cell of a grid; {way_out}"


def _two(values: Array) -> str:
    """The note about an outcome that has two values."""
    return f"the outcome has two values, {values[0]:g} and {values[1]:g}: a classifier is what is wanted"


def _notes_on_values(table: Table, atoms: Setting, known: Array, step: float) -> list[str]:
    """Notes on repeated values of one outcome, recorded in this step; `known` values are atoms already."""
    y, total = table.y[:, 0], table.weight.sum()
    different = np.unique(y)
    if len(different) == 2:
        return [f"note: {_two(different)}" + ("" if len(known) else "; atoms='auto' gives their probabilities")]
    told = []
    for value in find_atoms(y, table.weight) if atoms is None else known:
        share = table.weight[y == value].sum() / total
        if atoms is not None:
            told.append(f"note: the outcome is {value:g} in {share:.0%} of the rows, an atom")
        elif step == 0 or share >= _WORTH_A_HINT:
            told.append(
                f"note: the outcome is {value:g} in {share:.0%} of the rows; atoms='auto' would model that (its score "
                "has another unit: compare by CRPS)"
            )
    return told


def _is_coarse(y: Array, steps: Sequence[float]) -> bool:
    """Whether some rounded outcome of y (n, d) has fewer than half as many values as rows."""
    return any(step > 0 and len(np.unique(column)) < len(column) / 2 for step, column in zip(steps, y.T, strict=True))


def atom_labels(y: Array, values: Array) -> Ints:
    """Labels (n,) of outcomes y (n,): 0 for no atom, else the place of its value, counted from 1."""
    if not len(values):
        return np.zeros(len(y), np.int64)
    place = np.searchsorted(values, y)
    is_atom = (place < len(values)) & (values[np.minimum(place, len(values) - 1)] == y)
    return np.where(is_atom, place + 1, 0)


def recording_step(y: Array) -> float:
    """The unit outcomes y (n,) were recorded in: they are its multiples, apart from an offset. 0 if there is none."""
    values, _ = distinct_values(y)
    is_enough = len(values) > 2 or (len(values) == 2 and len(y) >= FEWEST_ROWS)
    return step_of(values) if is_enough else 0.0
