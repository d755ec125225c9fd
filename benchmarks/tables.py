"""The experiments as data: sets, methods and splits of each table, and the paper's table it stands beside."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from benchmarks import paper_tables
from benchmarks.datasets import DATASETS, prepared
from benchmarks.machine import peak_memory_mib, provenance, reset_peak_memory
from benchmarks.methods import METHODS, settings
from benchmarks.metrics import evaluate
from benchmarks.rows import Run, Store, Work, latest, run_all
from benchmarks.simulations import SIMULATIONS, sse

N_SIMULATED = 2000


def score_table(run: Run) -> dict:
    """Fit one method on one split of a UCI set and score it on the test rows."""
    x_train, y_train, x_test, y_test = prepared(run.dataset, run.split)
    model, report = _fitted(run, x_train, y_train)
    record = DATASETS[run.dataset]
    step = record.resolution[0] if record.d == 1 else None
    report["metrics"], seconds = evaluate(model, x_test, y_test, step)
    report["seconds"] |= seconds
    return report


def score_simulation(run: Run) -> dict:
    """Fit one method on a simulated set whose rows the split number seeds; the score is the SSE."""
    x, y = SIMULATIONS[run.dataset].sample(N_SIMULATED, np.random.default_rng(run.split))
    model, report = _fitted(run, x, y)
    report["metrics"] = {
        "sse": sse(model.log_prob, run.dataset),
        "sse_exact": sse(model.log_prob, run.dataset, exact=True),
        "trees": int(np.sum(model.n_trees_)),
    }
    return report


def _fitted(run: Run, x: np.ndarray, y: np.ndarray):
    _warm_up(run.method, y.ndim)
    model = METHODS[run.method](run.seed)
    reset_peak_memory()
    start = time.perf_counter()
    model.fit(x, y)
    seconds = time.perf_counter() - start
    report = {
        "settings": settings(model),
        "seconds": {"fit": seconds},
        "peak_mib": peak_memory_mib(),
        "n_train": len(x),
    }
    return model, report | provenance()


@cache
def _warm_up(method: str, y_ndim: int) -> None:
    """Compile or load every kernel of a method once a process, so that no run is charged for it."""
    x, noise = np.random.default_rng(0).normal(size=(2, 60, 2))
    y = x + noise if y_ndim == 2 else x[:, 0] + noise[:, 0]
    evaluate(METHODS[method](0).fit(x, y), x, y, 1.0)


@dataclass(frozen=True)
class Experiment:
    """One table of results.

    `reference` maps our methods to columns of the paper's `paper` table; runs that another experiment of
    `shares` has already made are taken from there.
    """

    title: str
    work: Work
    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    splits: int
    paper: paper_tables.Table
    reference: dict[str, str]
    metric: str = "log_lik"
    higher_is_better: bool = True
    shares: tuple[str, ...] = ()

    def runs(
        self,
        splits: int | None = None,
        methods: Sequence[str] | None = None,
        datasets: Sequence[str] | None = None,
    ) -> list[Run]:
        """The runs of the table, split by split, so that a stopped benchmark has something of every set."""
        return [
            Run(dataset, k, method, seed=k)
            for k in range(splits or self.splits)
            for dataset in datasets or self.datasets
            for method in methods or self.methods
            if dataset in SIMULATIONS or k < DATASETS[dataset].n_splits
        ]


EXPERIMENTS = {
    "univariate": Experiment(
        title="One outcome: test log-likelihood on the UCI sets",
        work=score_table,
        datasets=("boston", "concrete", "energy", "power", "yacht", "protein", "kin8nm", "naval"),
        methods=("paper", "default"),
        splits=20,
        paper=paper_tables.UNIVARIATE,
        reference={"paper": "Ours", "default": "Ours"},
    ),
    "ablation": Experiment(
        title="Ablation: split search and node classifiers, depth 6",
        work=score_table,
        datasets=("boston", "concrete", "energy", "power", "yacht"),
        methods=("full", "middle", "lr", "mlp"),
        splits=20,
        paper=paper_tables.ABLATION,
        reference={"full": "full", "middle": "middle", "lr": "LR", "mlp": "MLP"},
    ),
    "gamma": Experiment(
        title="Constant (gamma = 0) against scale-dependent rates (gamma = 0.5)",
        work=score_table,
        datasets=("kin8nm", "boston", "power", "concrete", "protein", "yacht", "naval"),
        methods=("gamma0", "paper"),
        splits=20,
        paper=paper_tables.GAMMA,
        reference={"gamma0": "gamma=0", "paper": "gamma=0.5"},
        shares=("univariate",),
    ),
    "multivariate": Experiment(
        title="Several outcomes: test log-likelihood of z-scored outcomes, 3:7 splits",
        work=score_table,
        datasets=("energy2", "parkinsons", "temperature", "air", "skillcraft"),
        methods=("paper", "default"),
        splits=10,
        paper=paper_tables.MULTIVARIATE,
        reference={"paper": "ours (eta=0.1, no rot.)", "default": "ours (eta=0.1, no rot.)"},
    ),
    "simulations": Experiment(
        title=f"Simulations: SSE on the 64 x 64 grid, {N_SIMULATED} rows",
        work=score_simulation,
        datasets=tuple(SIMULATIONS),
        methods=("paper", "default"),
        splits=20,
        paper=paper_tables.SIMULATIONS,
        reference={"paper": "ours (no rotations)", "default": "ours (no rotations)"},
        metric="sse",
        higher_is_better=False,
    ),
}


def stored(name: str) -> dict[Run, dict]:
    """The latest row of every run of an experiment, its shared ones included."""
    experiment = EXPERIMENTS[name]
    wanted = set(experiment.runs())
    shared = latest(row for other in experiment.shares for row in Store(other).read())
    return {run: row for run, row in shared.items() if run in wanted} | latest(Store(name).read())


def run_experiment(name: str, runs: Sequence[Run], jobs: int = 1, retry: bool = False) -> None:
    """Make the runs that are not stored yet; `retry` makes failed ones again."""
    done = {run for run, row in stored(name).items() if not (retry and "error" in row)}
    run_all([run for run in runs if run not in done], EXPERIMENTS[name].work, Store(name), jobs)
