"""`python -m benchmarks literal`: the paper's Algorithms 1 and 2 taken literally beside our flows, on known truths.

The literal flow is `tests/helpers/naive.py` with a scikit-learn classifier trained for every candidate cut. Outcomes
are drawn inside the unit interval and covariates are standardised, so that the trees alone are compared.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.special import expit, logit
from scipy.stats import norm

from benchmarks.comparisons import Groups, fit_seconds, markdown_table, metric
from benchmarks.machine import provenance
from benchmarks.rows import Run, Store, latest

N_TRAIN, N_VALIDATION, N_TEST = 200, 100, 4000
STARTS = 5  # fits of ours to the same rows, each network of each fit from other weights
LogDensity = Callable[[np.ndarray, np.ndarray], np.ndarray]  # of x (n, q) and u (n, 1), (n,)


def _straight(x: np.ndarray) -> tuple:
    """Location that is linear in x."""
    return 1.0, x[:, 0] - 0.5 * x[:, 1], 0.0, 0.7


def _bent(x: np.ndarray) -> tuple:
    """Location with a bend in one covariate, scale that depends on the other."""
    return 1.0, 1.5 * np.abs(x[:, 0]) - 1.0, 0.0, 0.6 * np.exp(0.3 * x[:, 1])


def _two_groups(x: np.ndarray) -> tuple:
    """Two groups that drift apart in one covariate, their shares depend on the other."""
    return expit(2.0 * x[:, 1]), 1.0 + 0.5 * x[:, 0], -1.0 - 0.5 * x[:, 0], 0.5


# logit(u) is a mixture of two normals: share of the first, both locations, their scale, each a number or (n,).
TRUTHS = {"straight": _straight, "bent": _bent, "two_groups": _two_groups}


@dataclass(frozen=True)
class Problem:
    """Rows for training, early stopping and testing: x (n, 2) standardised by the training rows, u (n, 1)."""

    train: tuple[np.ndarray, np.ndarray]
    validation: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]
    truth: np.ndarray  # log density of the test rows under the truth, (N_TEST,)


def draw_problem(name: str, seed: int) -> Problem:
    """Fresh rows of a truth."""
    rng = np.random.default_rng([seed, *name.encode()])
    x = rng.normal(size=(N_TRAIN + N_VALIDATION + N_TEST, 2))
    u = draw_outcomes(name, x, rng)
    log_density = true_log_density(name, x, u)
    x = (x - x[:N_TRAIN].mean(axis=0)) / x[:N_TRAIN].std(axis=0)
    ends = [N_TRAIN, N_TRAIN + N_VALIDATION]
    parts = zip(np.split(x, ends), np.split(u[:, None], ends), strict=True)
    return Problem(*parts, truth=log_density[ends[-1] :])


def draw_outcomes(name: str, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Outcomes (n,) of a truth given covariates x (n, 2), before these are standardised."""
    share, one, other, scale = TRUTHS[name](x)
    place = np.where(rng.random(len(x)) < share, one, other)
    return expit(place + scale * rng.normal(size=len(x)))


