"""Means of rows that are near one another: points for models that must not hold single rows."""

from __future__ import annotations

import numpy as np

from treecdf._common.typing import Array

_FEWEST_ROWS = 5  # rows that a point is the mean of at least, if there are so many


def means_of_rows(x: Array, most: int) -> Array:
    """Means (m, q) of groups of rows x (n, q), at most `most`, each of five rows or more.

    Groups come from halving the rows at the median of the column of the largest variance, again and again.
    """
    fewest = max(_FEWEST_ROWS, -(-len(x) // most))
    groups, means = [np.arange(len(x))], []
    while groups:
        group = groups.pop()
        rows = x[group]
        if len(group) < 2 * fewest:
            means.append(rows.mean(axis=0))
            continue
        order = np.argsort(rows[:, int(rows.var(axis=0).argmax())], kind="stable")
        groups += [group[order[: len(group) // 2]], group[order[len(group) // 2 :]]]
    return np.array(means)
