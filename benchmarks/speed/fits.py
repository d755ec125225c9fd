"""Parts a, b and d: time of a tree against the naive oracle, of a whole fit, of the log density."""

import sys
import time
import warnings

import numpy as np

from benchmarks.machine import ROOT, seconds_of
from benchmarks.methods import METHODS
from benchmarks.paper_tables import SIMULATION_SECONDS
from benchmarks.paper_tables import SIMULATIONS as PAPER_SSE
from benchmarks.simulations import SIMULATIONS, sse
from benchmarks.speed.measure import fixed_trees, linear_data, measure

N_ROWS = 2000
FEW, MANY = 5, 25  # trees of the two fits whose difference is timed
KINDS = {"logistic": (0, 6, 300.0), "mlp": (1, 4, 100.0)}  # stage of paper(), its depth, wanted speed-up


def trees_against_naive(skip_naive_mlp: bool = False) -> tuple[list[dict], dict]:
    """Seconds of one tree on Squares, ours and the paper's Algorithm 2 taken literally."""
    x, y = SIMULATIONS["squares"].sample(N_ROWS, np.random.default_rng(0))
    measures, raw = [], {}
    for kind, (stage, depth, speed_up) in KINDS.items():
        ours = raw[f"{kind} ours"] = seconds_of_a_tree(stage, x, y)
        measures.append(measure(f"one {kind} tree of depth {depth}, Squares, {N_ROWS} rows", ours))
        if kind == "mlp" and skip_naive_mlp:
            continue
        naive = raw[f"{kind} naive"] = seconds_of_a_naive_tree(kind, x, y)
        measures.append(measure(f"the same by the naive oracle, {kind}", naive))
        measures.append(measure(f"{kind}: times faster a tree", naive / ours, "", at_least=speed_up))
    return measures, raw


def seconds_of_a_tree(stage: int, x: np.ndarray, y: np.ndarray) -> float:
    """Difference of two fits over the difference of their trees; set-up and finish cancel."""
    # Validation rows of its own, so that our tree grows on all the rows the oracle's tree grows on.
    x_val, y_val = SIMULATIONS["squares"].sample(N_ROWS // 10, np.random.default_rng(1))

    def fit(n_trees):
        fixed_trees(stage, n_trees).fit(x, y, X_val=x_val, y_val=y_val)

    fit(FEW)
    short, long = (seconds_of(lambda n=n: fit(n), repeats=3) for n in (FEW, MANY))
    return (long - short) / (MANY - FEW)


def seconds_of_a_naive_tree(kind: str, x: np.ndarray, y: np.ndarray) -> float:
    """One tree by tests/naive.py on the residuals of our flow half way between FEW and MANY trees.

    The first tree would not do: the oracle takes up to twice as long over raw outcomes.
    """
    if str(ROOT / "tests") not in sys.path:
        sys.path.insert(0, str(ROOT / "tests"))
    import naive

    stage, depth, _ = KINDS[kind]
    flow = fixed_trees(stage, (FEW + MANY) // 2).fit(x, y, X_val=x, y_val=y)
    u = flow.predict_distribution(x).pit(y)
    make_classifier = {"logistic": naive.logistic, "mlp": naive.mlp}[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's, on convergence, thousands of them
        return seconds_of(lambda: naive.grow_tree(x, u, make_classifier, max_depth=depth))


def whole_fits() -> tuple[list[dict], dict]:
    """`paper()` from the first row to the last tree on each simulated set, and the SSE it reaches."""
    measures, raw = [], {}
    x, y = SIMULATIONS["squares"].sample(200, np.random.default_rng(1))
    METHODS["paper"](0).fit(x, y).log_prob(x, y)
    for name, simulation in SIMULATIONS.items():
        x, y = simulation.sample(N_ROWS, np.random.default_rng(0))
        model = METHODS["paper"](0)
        start = time.perf_counter()
        model.fit(x, y)
        seconds = time.perf_counter() - start
        error = sse(model.log_prob, name)
        target, _ = PAPER_SSE["ours (no rotations)"][name]
        raw[name] = {"seconds": seconds, "sse": error, "trees": int(np.sum(model.n_trees_))}
        measures += [
            measure(f"paper() on {name}, {N_ROWS} rows", seconds, at_most=5.0),
            measure(f"{name}: times faster than the paper's own", SIMULATION_SECONDS[name] / seconds, ""),
            measure(f"{name}: SSE (one seed)", error, "", at_most=target),
        ]
    return measures, raw


def log_density(n_rows: int = 100_000, n_trees: int = 100, q: int = 8) -> tuple[list[dict], dict]:
    """Log density of many rows under a flow of 100 logistic trees."""
    x, y = linear_data(5_000, q)
    # The training rows validate: the score then rises to the last tree, so that none is rolled back.
    model = fixed_trees(0, n_trees).fit(x, y, X_val=x, y_val=y)
    x, y = linear_data(n_rows, q)
    model.log_prob(x[:100], y[:100])
    seconds = seconds_of(lambda: model.log_prob(x, y), repeats=3)
    kept = int(np.sum(model.n_trees_))
    what = f"log density of {n_rows} rows, {kept} logistic trees, q = {q}"
    return [measure(what, seconds, at_most=1.0)], {"trees": kept}
