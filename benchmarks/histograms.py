"""Rows x columns x trees a second of our boosted trees beside LightGBM's, in one process, on one thread."""

import time
from collections.abc import Callable

import numpy as np

DEPTH, N_BINS, MIN_ROWS, RIDGE, RATE = 6, 255, 20, 1.0, 0.1  # of both; a bin of ours is for missing values
TREES, REPEATS = 40, 7
N_OUTPUTS = 9  # of the trees of a mixture of three components


def rates_of_trees(x: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """The rates of LightGBM, of our trees under squared error, and of those of several outputs.

    Binning is left out. A tree is everything from the gradients to the new scores of all rows; the least processor
    seconds of some runs count, and the runs take turns.
    """
    runs = {"lightgbm": _lightgbm(x, y), "treecdf": _ours(x, y, 1), f"{N_OUTPUTS} outputs": _ours(x, y, N_OUTPUTS)}
    least = dict.fromkeys(runs, np.inf)
    for _ in range(REPEATS):
        for name, run in runs.items():
            start = time.process_time()
            run()
            least[name] = min(least[name], time.process_time() - start)
    return {name: x.size * TREES / seconds for name, seconds in least.items()}


def _lightgbm(x: np.ndarray, y: np.ndarray) -> Callable[[], object]:
    import lightgbm

    same = {
        "objective": "regression",
        "max_depth": DEPTH,
        "num_leaves": 2**DEPTH,
        "max_bin": N_BINS,
        "min_data_in_leaf": MIN_ROWS,
        "lambda_l2": RIDGE,
        "learning_rate": RATE,
        "num_threads": 1,
        "verbose": -1,
    }
    rows = lightgbm.Dataset(x, y, params=same).construct()
    return lambda: lightgbm.train(same, rows, TREES)


def _ours(x: np.ndarray, y: np.ndarray, n_outputs: int) -> Callable[[], None]:
    """Squared error of outputs that are y and its multiples."""
    from treecdf._kernels.binned_trees import add_trees
    from treecdf._kernels.histogram import grow
    from treecdf.bases.learners.boosting import packed_nodes
    from treecdf.data.binning import Bins

    n, weight = len(x), np.ones(len(x))
    codes = Bins.fit(((column, weight) for column in x.T), N_BINS - 1).codes(x)
    given = np.arange(x.shape[1]), N_BINS - 1, float(MIN_ROWS), RIDGE
    outcomes, curvature = np.outer(y - y.mean(), 1.0 + np.arange(n_outputs)), np.ones((n, n_outputs))

    def run() -> None:
        scores = np.zeros((n, n_outputs))
        for _ in range(TREES):
            nodes, leaf = np.zeros((3, 1, 2**DEPTH - 1), np.int64), np.zeros((1, 2**DEPTH, n_outputs))
            grow(codes, np.arange(n), scores - outcomes, curvature, weight, *given, *nodes[:, 0], leaf[0])
            add_trees(codes, *packed_nodes(*nodes), leaf, RATE, scores)

    return run
