"""`python -m benchmarks kernels`: what each compiled kernel costs, compilation apart from work.

Run as `python -m benchmarks.kernels NAME` it is the fresh process that compiles one kernel and prints one JSON line.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.machine import ROOT, provenance
from benchmarks.rows import Store
from treecdf._kernels.binned_trees import add_trees
from treecdf._kernels.curves import fill_masses, mix_ascending
from treecdf._kernels.histogram import grow
from treecdf._kernels.lbfgs import LINE, MEMORY, lbfgs_advance
from treecdf._kernels.losses import logistic_loss, mlp_loss
from treecdf._kernels.mixtures import cell_loss, mixture_forward, mixture_inverse, mixture_loss
from treecdf._kernels.newton import STEP, newton_advance
from treecdf._kernels.processes import add_process
from treecdf._kernels.rows import arrange, descend, label, search_sums
from treecdf._kernels.tails import T5
from treecdf._kernels.transform import LINEAR, NODE, forward, inverse
from treecdf.bases.learners.boosting import packed_nodes
from treecdf.data.basis import Basis

N_ROWS = 20_000
N_COVARIATES = 8
N_NODES = 16  # of a level whose rows are visited
N_SOLVED = 1_000  # nodes that are minimised side by side
REPEATS = 5


class Case(NamedTuple):
    """A kernel, new arguments for a call of it, and what the call's time is divided by."""

    kernel: Callable[..., None]
    arguments: Callable[[], tuple]
    count: int
    unit: str


def _blank(*shape: int) -> np.ndarray:
    """NaN that a kernel writes over; the memory is touched here, so that no kernel is charged for it."""
    return np.full(shape, np.nan)


def _flow(n_trees: int = 10, depth: int = 4) -> tuple:
    """Complete trees on one outcome, cut in the middle, with logistic nodes; and covariates, one point a row."""
    rng = np.random.default_rng(0)
    size = 2**depth - 1
    tree = np.zeros(size, NODE)
    tree["lower"][0], tree["upper"][0] = 0.0, 1.0
    for k in range(size):
        tree["cut"][k] = (tree["lower"][k] + tree["upper"][k]) / 2
        tree["left"][k], tree["right"][k] = (2 * k + 1, 2 * k + 2) if 2 * k + 2 < size else (-1, -1)
        for child, ends in ((2 * k + 1, ("lower", "cut")), (2 * k + 2, ("cut", "upper"))):
            if child < size:
                tree["depth"][child] = tree["depth"][k] + 1
                tree["lower"][child], tree["upper"][child] = tree[ends[0]][k], tree[ends[1]][k]
    tree["left_share"], tree["rate"] = 0.5, 0.1
    nodes = np.tile(tree, n_trees)
    for name in ("left", "right"):
        first = np.repeat(np.arange(n_trees) * size, size)
        nodes[name] = np.where(nodes[name] >= 0, nodes[name] + first, -1)
    theta = 0.3 * rng.normal(size=(len(nodes), 1 + N_COVARIATES))
    roots, kind = np.arange(n_trees + 1) * size, np.array([LINEAR, 0])
    return nodes, theta, roots, kind, rng.normal(size=(N_ROWS, N_COVARIATES)), 1


def _forward() -> Case:
    flow, u = _flow(), np.random.default_rng(1).random((N_ROWS, 1))
    return Case(forward, lambda: (*flow, u.copy(), np.zeros(N_ROWS)), N_ROWS, "row, 10 trees")


def _fill_masses() -> Case:
    nodes, *trees, x, _ = _flow()
    return Case(fill_masses, lambda: (nodes, *trees, x, 0, _blank(len(nodes), len(x))), N_ROWS, "row, 10 trees")


def _mix_ascending() -> Case:
    """Ten trees of 16 leaves each that move nothing, and ten points at a row."""
    n_leaves, n_trees = 16, 10
    edges = np.linspace(0.0, 1.0, n_leaves + 1)
    low = np.tile(edges[:-1], n_trees)
    trees = np.arange(n_trees + 1) * n_leaves, low, np.array([0, n_trees])
    lines = np.tile(np.column_stack([low, np.ones(len(low))]), (N_ROWS, 1, 1))
    u = np.sort(np.random.default_rng(1).random((N_ROWS, 10)), axis=1)
    rows = lines, np.arange(N_ROWS), np.ones((N_ROWS, 1))
    return Case(
        mix_ascending,
        lambda: (*trees, *rows, u, _blank(*u.shape), _blank(*u.shape)),
        N_ROWS,
        "row, 10 trees, 10 points",
    )


def _inverse() -> Case:
    flow, u = _flow(), np.random.default_rng(1).random((N_ROWS, 1))
    return Case(inverse, lambda: (*flow, u.copy()), N_ROWS, "row, 10 trees")


def _binned(depth: int) -> tuple:
    """Bins (q, n) of covariates, and the arrays of a tree."""
    codes = np.random.default_rng(0).integers(1, 65, (N_COVARIATES, N_ROWS)).astype(np.uint8)
    return codes, *np.zeros((3, 1, 2**depth - 1), np.int64), np.zeros((1, 2**depth, 1))


