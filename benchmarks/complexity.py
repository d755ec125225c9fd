"""`python -m benchmarks complexity`: processor time of one log density and of one draw against n, d and q."""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.comparisons import markdown_table
from benchmarks.machine import provenance, seconds_of
from benchmarks.pictures import pyplot, save
from benchmarks.rows import Run, Store, latest
from benchmarks.speed.measure import fixed_trees, linear_data
from benchmarks.speed.scaling import slope

TREES = 50
POINTS = 5_000  # rows that are timed together
DRAWS = 100  # at one row, where many are drawn there
ROUNDS = 60  # in each of which everything is timed once; the least counts
FEWEST_ROUNDS, SECONDS = 10, 8.0  # fewer rounds where these take longer
PAUSE = 0.1  # seconds between rounds, so that they do not all meet the same neighbours on the machine
FIXED = {"n": 2_000, "d": 1, "q": 8}
SIZES = {
    "n": [1_000, 3_162, 10_000, 31_623, 100_000],
    "d": [1, 2, 4, 8, 16, 32, 64],
    "q": [1, 2, 4, 8, 16, 32, 64, 128, 256],
}
LABELS = {"n": "training rows n", "d": "outcomes d", "q": "covariates q"}
STAGES = {"logistic_trees": 0, "network_trees": 1}  # of `paper()`
SWEEPS = (("n", "logistic_trees"), ("d", "logistic_trees"), ("q", "logistic_trees"), ("q", "network_trees"))
TIMES = {
    "log_prob": "log density",
    "log_prob_base": "of which without trees",
    "sample": "draw",
    "sample_base": "of which without trees",
    "sample_many": f"draw, {DRAWS} at a row",
}
SLOPES = {
    "log_prob": "log density",
    "log_prob_trees": "its trees",
    "sample": "draw",
    "sample_trees": "its trees",
    "sample_base": "draw without trees",
}


def complexity_runs() -> list[Run]:
    """One run for every size of every sweep; the name of a set is its n,d,q."""
    runs = [Run(_name(factor, size), 0, kind, seed=0) for factor, kind in SWEEPS for size in SIZES[factor]]
    return list(dict.fromkeys(runs))


def _name(factor: str, size: int) -> str:
    return "{n},{d},{q}".format(**FIXED | {factor: size})


