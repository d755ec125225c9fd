"""How much each covariate matters to a fitted model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from treecdf._common.typing import Array
from treecdf.data.table import Table
from treecdf.flows.mixture import Mixture

_N_ROWS = 200


def importances(
    mixture: Mixture, table: Table, places: Sequence[slice], rng: np.random.Generator, n_threads: int
) -> Array:
    """Shares (q,) of the log-likelihood lost when each covariate is shuffled among some of the training rows.

    places: which columns of the table each covariate has become.
    """
    rows = table.take(rng.permutation(len(table))[:_N_ROWS])
    y = rows.y[:, None, :]
    intact = mixture.log_prob(y, rows.x, n_threads)
    lost = np.zeros(len(places))
    for j, place in enumerate(places):
        if (rows.x[:, place] == rows.x[0, place]).all():
            continue
        shuffled = rows.x.copy()
        shuffled[:, place] = rng.permutation(shuffled[:, place])
        lost[j] = rows.weight @ (intact - mixture.log_prob(y, shuffled, n_threads))[:, 0]
    lost = np.maximum(lost, 0.0)
    return lost / max(lost.sum(), 1e-300)
