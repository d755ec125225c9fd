"""How outcomes were recorded: values that come with a probability of their own (atoms), and rounding to a grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from treecdf._common.typing import Array, Ints
from treecdf._common.validation import is_real
from treecdf.data.table import Table

_FEWEST_ROWS = 10.0  # weight of the rows that a value needs to be found as an atom
_SMALLEST_SHARE = 0.02  # share of all rows that a value needs to be found as an atom
_WORTH_A_HINT = 0.1  # share of all rows that a value of a rounded outcome needs to be told: smaller ones are everywhere
_STANDS_OUT = 10.0  # an atom comes so many times as often as the values around it
_NEIGHBOURS = 10  # values on either side that are "around" an atom
_MOST_ATOMS = 20  # atoms that are found at most
_SAME_CELL = 1e-6  # of a step: what is so near a point of the grid is that point
_SAME_VALUE = 1e-12  # of the largest value: outcomes that are nearer to one another differ by rounding only
_OFF_GRID = 1e-2  # of a step: outcomes that are farther from every point are on no grid
_MOST_CELLS = 1e7  # cells of a grid between the smallest and the largest outcome at most
Setting = object  # what a user passed as `atoms` or `resolution`, before it was looked at


@dataclass(frozen=True)
class Grid:
    """A grid that outcomes are recorded on: origin + step times an integer; a step of 0 is no rounding."""

    origin: Array  # (d,)
    step: Array  # (d,)

    def spread(self, y: Array, rng: np.random.Generator) -> Array:
        """Outcomes (n, d) drawn uniformly from the cells of recorded outcomes y (n, d)."""
        return y + self.step * (rng.random(y.shape) - 0.5)

    def round(self, y: Array) -> Array:
        """The recorded values of outcomes y (..., d)."""
        step = np.where(self.step > 0, self.step, 1.0)
        with np.errstate(invalid="ignore"):
            rounded = self.origin + step * np.round((y - self.origin) / step)
        return np.where((self.step > 0) & np.isfinite(y), rounded, y)

    def edge(self, y: Array) -> Array:
        """Where the cells of recorded values up to y (..., d) end and those of values above y begin."""
        step = np.where(self.step > 0, self.step, 1.0)
        with np.errstate(invalid="ignore"):
            number = np.floor((y - self.origin) / step + _SAME_CELL)
            edge = self.origin + step * (number + 0.5)
        return np.where((self.step > 0) & np.isfinite(y), edge, y)

    def edge_below(self, y: Array) -> Array:
        """Where the cells of recorded values below y (..., d) end."""
        step = np.where(self.step > 0, self.step, 1.0)
        return np.where(self.step > 0, self.edge(y - 2 * _SAME_CELL * step), y)


def read_atoms(atoms: Setting, table: Table) -> Array:
    """The atoms (K,) of a table of one outcome, ascending, as the user's setting says; none for None."""
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
    """Values of outcomes y (n,) that come far more often than the values around them, or both of two."""
    values, place = np.unique(y, return_inverse=True)
    count = np.bincount(place, weight)
    if len(values) == 2:
        return values if count.min() >= 2 and count.sum() >= _FEWEST_ROWS else values[:0]
    often = np.flatnonzero(count >= max(_FEWEST_ROWS, _SMALLEST_SHARE * weight.sum()))
    found = []
    for k in often:
        around = np.r_[count[max(k - _NEIGHBOURS, 0) : k], count[k + 1 : k + 1 + _NEIGHBOURS]]
        if len(around) >= 2 and count[k] >= _STANDS_OUT * np.median(around):
            found.append(k)
    best = sorted(found, key=lambda k: -count[k])[:_MOST_ATOMS]
    return values[np.sort(np.array(best, dtype=np.int64))]


def read_grid(resolution: Setting, table: Table) -> Grid | None:
    """The grid of the outcomes as the user's setting says, None if there is none."""
    if resolution is None:
        return None
    d = table.y.shape[1]
    if isinstance(resolution, str) and resolution == "auto":
        step = np.array([recording_step(column) for column in table.y.T])
    else:
        step = _read_steps(resolution, d)
    return Grid(table.y[0].copy(), step) if (step > 0).any() else None


