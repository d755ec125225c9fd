"""Importances of the covariates of a fitted model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush

import numpy as np

from treecdf._common.typing import Array, Ints
from treecdf.data.table import Table
from treecdf.flows.mixture import Mixture

_N_ROWS = 200
# Covariates up to which each is shuffled on its own; predictions take time in proportion to the covariates, so that
# shuffling all of them takes its square.
_MOST_SINGLE = 256
# Shuffles of a table with more covariates: enough to find some ten covariates that matter among 10,000.
_N_SHUFFLES = 200
Loss = Callable[[Ints], float]  # log-likelihood lost when these columns of the table are shuffled together


def importances(
    mixture: Mixture, table: Table, places: Sequence[slice], rng: np.random.Generator, n_threads: int
) -> Array:
    """Shares (q,) of the log-likelihood lost when each covariate is shuffled among some of the training rows.

    places: the columns of the table that belong to each covariate. With many covariates those that matter are looked
    for in groups, and the loss of a group that was not divided further is shared evenly by its members.
    """
    rows = table.take(rng.permutation(len(table))[:_N_ROWS])
    y = rows.y[:, None, :]
    intact = mixture.log_prob(y, rows.x, n_threads)
    x = rows.x.copy()

    def loss(columns: Ints) -> float:
        x[:, columns] = rng.permutation(x[:, columns])
        lost = float(rows.weight @ (intact - mixture.log_prob(y, x, n_threads))[:, 0])
        x[:, columns] = rows.x[:, columns]
        return lost

    varies = (rows.x != rows.x[0]).any(axis=0)
    columns = [np.arange(place.start, place.stop) for place in places]
    trying = [j for j, own in enumerate(columns) if varies[own].any()]
    lost = np.zeros(len(places))
    if len(places) <= _MOST_SINGLE:
        for j in trying:
            lost[j] = loss(columns[j])
    elif trying:
        _take_apart(columns, np.array(trying), loss, lost)
    lost = np.maximum(lost, 0.0)
    return lost / max(lost.sum(), 1e-300)


def _take_apart(columns: Sequence[Ints], trying: Ints, loss: Loss, lost: Array) -> None:
    """Fill lost (q,) for the covariates `trying`: the group with the largest loss is halved again and again."""
    groups: list[tuple[float, int, Ints]] = [(-np.inf, 0, trying)]  # minus the loss; ties are broken by the second
    for number in range(1, _N_SHUFFLES, 2):
        if not groups:
            return
        _, _, group = heappop(groups)
        for k, half in enumerate(np.array_split(group, 2)):
            own = loss(np.concatenate([columns[j] for j in half])) if len(half) else 0.0
            if len(half) == 1:
                lost[half] = own
            elif own > 0:
                heappush(groups, (-own, number + k, half))
    for negative, _, group in groups:
        lost[group] = -negative / len(group)
