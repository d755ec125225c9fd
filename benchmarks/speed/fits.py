"""Parts a, b, d and g: time of a tree against the naive oracle, of a whole fit, of the log density, of a mixture."""

import time
import warnings

import numpy as np

from benchmarks.machine import seconds_of
from benchmarks.methods import METHODS
from benchmarks.paper_tables import SIMULATION_SECONDS
from benchmarks.paper_tables import SIMULATIONS as PAPER_SSE
from benchmarks.simulations import SIMULATIONS, sse
from benchmarks.speed.measure import fixed_trees, linear_data, measure

N_ROWS = 2000
ENSEMBLE_JOBS = 2
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
    """One tree by tests/helpers/naive.py on the residuals of our flow half way between FEW and MANY trees.

    The first tree would not do: the oracle takes up to twice as long over raw outcomes.
    """
    from tests.helpers import naive

    stage, depth, _ = KINDS[kind]
    flow = fixed_trees(stage, (FEW + MANY) // 2).fit(x, y, X_val=x, y_val=y)
    u = flow.predict_distribution(x).pit(y)
    make_classifier = {"logistic": naive.logistic, "mlp": naive.mlp}[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's, on convergence, thousands of them
        return seconds_of(lambda: naive.grow_tree(x, u, make_classifier, max_depth=depth))


def whole_fits() -> tuple[list[dict], dict]:
    """`paper()` from the first row to the last tree on each simulated set, and the SSE it reaches."""
    measures, raw = [], fits_of_simulations(METHODS["paper"](0, 2))
    for name, found in raw.items():
        seconds, target = found["seconds"], PAPER_SSE["ours (no rotations)"][name][0]
        measures += [
            measure(f"paper() on {name}, {N_ROWS} rows", seconds, at_most=5.0),
            measure(f"{name}: times faster than the paper's own", SIMULATION_SECONDS[name] / seconds, ""),
            measure(f"{name}: SSE (one seed)", found["sse"], "", at_most=target),
        ]
    return measures, raw


def ensemble() -> tuple[list[dict], dict]:
    """The mixture of 12 rotations in two processes on each simulated set, beside 12 fits of the paper's own."""
    measures, raw = [], fits_of_simulations(METHODS["rotated"](0, 2).set_params(n_jobs=ENSEMBLE_JOBS))
    for name, found in raw.items():
        flows, target = found["flows"], PAPER_SSE["ours (12 rotations)"][name][0]
        theirs = flows * SIMULATION_SECONDS[name]
        measures += [
            measure(f"{flows} rotations on {name}, {N_ROWS} rows, {ENSEMBLE_JOBS} processes", found["seconds"]),
            measure(f"{name}: {flows} fits of the paper's own, one core", theirs),
            measure(f"{name}: times faster than these", theirs / found["seconds"], ""),
            measure(f"{name}: SSE of the rotations (one seed)", found["sse"], "", at_most=target),
        ]
    return measures, raw


def fits_of_simulations(model) -> dict[str, dict]:
    """Seconds, SSE, flows and trees of a fit on each simulated set, with kernels and worker processes at hand."""
    x, y = SIMULATIONS["squares"].sample(200, np.random.default_rng(1))
    model.fit(x, y).log_prob(x, y)
    raw = {}
    for name, simulation in SIMULATIONS.items():
        x, y = simulation.sample(N_ROWS, np.random.default_rng(0))
        start = time.perf_counter()
        model.fit(x, y)
        raw[name] = {
            "seconds": time.perf_counter() - start,
            "sse": sse(model.log_prob, name),
            "flows": len(model.mixture_.members),
            "trees": int(np.sum(model.n_trees_)),
        }
    return raw


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
