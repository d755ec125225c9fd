"""A quick look at a mixture: whether it may describe a table better than the stacked learners do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from treecdf._common.typing import Ints
from treecdf.bases.components import MixtureLearner
from treecdf.bases.conditional import smallest_log_scale
from treecdf.bases.mean import TrainingRows
from treecdf.bases.transform import OutcomeTransform
from treecdf.data.recording import recording_step
from treecdf.data.scaling import Standardizer
from treecdf.data.table import Table


def look_at_mixture(learner: MixtureLearner, table: Table, fold: Ints) -> tuple[MixtureLearner, float, Ints]:
    """The learner with settings chosen by a quick look, and how well it did.

    The second value is the mean log density of left-out rows in the outcome's own unit, the third the numbers (m,) of
    these rows.
    """
    rng = np.random.default_rng(0)  # of its own: families after it do not depend on whether there was a look
    standardize = Standardizer.fit(table.x, table.weight)
    rows = TrainingRows.of(table, standardize(table.x), fold)
    transform = OutcomeTransform.fit(rows.y, rows.weight)
    g, unit = transform.forward(rows.y)
    ends = None if rows.ends is None else transform.forward(rows.ends)[0]
    if table.cells is not None and ends is not None:
        unit = -np.log(table.cells.width[:, 0])
    floor = smallest_log_scale(recording_step(rows.y) / transform.scale, is_cell=ends is not None)
    decided, loss, seen = learner.look(replace(rows, y=g, ends=ends), floor, rng)
    return decided, float(np.average(unit[seen], weights=rows.weight[seen])) - loss, seen
