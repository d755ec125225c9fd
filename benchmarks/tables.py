"""The experiments as data: sets, methods and splits of each table, and the paper's table it stands beside."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from benchmarks import paper_tables
from benchmarks.comparisons import Groups
from benchmarks.datasets import DATASETS
from benchmarks.generations import is_old
from benchmarks.peers import PEERS, PEERS_OF_SEVERAL
from benchmarks.rows import Run, Store, Work, latest, run_all
from benchmarks.scoring import N_SIMULATED, score_regions, score_simulation, score_table
from benchmarks.simulations import SIMULATIONS

ONE_OUTCOME = ("boston", "concrete", "energy", "power", "yacht", "protein", "kin8nm", "naval")
SEVERAL_OUTCOMES = ("energy2", "parkinsons", "temperature", "air", "skillcraft")


@dataclass(frozen=True)
class Experiment:
    """One table of results.

    `reference` maps our methods to columns of the paper's `paper` table; runs that another experiment of
    `shares` has already made are taken from there. A page that `compares_libraries` has pictures and more tables; one
    with methods `in_dots` has a picture of them among the paper's, which the first of them is compared with.
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
    compares_libraries: bool = False
    in_dots: tuple[str, ...] = ()

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
            if k < self.n_runs(dataset)
        ]

    def n_runs(self, dataset: str) -> int:
        """Runs of one method on a set."""
        return self.splits if dataset in SIMULATIONS else min(self.splits, DATASETS[dataset].n_splits)


EXPERIMENTS = {
    "univariate": Experiment(
        title="One outcome: test log-likelihood on the UCI sets",
        work=score_table,
        datasets=ONE_OUTCOME,
        methods=("paper", "treecdf", "treecdf_fast"),
        splits=20,
        paper=paper_tables.UNIVARIATE,
        reference=dict.fromkeys(("paper", "exhaustive", "box", "treecdf", "treecdf_fast"), "Ours"),
        in_dots=("paper", "treecdf"),
    ),
    "parts": Experiment(
        title="What each part of the default model adds",
        work=score_table,
        datasets=("yacht", "boston", "energy", "concrete", "energy2", "skillcraft"),
        methods=(
            "box",
            "linear_base",
            "boosted_base",
            "process_base",
            "stacked_base",
            "conditional",
            "treecdf_fast",
            "treecdf",
        ),
        splits=5,
        paper={},
        reference={},
        shares=("univariate", "multivariate"),
    ),
    "peers": Experiment(
        title="One outcome: treecdf beside other libraries",
        work=score_table,
        datasets=(*ONE_OUTCOME, "wine"),
        methods=("treecdf", "treecdf_fast", *PEERS),
        splits=5,
        paper=paper_tables.UNIVARIATE,
        reference={},
        shares=("univariate",),
        compares_libraries=True,
    ),
    "peers_multivariate": Experiment(
        title="Several outcomes: treecdf beside other libraries, 3:7 splits, z-scored",
        work=score_table,
        datasets=SEVERAL_OUTCOMES,
        methods=("treecdf", "treecdf_fast", *PEERS_OF_SEVERAL),
        splits=5,
        paper=paper_tables.MULTIVARIATE,
        reference={},
        shares=("multivariate",),
        compares_libraries=True,
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
        datasets=("kin8nm", "boston", "power", "concrete", "protein_dequantised", "yacht", "naval"),
        methods=("gamma0", "paper"),
        splits=20,
        paper=paper_tables.GAMMA,
        reference={"gamma0": "gamma=0", "paper": "gamma=0.5"},
        shares=("univariate",),
    ),
    "multivariate": Experiment(
        title="Several outcomes: test log-likelihood of z-scored outcomes, 3:7 splits",
        work=score_table,
        datasets=SEVERAL_OUTCOMES,
        methods=("paper", "rotated", "rotated_eta01", "treecdf", "treecdf_fast"),
        splits=10,
        paper=paper_tables.MULTIVARIATE,
        reference={
            "paper": "ours (eta=0.1, no rot.)",
            "box": "ours (eta=0.1, no rot.)",
            "treecdf": "ours (eta=0.1)",
            "treecdf_fast": "ours (eta=0.1)",
            "rotated": "ours (eta=0.1)",
            "rotated_eta01": "ours (eta=0.01)",
        },
        shares=("regions",),
    ),
    "regions": Experiment(
        title="Rotations: partitions of the covariates and rules of weights, eta = 0.01",
        work=score_regions,
        datasets=SEVERAL_OUTCOMES,
        methods=(
            "regions4",
            "rotated_eta01",
            "regions_hdbscan",
            "eta01_equal",
            "eta01_stacked",
            "eta01_product",
        ),
        splits=10,
        paper=paper_tables.REGIONS,
        reference={
            "regions4": "kmeans k=4",
            "rotated_eta01": "kmeans k=8",
            "regions_hdbscan": "HDBSCAN",
            "eta01_equal": "kmeans k=8",
            "eta01_stacked": "kmeans k=8",
            "eta01_product": "kmeans k=8",
        },
    ),
    "c0gamma": Experiment(
        title="Several outcomes without rotations: learning rates c0 and gamma",
        work=score_table,
        datasets=SEVERAL_OUTCOMES,
        methods=("paper", "c0_05_gamma_1", "c0_1_gamma_1"),
        splits=10,
        paper=paper_tables.C0GAMMA,
        reference={
            "paper": "c0=0.05, gamma=0.5",
            "c0_05_gamma_1": "c0=0.05, gamma=0.1",
            "c0_1_gamma_1": "c0=0.1, gamma=0.1",
        },
        shares=("multivariate",),
    ),
    "simulations": Experiment(
        title=f"Simulations: SSE on the 64 x 64 grid, {N_SIMULATED} rows",
        work=score_simulation,
        datasets=tuple(SIMULATIONS),
        methods=("paper", "rotated", "rotated_equal", "treecdf", "treecdf_fast"),
        splits=20,
        paper=paper_tables.SIMULATIONS,
        reference={
            "paper": "ours (no rotations)",
            "treecdf": "ours (12 rotations)",
            "treecdf_fast": "ours (12 rotations)",
            "rotated": "ours (12 rotations)",
            "rotated_equal": "ours (12 rotations)",
        },
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


def groups_of(name: str) -> Groups:
    """The rows of an experiment that did not fail, by set and method.

    They are in the experiment's order; sets and methods that were asked for besides come last.
    """
    experiment, found = EXPERIMENTS[name], defaultdict(list)
    for run, row in stored(name).items():
        if "error" not in row:
            found[run.dataset, run.method].append(row)
    datasets = dict.fromkeys([*experiment.datasets, *(dataset for dataset, _ in found)])
    methods = dict.fromkeys([*experiment.methods, *(method for _, method in found)])
    return {key: found[key] for key in product(datasets, methods) if key in found}


def run_experiment(
    name: str,
    runs: Sequence[Run],
    jobs: int = 1,
    retry: bool = False,
    limit: float | None = None,
    again: bool = False,
) -> None:
    """Make the runs that are not stored yet, each in at most `limit` seconds.

    `retry` makes failed ones again, `again` those of a model of ours that has changed since.
    """

    def is_done(row: dict) -> bool:
        return not (retry and "error" in row) and not (again and is_old(row))

    done = {run for run, row in stored(name).items() if is_done(row)}
    run_all([run for run in runs if run not in done], EXPERIMENTS[name].work, Store(name), jobs, limit)
