"""A cheap look at a mixture: whether it may describe a table better than the stacked learners do."""

from __future__ import annotations

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
    """A learner as a cheap look decided it, the mean log density of left-out rows, and which rows (m,) these are.

    The density is in the outcome's own unit.
    """
    rng = np.random.default_rng(0)  # of its own: families after it do not depend on whether there was a look
    standardize = Standardizer.fit(table.x, table.weight)
    y, weight = table.y[:, 0], table.weight
    transform = OutcomeTransform.fit(y, weight)
    g, log_slope = transform.forward(y)
    rows = TrainingRows(standardize(table.x), g, weight, fold)
    decided, loss, seen = learner.look(rows, smallest_log_scale(recording_step(y) / transform.scale), rng)
    return decided, float(np.average(log_slope[seen], weights=weight[seen])) - loss, seen
