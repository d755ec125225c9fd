"""A measured figure, and the fits of a fixed number of trees that times are taken of."""

import numpy as np

TREES_PER_FIT = 10


def measure(
    what: str, value: float, unit: str = "s", at_most: float | None = None, at_least: float | None = None
) -> dict:
    """A figure with its target, as it is stored."""
    record = {"what": what, "value": float(value), "unit": unit}
    if at_most is not None:
        record |= {"target": f"at most {at_most:g}", "met": bool(value <= at_most)}
    if at_least is not None:
        record |= {"target": f"at least {at_least:g}", "met": bool(value >= at_least)}
    return record


def linear_data(n: int, q: int, d: int = 1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """x (n, q) and y (n,) or (n, d) whose location and scale depend on x."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, q))
    location = x @ rng.normal(size=(q, d)) / np.sqrt(q)
    y = location + np.exp(0.5 * x[:, :1]) * rng.normal(size=(n, d))
    return x, y[:, 0] if d == 1 else y


def fixed_trees(stage: int, n_trees: int):
    """`paper()` with one of its stages (0 logistic, 1 MLP) and no early stopping before n_trees."""
    from treecdf import TreeFlowRegressor

    return TreeFlowRegressor.paper(
        stages=[TreeFlowRegressor.paper().stages[stage]],
        max_trees=n_trees,
        early_stopping_window=n_trees + 1,
        n_jobs=1,
        random_state=0,
    )