def score_complexity(run: Run) -> dict:
    """Processor seconds a row of a fitted flow's log density and draws, the least of several repeats."""
    n, d, q = map(int, run.dataset.split(","))
    x, y = linear_data(n + POINTS, q, d, seed=run.seed)
    start = time.process_time()
    flow, bare = (
        fixed_trees(STAGES[run.method], trees).set_params(validation_fraction=0).fit(x[:n], y[:n])
        for trees in (TREES, 0)
    )
    times = {"fit_cpu": time.process_time() - start}
    x, y = x[n:], y[n:]
    calls = {
        "log_prob": lambda: flow.log_prob(x, y),
        "log_prob_base": lambda: bare.log_prob(x, y),
        "sample": lambda: flow.sample(x, 1, random_state=0),
        "sample_base": lambda: bare.sample(x, 1, random_state=0),
        "sample_many": lambda: flow.sample(x[: POINTS // DRAWS], DRAWS, random_state=0),
    }
    times |= {name: seconds / POINTS for name, seconds in least_seconds(calls).items()}
    met = nodes_a_tree(flow.mixture_.members[0], x, y.reshape(POINTS, d))
    metrics = {"trees": int(flow.n_trees_), "nodes_a_tree": met}
    return {"settings": {"trees": TREES, "points": POINTS}, "seconds": times, "metrics": metrics} | provenance()


def least_seconds(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Least processor seconds of each call over many rounds, after one that loads the kernels."""
    for call in calls.values():
        call()
    rounds: list[dict[str, float]] = []
    start = time.process_time()
    while len(rounds) < FEWEST_ROUNDS or (len(rounds) < ROUNDS and time.process_time() - start < SECONDS):
        rounds.append({name: seconds_of(call, clock=time.process_time) for name, call in calls.items()})
        time.sleep(PAUSE)
    return {name: min(times[name] for times in rounds) for name in calls}


def nodes_a_tree(flow, x: np.ndarray, y: np.ndarray) -> float:
    """Mean number of nodes that outcomes y (n, d) pass in a tree of the flow on their way forward."""
    z = flow.standardize(x)
    u = np.clip(flow.base.to_box(y[:, None])[0], 1e-300, 1.0)
    passed, trees = 0, 0
    for stage in flow.stages:
        for k in range(len(stage)):
            tree = stage[k : k + 1]
            passed += _nodes_passed(tree.nodes, u[:, 0])
            u, _ = tree.forward_and_log_det(u, z)
        trees += len(stage)
    return passed / len(x) / max(trees, 1)


def _nodes_passed(nodes: np.ndarray, u: np.ndarray) -> int:
    """Nodes of one tree that points u (n, d) pass, all together."""
    at = np.zeros(len(u) if len(nodes) else 0, dtype=np.int64)
    passed = 0
    while len(at):
        node = nodes[at]
        passed += len(at)
        child = np.where(u[np.arange(len(u)), node["axis"]] <= node["cut"], node["left"], node["right"])
        at, u = child[child >= 0], u[child >= 0]
    return passed


def sweep(factor: str, kind: str, rows: dict[Run, dict]) -> dict[int, dict]:
    """Rows by size of one factor, the others fixed; those that are stored and no failures."""
    found = {size: rows.get(Run(_name(factor, size), 0, kind, 0), {"error": "missing"}) for size in SIZES[factor]}
    return {size: row for size, row in found.items() if "error" not in row}


def complexity_page(directory: Path) -> list[str]:
    """Lines of the page, none where a sweep has fewer than two sizes; draws the picture beside it."""
    rows = latest(Store("complexity").read())
    sweeps = {key: sweep(*key, rows) for key in SWEEPS}
    if any(len(found) < 2 for found in sweeps.values()):
        return []
    draw(sweeps, directory / "complexity.png")
    held = "n = {n}, d = {d}, q = {q}".format(**FIXED)
    return [
        "# Time of one log density and of one draw",
        "",
        "The paper claims that the log density of one outcome vector, and one draw, take time of order q, whatever "
        f"the number d of outcomes. Flows of {TREES} trees are trained with the settings of `paper()` on synthetic "
        f"rows, without early stopping; then {POINTS} other rows are asked for a log density each, and for a draw. "
        f"One of n, d and q is varied, the others stay at {held}. Times are processor microseconds per row on one "
        f"thread, the least of {FEWEST_ROUNDS} to {ROUNDS} rounds, from arrays to arrays, checks of the input "
        "included. Other programs ran at the same time, so single points scatter.",
        "",
        "![Time of a log density and a draw against n, d and q](complexity.png)",
        "",
        "## Slopes",
        "",
        "Slope of log time against log size, by least squares over all sizes and in brackets over the last step, where "
        "a constant part matters least. 1 means proportional, 0 independent. The trees' time is the time of the flow "
        "minus that of a flow without trees.",
        "",
        *markdown_table(["varied", "nodes", *SLOPES.values()], [_slopes(*key, found) for key, found in sweeps.items()]),
        "",
        *_reading(sweeps),
        *(line for key, found in sweeps.items() for line in _table(*key, found)),
        _made_by([row for found in sweeps.values() for row in found.values()]),
    ]


def _made_by(rows: list[dict]) -> str:
    distinct = latest(rows).values()
    seconds = sum(row["seconds"]["fit_cpu"] for row in distinct)
    commits = ", ".join(dict.fromkeys(row["commit"] for row in distinct))
    return (
        f"Made by `python -m benchmarks complexity`: {len(distinct)} runs, {seconds:.0f} processor seconds of "
        f"training, commit {commits}. Every run is a row of `benchmarks/rows/complexity.jsonl`."
    )


def _seconds(found: dict[int, dict], name: str) -> np.ndarray:
    """Seconds a row by size; `name` may end in _trees, for what the trees add."""
    if name.endswith("_trees"):
        whole = name.removesuffix("_trees")
        return _seconds(found, whole) - _seconds(found, f"{whole}_base")
    return np.array([row["seconds"][name] for row in found.values()])


def _slopes(factor: str, kind: str, found: dict[int, dict]) -> list[str]:
    sizes = list(found)
    cells = []
    for name in SLOPES:
        times = _seconds(found, name)
        cells.append(f"{slope(sizes, times):.2f} ({slope(sizes[-2:], times[-2:]):.2f})")
    return [f"{LABELS[factor]}, {sizes[0]} to {sizes[-1]}", kind.split("_")[0], *cells]


def _table(factor: str, kind: str, found: dict[int, dict]) -> list[str]:
    lines = [
        [str(size), f"{row['metrics']['nodes_a_tree']:.2f}", *(f"{1e6 * row['seconds'][name]:.2f}" for name in TIMES)]
        for size, row in found.items()
    ]
    return [
        f"## Against {LABELS[factor]}, {kind.split('_')[0]} nodes",
        "",
        *markdown_table([factor, "nodes passed in a tree", *TIMES.values()], lines),
        "",
    ]


def _reading(sweeps: dict) -> list[str]:
    """What the slopes mean and why."""
    by_n, by_d, by_q = (sweeps[factor, "logistic_trees"] for factor in "ndq")
    density, drawn = (_ends(by_d, name) for name in ("log_prob", "sample"))
    more = max(by_q) - min(by_q)
    dearer = [np.ptp(_ends(by_q, name)) / more * 1e3 for name in ("log_prob_trees", "sample_trees")]
    nodes = [row["metrics"]["nodes_a_tree"] for row in by_n.values()]
    return [
        "Of order q are the predictions of the node classifiers. A point passes one node per level, so at most as "
        "many nodes as a tree is deep (6 with logistic nodes, 4 with networks), and each costs one product of length "
        f"q, or the first layer of a network. One more covariate costs {dearer[0]:.0f} ns in the log density and "
        f"{dearer[1]:.0f} ns in a draw, for all {TREES} logistic trees together. Over all sizes the slope is below 1, "
        "because the other work at a node does not depend on q; with many covariates the products dominate, and the "
        "slope is about 1. With many covariates points also pass fewer nodes, because trees stop earlier. Without "
        "trees the time goes into reading, checking and standardising q covariates; with the largest tables the rows "
        "timed together no longer fit into the processor's caches. Many draws at one row evaluate each node once, so "
        "their time hardly depends on q.",
        "",
        "The way through a tree does not depend on d, because a node cuts one outcome. What depends on d: the d "
        "uniform numbers of a draw, and the base, which maps each of d outcomes into its box before the first tree or "
        "out of it after the last; anything that reads or writes d numbers takes time of order d. In the log density "
        f"also all d coordinates are kept inside the unit cube after every tree. From d = {min(by_d)} to {max(by_d)} "
        f"the log density goes from {density[0]:.1f} to {density[1]:.1f} µs and a draw from {drawn[0]:.1f} to "
        f"{drawn[1]:.1f} µs. So the trees take O(q), independent of d; the whole takes O(d + q), with a small "
        "constant for d.",
        "",
        "The number n of training rows matters only through the shape of the trees: with more rows more nodes have "
        f"enough of them to be split, so points pass more nodes, here {nodes[0]:.2f} to {nodes[-1]:.2f} per tree, up "
        "to the maximal depth.",
        "",
    ]


def _ends(found: dict[int, dict], name: str) -> np.ndarray:
    """Microseconds at the smallest and at the largest size."""
    return 1e6 * _seconds(found, name)[[0, -1]]


def draw(sweeps: dict, path: Path) -> None:
    """One panel each for n, d and q: log density and draw, what they take without trees, and a line of slope 1."""
    looks = {
        "log_prob": ("o-", "log density"),
        "sample": ("s-", "draw"),
        "sample_many": ("d-", f"draw, {DRAWS} at a row"),
        "log_prob_base": ("o:", "log density, no trees"),
        "sample_base": ("s:", "draw, no trees"),
    }
    figure, axes = pyplot().subplots(1, len(SIZES), figsize=(11.5, 4.2), sharey=True, layout="constrained")
    panels = dict(zip(SIZES, axes, strict=True))
    for (factor, kind), found in sweeps.items():
        network = kind == "network_trees"
        for k, (name, (style, words)) in enumerate(looks.items()):
            if network and name.endswith("_base"):
                continue
            look = {"color": f"C{k % 3}", "markersize": 4, "alpha": 0.45 if network else 1.0}
            panels[factor].loglog(list(found), 1e6 * _seconds(found, name), style, label=words, **look)
    for factor, axis in panels.items():
        ends = np.array(SIZES[factor])[[0, -1]]
        axis.loglog(ends, 0.9 * ends / ends[0], color="0.75", linewidth=1, label="slope 1", zorder=0)
        axis.set_xlabel(LABELS[factor])
        axis.minorticks_off()
    axes[0].set_ylabel("processor microseconds a row")
    lines, words = axes[0].get_legend_handles_labels()
    figure.legend(lines, words, loc="outside lower center", ncols=6, frameon=False, fontsize=9)
    panels["q"].set_title("pale: network nodes", fontsize=9)
    save(figure, path)