def true_log_density(name: str, x: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Log density (n,) of outcomes u (n,) given the same covariates."""
    share, one, other, scale = TRUTHS[name](x)
    z = logit(u)
    density = share * norm.pdf(z, one, scale) + (1.0 - share) * norm.pdf(z, other, scale)
    return np.log(density) - np.log(u) - np.log1p(-u)


def fit_literal(problem: Problem, seed: int, **overrides) -> tuple[LogDensity, int]:
    """The literal flow's log density and number of trees; its seed is the paper's, 42, whatever `seed` is.

    `overrides` are arguments of `naive.train_flow`.
    """
    from tests.helpers import naive

    stages = [(naive.logistic, 6), (naive.mlp, 4)]
    trees, _ = naive.train_flow(*problem.train, *problem.validation, stages, **overrides)
    return partial(naive.flow_log_density, trees), len(trees)


def fit_ours(problem: Problem, seed: int, **overrides) -> tuple[LogDensity, int]:
    """Log density and number of trees of `TreeFlowRegressor.paper()` with bounds 0 and 1, which map no outcome."""
    from treecdf import TreeFlowRegressor

    x_val, u_val = problem.validation
    model = TreeFlowRegressor.paper(bounds=(0.0, 1.0), n_jobs=1, random_state=seed, **overrides)
    model.fit(*problem.train, X_val=x_val, y_val=u_val)
    return model.log_prob, model.n_trees_


METHODS = {  # what is fitted
    "paper": fit_ours,
    "exhaustive": partial(fit_ours, split_search="exhaustive"),
    "literal": fit_literal,
}
COLUMNS = {  # what the page calls it
    "literal": "literal",
    "exhaustive": 'ours, `split_search="exhaustive"`',
    "paper": "ours, `paper()`",
}
OURS = ("exhaustive", "paper")


def literal_runs(splits: int, methods: Sequence[str] = tuple(METHODS)) -> list[Run]:
    """Runs on `splits` sets of rows of each truth, the quick methods first."""
    return [
        Run(name, k, method, seed)
        for k in range(splits)
        for method in methods
        for name in TRUTHS
        for seed in range(STARTS if method in OURS else 1)
    ]


def score_run(run: Run) -> dict:
    """Mean log density of the fresh rows under a flow and under the truth, and processor seconds of the fit."""
    problem = draw_problem(run.dataset, run.split)
    fit_ours(problem, 0, max_trees=1)  # kernels are compiled beforehand
    start, cpu = time.perf_counter(), time.process_time()
    log_density, n_trees = METHODS[run.method](problem, run.seed)
    times = {"fit": time.perf_counter() - start, "fit_cpu": time.process_time() - cpu}
    log_lik = float(np.mean(log_density(*problem.test)))
    metrics = {"log_lik": log_lik, "truth_log_lik": float(problem.truth.mean()), "trees": n_trees}
    return {"settings": {}, "seconds": times, "metrics": metrics, "n_train": N_TRAIN} | provenance()


def literal_page() -> list[str]:
    """Lines of the page; none while no set of rows has the literal flow and both of ours."""
    rows = {run: row for run, row in latest(Store("literal").read()).items() if "error" not in row}
    groups = defaultdict(list)
    for run, row in sorted(rows.items(), key=lambda item: (list(TRUTHS).index(item[0].dataset), item[0].split)):
        groups[f"{run.dataset} {run.split}", run.method].append(row)
    sets = [name for name, method in groups if method == "literal" and all((name, own) in groups for own in OURS)]
    if not sets:
        return []
    literal, ours = ([fit_seconds(groups[name, method]) for name in sets] for method in ("literal", "paper"))
    total = sum(row["seconds"]["fit_cpu"] for row in rows.values())
    return [
        "# The paper's algorithms taken literally",
        "",
        "The literal flow is Algorithms 1 and 2 as printed: a scikit-learn classifier is trained for each of 20 cuts "
        "of every node, all networks from the same starting weights (`random_state=42`). `TreeFlowRegressor.paper()` "
        f"is **{np.mean(literal) / np.mean(ours):.0f} times faster**, one thread each. Both have {N_TRAIN} training "
        f"rows of two covariates and one outcome inside the unit interval, and {N_VALIDATION} rows for early stopping.",
        "",
        *_tables(groups, sets),
        f"Made by `python -m benchmarks literal`: {len(rows)} runs, {total:.0f} processor seconds of fitting, commit "
        f"{', '.join(dict.fromkeys(row['commit'] for row in rows.values()))}. Every run is a row of "
        "`benchmarks/rows/literal.jsonl`.",
    ]


def _tables(groups: Groups, sets: Sequence[str]) -> list[str]:
    """Log densities, their differences, and what the fits cost."""
    densities = [
        [name, _mean_sd(metric(groups[name, "literal"], "truth_log_lik"))]
        + [_mean_sd(metric(groups[name, method], "log_lik")) for method in COLUMNS]
        for name in sets
    ]
    differences = [[COLUMNS[own], _above_literal(groups, sets, own)] for own in OURS]
    costs = [[name, *(_cost(groups[name, method]) for method in COLUMNS)] for name in sets]
    return [
        f"Mean log density of {N_TEST} fresh rows, higher is better; for our flows mean ± standard deviation over "
        f"{STARTS} fits to the same rows with different starting weights:",
        "",
        *markdown_table(["rows", "the truth itself", *COLUMNS.values()], densities),
        "",
        "Two implementations of one algorithm diverge after some trees: their optimisers end at slightly different "
        "weights, sometimes another cut is the best, and early stopping keeps another number of trees. So a "
        "difference on one set of rows means little. Mean log density of our flows minus that of the literal flow, "
        f"mean ± standard error over the {len(sets)} sets of rows:",
        "",
        *markdown_table(["flow", "minus the literal one"], differences),
        "",
        "Mean processor seconds of a fit, and trees of the flow:",
        "",
        *markdown_table(["rows", *COLUMNS.values()], costs),
        "",
    ]


def _mean_sd(values: np.ndarray) -> str:
    spread = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{spread}"


def _above_literal(groups: Groups, sets: Sequence[str], own: str) -> str:
    """Mean log density of a flow of ours less that of the literal one, over sets of rows."""
    ours, literal = ([np.mean(metric(groups[name, one], "log_lik")) for name in sets] for one in (own, "literal"))
    difference = np.subtract(ours, literal)
    error = f" ± {np.std(difference, ddof=1) / np.sqrt(len(sets)):.3f}" if len(sets) > 1 else ""
    return f"{np.mean(difference):+.3f}{error}"


def _cost(rows: Sequence[dict]) -> str:
    return f"{fit_seconds(rows):.3g} s, {np.mean(metric(rows, 'trees')):.0f} trees"