def _grow() -> Case:
    codes, *tree = _binned(depth=5)
    gradient, ones = np.random.default_rng(1).normal(size=(N_ROWS, 1)), np.ones((N_ROWS, 1))
    given = (gradient, ones, ones[:, 0].copy(), np.arange(N_COVARIATES), 64, 5.0, 1.0)
    rows = np.arange(N_ROWS)
    return Case(grow, lambda: (codes, rows, *given, *(part[0].copy() for part in tree)), N_ROWS, "row, depth 5")


def _add_trees() -> Case:
    codes, *parts = _binned(depth=5)
    column, cut, missing_left, leaf = (np.repeat(part, 10, axis=0) for part in parts)
    nodes = packed_nodes(column, cut + 32, missing_left)
    return Case(
        add_trees,
        lambda: (codes, *nodes, leaf + 1.0, 0.1, np.zeros((N_ROWS, 1))),
        N_ROWS,
        "row, 10 trees of depth 5",
    )


def _add_process() -> Case:
    rng = np.random.default_rng(0)
    rows, inducing = rng.normal(size=(N_ROWS, N_COVARIATES)), rng.normal(size=(N_COVARIATES, 500))
    given = rows, inducing, rng.normal(size=500)
    return Case(add_process, lambda: (*given, np.zeros(N_ROWS)), N_ROWS, "row, 500 inducing rows")


def _level() -> tuple:
    """Covariates, outcomes in the cube, weights, and rows in the order of the nodes of a level."""
    rng = np.random.default_rng(0)
    start = np.linspace(0, N_ROWS, N_NODES + 1).astype(np.int64)
    return rng.normal(size=(N_ROWS, N_COVARIATES)), rng.random((N_ROWS, 1)), np.ones(N_ROWS), np.arange(N_ROWS), start


def _search_sums() -> Case:
    cuts = np.tile(np.linspace(0, 1, 33)[1:-1], (N_NODES, 1, 1))
    p, cells = N_COVARIATES, cuts.shape[2] + 1
    shapes = (N_NODES, 1, cells), (N_NODES, 1, cells, p), (N_NODES, p + 1, p + 1)
    given = (*_level(), *Basis.linear(p).arrays, cuts)
    return Case(search_sums, lambda: (*given, *map(np.zeros, shapes)), N_ROWS, "row")


def _arrange() -> Case:
    x, _, _, order, start = _level()
    given = (x, order, start, *Basis.linear(N_COVARIATES).arrays)
    return Case(arrange, lambda: (*given, _blank(N_COVARIATES, N_ROWS)), N_ROWS, "row")


def _label() -> Case:
    _, *given = _level()
    split = np.zeros(N_NODES, np.int64), np.full(N_NODES, 0.5)
    return Case(label, lambda: (*given, *split, _blank(N_ROWS), _blank(N_ROWS)), N_ROWS, "row")


def _descend() -> Case:
    _, u, _, order, start = _level()
    given = (u, order, start, np.zeros(N_NODES, np.int64), np.full(N_NODES, 0.5), np.arange(2 * N_NODES).reshape(-1, 2))
    return Case(descend, lambda: (*given, np.full(N_ROWS, -1), np.full(2 * N_NODES + 1, -1)), N_ROWS, "row")


def _labelled() -> tuple:
    """Covariates (q, n) in node order, weights, labels, where nodes begin, and that all of them are active."""
    x, u, weight, _, start = _level()
    return np.ascontiguousarray(x.T), weight, np.round(u[:, 0]), start, np.ones(N_NODES, np.int64)


def _logistic_loss() -> Case:
    given, p = _labelled(), 1 + N_COVARIATES
    theta = 0.1 * np.random.default_rng(1).normal(size=(N_NODES, p))
    shapes = (N_NODES,), (N_NODES, p), (N_NODES, p, p)
    return Case(logistic_loss, lambda: (*given, theta, *map(np.zeros, shapes)), N_ROWS, "row")


def _mlp_loss() -> Case:
    given, hidden = _labelled(), np.array([4, 4])
    p = 4 * (N_COVARIATES + 1) + 4 * 5 + 5
    theta = 0.1 * np.random.default_rng(1).normal(size=(N_NODES, p))
    return Case(mlp_loss, lambda: (*given, theta, hidden, np.zeros(N_NODES), np.zeros((N_NODES, p))), N_ROWS, "row")


def _newton() -> Case:
    p = 1 + N_COVARIATES
    gradient, hessian = np.random.default_rng(0).normal(size=(N_SOLVED, p)), np.tile(np.eye(p), (N_SOLVED, 1, 1))

    def arguments() -> tuple:
        step = np.zeros(N_SOLVED, STEP)
        step["value"] = 1.0  # the trial is better: a new direction is solved for
        points = np.zeros((3, N_SOLVED, p))
        sums = np.zeros(N_SOLVED), gradient.copy(), hessian.copy()
        return np.ones(N_SOLVED, np.int64), step, *points, *sums, 1.0, np.ones(N_SOLVED), 1e-4, 100

    return Case(newton_advance, arguments, N_SOLVED, "node, 9 parameters")


