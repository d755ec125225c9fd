"""Atoms and grids of the outcomes of a fit: they are found, and taken out before flows are trained."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from treecdf._common.typing import Bound
from treecdf.bases.atoms import Atoms
from treecdf.data.recording import (
    AnyGrid,
    continuous_part,
    is_few,
    note_on_few_values,
    notes,
    recognise,
)
from treecdf.data.table import Table, check_size
from treecdf.training.settings import FitSettings


@dataclass(frozen=True)
class Recording:
    """Atoms and grid of the outcomes, None where there are none, and notes for the user."""

    atoms: Atoms | None
    grid: AnyGrid | None
    notes: tuple[str, ...]
    is_discrete: bool = False  # no training row is anything but an atom
    said: str | None = None  # what is to be told at once: the outcome was taken as one of few values


def learn_recording(
    settings: FitSettings,
    table: Table,
    validation: Table | None,
    bounds: Sequence[Bound],
    rng: np.random.Generator,
) -> tuple[Recording, Table, Table | None]:
    """Atoms and grid, and the training and validation rows that remain for the flows.

    These are the rows that are not at an atom, with their cells on the grid.
    """
    told = notes(table, settings.atoms, settings.resolution)
    values, grid = recognise(table, settings.atoms, settings.resolution)
    said = note_on_few_values(table.y, grid) if grid is not None and is_few(settings.resolution) else None
    atoms = Atoms.fit(values, table, rng) if len(values) else None
    continuous = continuous_part(table, values, grid, bounds, rng)
    is_discrete = atoms is not None and not len(continuous)
    if is_discrete:
        return Recording(atoms, None, told, is_discrete, said), table, validation
    table = continuous
    check_size(table, len(values))
    if validation is not None:
        validation = continuous_part(validation, values, grid, bounds, rng)
        if not len(validation):
            warnings.warn(
                "All validation rows are atoms: none is left to stop the flows, so training rows are set aside.",
                UserWarning,
                stacklevel=4,
            )
            validation = None
    return Recording(atoms, grid, told, said=said), table, validation
