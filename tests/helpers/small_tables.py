"""Rows of a small table, and a small model of them, for the command line."""

import numpy as np
import pandas as pd

from treecdf import TreeFlowRegressor


def small_rows(n=120, seed=0):
    """Rows with a number, a category whose levels look like other things, a category of numbers, and an outcome."""
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame({"size": rng.normal(size=n), "zone": rng.choice(["01", "1", "true", "hill"], n)})
    rows["code"] = rng.choice([3, 4, 12], n)
    shift = rows.zone.map({"01": 0.0, "1": 20.0, "true": 40.0, "hill": 60.0}) + 5 * (rows.code == 3)
    rows["y"] = rows["size"] + shift + rng.normal(size=n)
    return rows


def small_model(outcomes=("y",), **settings):
    """A model of few trees of these rows."""
    rows = small_rows()
    y = rows["y"] if len(outcomes) == 1 else pd.concat([rows["y"], -rows["y"]], axis=1)
    if len(outcomes) == 1:
        y.name = outcomes[0]
    else:
        y.columns = list(outcomes)
    settings = {"effort": "fast", "max_trees": 5, "random_state": 0, "n_jobs": 1} | settings
    model = TreeFlowRegressor(categorical_features=["code"], **settings)
    return model.fit(rows[["size", "zone", "code"]], y)