def _lbfgs() -> Case:
    p = 1 + N_COVARIATES
    slope = np.random.default_rng(0).normal(size=(N_SOLVED, p))
    pairs = np.random.default_rng(1).normal(size=(N_SOLVED, MEMORY, p))

    def arguments() -> tuple:
        line = np.zeros(N_SOLVED, LINE)
        line["stored"] = MEMORY  # the recursion runs over a full memory
        points = np.zeros((4, N_SOLVED, p))
        given = np.zeros(N_SOLVED), slope.copy(), np.ones(p), np.ones(N_SOLVED), 1e-4, 100
        return np.ones(N_SOLVED, np.int64), line, *points, pairs.copy(), pairs.copy(), *given

    return Case(lbfgs_advance, arguments, N_SOLVED, "node, 9 parameters")


TAILS = np.full(3, T5)


def _mixture() -> tuple[np.ndarray, ...]:
    """Locations, log scales and log weights (n, 3) of the components."""
    rng = np.random.default_rng(0)
    shape = (N_ROWS, 3)
    return rng.normal(size=shape), 0.1 * rng.normal(size=shape), np.full(shape, -np.log(3.0))


def _mixture_forward() -> Case:
    parameters, y = _mixture(), np.random.default_rng(1).normal(size=(N_ROWS, 1))
    return Case(
        mixture_forward, lambda: (y, *parameters, TAILS, *(_blank(*y.shape) for _ in range(3))), N_ROWS, "row, 3 parts"
    )


def _mixture_inverse() -> Case:
    parameters, u = _mixture(), np.random.default_rng(1).random((N_ROWS, 1))
    order = np.zeros(u.shape, np.int64)
    return Case(mixture_inverse, lambda: (u, order, *parameters, TAILS, _blank(*u.shape)), N_ROWS, "row, 3 parts")


def _mixture_loss() -> Case:
    location, *scores = _mixture()
    scores, y = np.hstack(scores), np.random.default_rng(1).normal(size=N_ROWS)
    return Case(
        mixture_loss,
        lambda: (y, location, scores, T5, -5.0, _blank(N_ROWS), _blank(*scores.shape), _blank(*scores.shape)),
        N_ROWS,
        "row, 3 parts",
    )


def _cell_loss() -> Case:
    location, *scores = _mixture()
    scores, y = np.hstack(scores), np.random.default_rng(1).normal(size=N_ROWS)
    ends = np.column_stack([y - 0.5, y + 0.5])
    return Case(
        cell_loss,
        lambda: (ends, location, scores, T5, -5.0, _blank(N_ROWS), _blank(*scores.shape), _blank(*scores.shape)),
        N_ROWS,
        "row, 3 parts",
    )


CASES: dict[str, Callable[[], Case]] = {
    "forward": _forward,
    "fill_masses": _fill_masses,
    "mix_ascending": _mix_ascending,
    "inverse": _inverse,
    "grow": _grow,
    "add_trees": _add_trees,
    "add_process": _add_process,
    "search_sums": _search_sums,
    "arrange": _arrange,
    "label": _label,
    "descend": _descend,
    "logistic_loss": _logistic_loss,
    "mlp_loss": _mlp_loss,
    "newton_advance": _newton,
    "lbfgs_advance": _lbfgs,
    "mixture_forward": _mixture_forward,
    "mixture_inverse": _mixture_inverse,
    "mixture_loss": _mixture_loss,
    "cell_loss": _cell_loss,
}


def time_kernel(name: str) -> dict:
    """Seconds of the first call of a kernel in this process and of a later one, the least of some."""
    case = CASES[name]()
    first, *later = (_seconds(case) for _ in range(1 + REPEATS))
    return {"kernel": name, "unit": case.unit, "count": case.count, "first": first, "warm": min(later)}


def _seconds(case: Case) -> float:
    given = case.arguments()
    start = time.perf_counter()
    case.kernel(*given)
    return time.perf_counter() - start


def run_kernels(names: Sequence[str], store: Store | None = None) -> list[dict]:
    """Measure each kernel in a process of its own without a cache on disk; print and store a row of each."""
    store = store or Store("kernels")
    rows = []
    print(f"{'kernel':<16} {'compile s':>9} {'ns':>9}  per")
    for name in names:
        with tempfile.TemporaryDirectory() as empty:
            told = subprocess.run(
                [sys.executable, "-m", "benchmarks.kernels", name],
                cwd=ROOT,
                env=os.environ | {"NUMBA_CACHE_DIR": empty},
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            ).stdout
        row = json.loads(told.splitlines()[-1])
        row |= {"compile": row["first"] - row["warm"], "ns": 1e9 * row["warm"] / row["count"]} | provenance()
        store.append(row)
        rows.append(row)
        print(f"{name:<16} {row['compile']:>9.2f} {row['ns']:>9.1f}  {row['unit']}", flush=True)
    return rows


if __name__ == "__main__":
    print(json.dumps(time_kernel(sys.argv[1])))