def _read_steps(resolution: Setting, d: int) -> Array:
    """Steps (d,) of the outcomes as the user gave them, 0 for None."""
    given = list(resolution) if isinstance(resolution, (list, tuple, np.ndarray)) else [resolution] * d
    steps = [0.0 if value is None else value for value in given]
    if len(steps) != d or not all(_is_step(value) for value in steps):
        expected = "None, 'auto', a positive number, or one number or None for each outcome"
        raise ValueError(f"Expected resolution to be {expected}; got {resolution!r}.")
    return np.array(steps, dtype=np.float64)


def _is_step(value: Any) -> bool:
    """Whether it is a number of at least 0."""
    return is_real(value) and value >= 0


def continuous_part(
    table: Table,
    atoms: Array,
    grid: Grid | None,
    bounds: Sequence[tuple[float | None, float | None]],
    rng: np.random.Generator,
) -> Table:
    """The rows that are no atom, their outcomes spread over the cells of the grid and reflected at the bounds."""
    if len(atoms):
        table = table.take(atom_labels(table.y[:, 0], atoms) == 0)
    if grid is None:
        return table
    y = grid.spread(table.y, rng)
    for j, (low, high) in enumerate(bounds):
        inside = y[:, j].copy()
        if low is not None:
            inside = np.where(inside < low, low + (low - inside), inside)
        if high is not None:
            inside = np.where(inside > high, high - (inside - high), inside)
        ends = -np.inf if low is None else low, np.inf if high is None else high
        y[:, j] = np.clip(inside, *ends)  # a bound holds to the last bit
    return replace(table, y=y)


def notes(table: Table, atoms: Setting, resolution: Setting) -> tuple[str, ...]:
    """Sentences for the summary about values that come again and again and about rounding, given the settings."""
    steps = [recording_step(column) for column in table.y.T]
    told = _notes_on_values(table, atoms, steps[0]) if table.y.shape[1] == 1 else []
    is_all_atoms = atoms is not None and bool(atom_labels(table.y[:, 0], read_atoms(atoms, table)).all())
    if is_all_atoms:
        told.append("note: all outcomes are atoms: every other value has probability 0")
    elif resolution is None and any(steps) and _is_coarse(table.y, steps):
        told.append(
            f"note: outcomes are recorded in steps of {', '.join(f'{s:g}' for s in steps)}; see resolution='auto'"
        )
    grid = read_grid(resolution, table)
    if grid is not None:
        told.append(f"note: outcomes are taken as rounded to {', '.join(f'{s:g}' for s in grid.step)}")
    if grid is not None or (atoms is not None and len(read_atoms(atoms, table))):
        told.append(
            "note: with atoms or a grid the log density has a unit of its own; to compare with a model that has "
            "others, use the CRPS (treecdf.metrics.crps_scorer)"
        )
    return tuple(told)


def _notes_on_values(table: Table, atoms: Setting, step: float) -> list[str]:
    """Sentences about values of one outcome, recorded in this step, that come again and again."""
    y, total = table.y[:, 0], table.weight.sum()
    known = np.unique(y)
    if len(known) == 2:
        two = f"note: the outcome has two values, {known[0]:g} and {known[1]:g}: a classifier is what is wanted"
        return [two if atoms is not None else f"{two}; atoms='auto' gives their probabilities"]
    told = []
    for value in find_atoms(y, table.weight) if atoms is None else read_atoms(atoms, table):
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
    values = np.unique(y)
    is_two = len(values) == 2 and len(y) >= _FEWEST_ROWS
    is_new = np.diff(values) > _SAME_VALUE * np.abs(values[[0, -1]]).max()
    values = values[np.append(True, is_new)]
    if len(values) < 2 or (len(values) == 2 and not is_two):
        return 0.0
    step = np.diff(values).min()
    with np.errstate(over="ignore"):
        multiples = (values - values[0]) / step
    is_grid = np.abs(multiples - np.round(multiples)).max() < _OFF_GRID and multiples[-1] < _MOST_CELLS
    return float(step) if is_grid else 0.0
