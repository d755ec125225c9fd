"""How the outcomes of a fit were recorded: atoms and grids are found, and taken out before flows are trained."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from treecdf._common.typing import Bound
from treecdf.bases.atoms import Atoms
from treecdf.data.recording import Grid, continuous_part, notes, read_atoms, read_grid
from treecdf.data.table import Table, check_size
from treecdf.training.settings import FitSettings


@dataclass(frozen=True)
class Recording:
    """Atoms and grid of the outcomes, None where there are none, and what a person should know about them."""

    atoms: Atoms | None
    grid: Grid | None
    notes: tuple[str, ...]
    is_discrete: bool = False  # no training row is anything but an atom


def learn_recording(
    settings: FitSettings,
    table: Table,
    validation: Table | None,
    bounds: Sequence[Bound],
    rng: np.random.Generator,
) -> tuple[Recording, Table, Table | None]:
    """What is learnt of the recording, and the training and validation rows that are left for the flows.

    These are the rows that are no atom, spread over the cells of the grid.
    """
    told = notes(table, settings.atoms, settings.resolution)
    values, grid = read_atoms(settings.atoms, table), read_grid(settings.resolution, table)
    atoms = Atoms.fit(values, table, rng) if len(values) else None
    continuous = continuous_part(table, values, grid, bounds, rng)
    is_discrete = atoms is not None and not len(continuous)
    if is_discrete:
        return Recording(atoms, None, told, is_discrete), table, validation
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
    return Recording(atoms, grid, told), table, validation
