"""`python -m benchmarks microbiome`: synthetic stool samples of the ages of real ones, as in the paper's section 3.4.

Two runs a method: split 0 learns from all samples and draws one for each age, as the paper does; split 1 leaves out
infants, a fold at a time, and draws samples of the left-out ages. Page and picture are made of what is stored of a run.
"""

import gzip
import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.machine import ROOT, provenance
from benchmarks.rows import Run, Store, latest, run_all

NAME = "microbiome"
FILE = "diabimmune/otu.csv.gz"
SOURCE = "DIABIMMUNE T1D cohort, 16S, via github.com/MaStatLab/LTN_analysis (commit 7997ced)"
SHA256 = "19c2bc6f02388360d8e7b7e2fdeb45eac012d2a31be36bc18dae53c4984ab09a"
N_TAXA = 100
ALL, HELD_OUT = 0, 1  # splits
N_FOLDS = 5
N_PERMUTATIONS = 199
N_AXES = 4
AGE_BINS = 6
SMALLEST = 1e-12  # means and variances are compared from here on


@dataclass(frozen=True)
class Samples:
    """Ages (n, 1) in days, compositions (n, taxa), and whose they are (n,)."""

    age: np.ndarray
    y: np.ndarray
    infant: np.ndarray


def load() -> Samples:
    """The 777 samples, each divided by the total of its 100 taxa."""
    given = os.environ.get("TREECDF_DATA")
    path = (Path(given) if given else ROOT.parent / "shared" / "data") / FILE
    if not path.is_file():
        raise FileNotFoundError(f"no data file {FILE} in the directory that TREECDF_DATA names. Source: {SOURCE}")
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256:
        raise ValueError(f"{FILE} has sha256 {found}; expected {SHA256}")
    lines = [line.split(",") for line in gzip.decompress(content).decode().splitlines()[1:]]
    numbers = np.array([line[2 : 3 + N_TAXA] for line in lines], dtype=np.float64)
    y = numbers[:, 1:]
    return Samples(numbers[:, :1], y / y.sum(axis=1, keepdims=True), np.array([line[1] for line in lines]))


class PaperWay:
    """The paper's flow of all taxa at once, with what the paper leaves open filled in: zeros, and the way to the cube.

    A density of exact zeros grows without bound. So zeros are spread evenly over the values from 0 to the taxon's
    smallest abundance above 0 before training, and draws below that abundance are zeros again; then draws are divided
    by their sums. The outcomes get into the cube by a box from 0 to a little above each taxon's largest abundance, or
    by a Student t of each taxon.
    """

    def __init__(self, seed: int, base: str = "box"):
        self.seed, self.base = seed, base

    def fit(self, age: np.ndarray, y: np.ndarray, groups: np.ndarray) -> "PaperWay":
        """Train on all taxa; whose the samples are is not used."""
        from treecdf import MLP, Logistic, Stage, TreeFlowRegressor

        self.smallest = np.where(y > 0, y, np.inf).min(axis=0)
        stages = [Stage(Logistic(), max_depth=4), Stage(MLP((4, 4), alpha=1e-4, max_iter=1000), max_depth=4)]
        bounds = [(0, None)] * y.shape[1] if self.base == "box" else None
        settings = {"base": self.base, "bounds": bounds, "stages": stages, "random_state": self.seed}
        model = TreeFlowRegressor.paper(c0=0.1, gamma=0.5, eta=0.1, **settings)
        self.model = model.fit(age, spread_zeros(y, self.smallest, self.seed))
        return self

    def sample(self, age: np.ndarray, n_samples: int, random_state: int) -> np.ndarray:
        """Draws (n, n_samples, taxa) that sum to one, with zeros."""
        drawn = self.model.sample(age, n_samples, random_state)
        drawn = np.where(drawn < self.smallest, 0.0, drawn)
        return drawn / drawn.sum(axis=-1, keepdims=True)


def spread_zeros(y: np.ndarray, smallest: np.ndarray, seed: int) -> np.ndarray:
    """Abundances (n, taxa) with zeros drawn evenly from 0 to each taxon's smallest abundance above 0."""
    u = 1 - np.random.default_rng(seed).random(y.shape)
    return np.where(y > 0, y, u * smallest)


def ours(seed: int):
    """CompositionalFlow as it comes."""
    from treecdf import CompositionalFlow

    return CompositionalFlow(random_state=seed)


METHODS: dict[str, Callable] = {
    "treecdf": ours,
    "paper": PaperWay,
    "paper_student": partial(PaperWay, base="student"),
}
LABELS = {
    "treecdf": "CompositionalFlow",
    "paper": "the paper's flow, box",
    "paper_student": "the paper's flow, Student t",
}


# Runs


def run_study(methods: list[str], jobs: int = 1, retry: bool = False) -> None:
    """Run what has no row yet."""
    rows = stored()
    wanted = [Run("diabimmune", split, method, 0) for method in methods for split in (ALL, HELD_OUT)]
    runs = [run for run in wanted if run not in rows or (retry and "error" in rows[run])]
    run_all(runs, work, Store(NAME), jobs)


def stored() -> dict[Run, dict]:
    """The rows, by their keys."""
    return latest(Store(NAME).read())


def work(run: Run) -> dict:
    """Metrics, details and seconds of a run."""
    real = load()
    start = time.perf_counter(), time.process_time()
    if run.split == ALL:
        test = [np.arange(len(real.y))]
    else:
        test = infant_folds(real.infant, run.seed)
    drawn, seconds, scores = draw(METHODS[run.method], real, test, run)
    metrics, details = compare(real, drawn)
    if scores:
        metrics["log_prob"] = float(np.mean(scores))
    return {
        "metrics": metrics,
        "seconds": seconds | {"all": time.perf_counter() - start[0], "all_cpu": time.process_time() - start[1]},
        "details": details,
    } | provenance()


def infant_folds(infant: np.ndarray, seed: int) -> list[np.ndarray]:
    """Rows of each fold; an infant's samples are all in one."""
    names, number = np.unique(infant, return_inverse=True)
    fold = np.random.default_rng(seed).permutation(len(names)) % N_FOLDS
    return [np.flatnonzero(fold[number] == f) for f in range(N_FOLDS)]


def draw(method: Callable, real: Samples, test: list[np.ndarray], run: Run) -> tuple[np.ndarray, dict, list[float]]:
    """One synthetic sample (n, taxa) for every real one; mean seconds of a fit; log densities of left-out samples."""
    drawn, scores, clock, cpu = np.empty(real.y.shape), [], [], []
    for f, rows in enumerate(test):
        train = np.arange(len(real.y)) if run.split == ALL else np.setdiff1d(np.arange(len(real.y)), rows)
        assert run.split == ALL or not set(real.infant[train]) & set(real.infant[rows])
        begin = time.perf_counter(), time.process_time()
        model = method(run.seed).fit(real.age[train], real.y[train], groups=real.infant[train])
        clock.append(time.perf_counter() - begin[0])
        cpu.append(time.process_time() - begin[1])
        drawn[rows] = model.sample(real.age[rows], 1, random_state=f)[:, 0]
        if run.split == HELD_OUT and hasattr(model, "log_prob"):
            scores += list(model.log_prob(real.age[rows], real.y[rows]))
    return drawn, {"fit": float(np.mean(clock)), "fit_cpu": float(np.mean(cpu))}, scores


# Comparing real with synthetic


def compare(real: Samples, drawn: np.ndarray) -> tuple[dict, dict]:
    """Figures, and what they and the picture are made of."""
    zeros = np.mean(real.y == 0, axis=0), np.mean(drawn == 0, axis=0)
    distances = bray_curtis(np.vstack([real.y, drawn]))
    by_age = {"shannon": _by_age(real, drawn, shannon), "richness": _by_age(real, drawn, richness)}
    metrics = {
        "zeros_off": float(np.abs(zeros[0] - zeros[1]).mean()),
        "zeros_off_most": float(np.abs(zeros[0] - zeros[1]).max()),
        "mean_correlation": _log_correlation(real.y.mean(axis=0), drawn.mean(axis=0)),
        "variance_correlation": _log_correlation(real.y.var(axis=0), drawn.var(axis=0)),
        "shannon_off": _mean_gap(by_age["shannon"]),
        "richness_off": _mean_gap(by_age["richness"]),
        "auc": two_sample_auc(real, drawn),
    } | permutation_tests(distances, len(drawn))
    details = {
        "zeros": [part.tolist() for part in zeros],
        "mean": [part.mean(axis=0).tolist() for part in (real.y, drawn)],
        "variance": [part.var(axis=0).tolist() for part in (real.y, drawn)],
        "by_age": by_age,
    }
    return metrics, details | principal_coordinates(distances, real.age)


def shannon(y: np.ndarray) -> np.ndarray:
    """Shannon diversity (n,) in nats."""
    return -np.where(y > 0, y * np.log(np.maximum(y, 1e-300)), 0.0).sum(axis=1)


def richness(y: np.ndarray) -> np.ndarray:
    """Number (n,) of taxa present."""
    return (y > 0).sum(axis=1)


def _by_age(real: Samples, drawn: np.ndarray, index: Callable) -> list[list[float]]:
    """For bins of age with equally many samples: median age, mean and deviation of real and of synthetic samples."""
    lines = []
    for rows in np.array_split(np.argsort(real.age[:, 0], kind="stable"), AGE_BINS):
        parts = index(real.y[rows]), index(drawn[rows])
        values = [float(f(part)) for part in parts for f in (np.mean, np.std)]
        lines.append([float(np.median(real.age[rows])), *values])
    return lines


def _mean_gap(lines: list[list[float]]) -> float:
    return float(np.mean([abs(line[1] - line[3]) for line in lines]))


def _log_correlation(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.corrcoef(np.log(np.maximum(a, SMALLEST)), np.log(np.maximum(b, SMALLEST)))[0, 1])


def bray_curtis(y: np.ndarray) -> np.ndarray:
    """Distances (n, n) of compositions."""
    from scipy.spatial.distance import pdist, squareform

    return squareform(pdist(y, "braycurtis"))


def principal_coordinates(distances: np.ndarray, age: np.ndarray) -> dict:
    """The first axes (2 n, 4), older samples to the right and above, and the shares of variance they have."""
    n = len(distances)
    squares = -0.5 * distances**2
    middle = squares - squares.mean(axis=0) - squares.mean(axis=1, keepdims=True) + squares.mean()
    from scipy.linalg import eigh

    values, vectors = eigh(middle, subset_by_index=[n - N_AXES, n - 1])
    points = (vectors * np.sqrt(np.maximum(values, 0.0)))[:, ::-1]
    points *= np.sign(np.vstack([age, age]).T @ points - age.mean() * points.sum(axis=0))
    share = values[::-1] / np.trace(middle)
    return {"points": np.round(points, 4).tolist(), "share": share.tolist(), "age": age[:, 0].tolist()}


def permutation_tests(distances: np.ndarray, n: int) -> dict[str, float]:
    """PERMANOVA and PERMDISP of real against synthetic."""
    from skbio import DistanceMatrix
    from skbio.stats.distance import permanova, permdisp

    matrix = DistanceMatrix(distances)
    label = ["real"] * n + ["synthetic"] * n
    center = permanova(matrix, label, permutations=N_PERMUTATIONS, seed=0)
    spread = permdisp(matrix, label, permutations=N_PERMUTATIONS, seed=0, method="fsvd", dimensions=10)
    f = float(center["test statistic"])
    return {
        "permanova_f": f,
        "permanova_r2": f / (f + 2 * n - 2),
        "permanova_p": float(center["p-value"]),
        "permdisp_f": float(spread["test statistic"]),
        "permdisp_p": float(spread["p-value"]),
    }


def two_sample_auc(real: Samples, drawn: np.ndarray) -> float:
    """How well a random forest tells real from synthetic samples, ages and compositions given; 0.5 is not at all.

    It too is judged on infants it was not trained on, and on samples drawn for their ages.
    """
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import GroupKFold, cross_val_predict

    both = np.vstack([np.hstack([real.age, real.y]), np.hstack([real.age, drawn])])
    label = np.repeat([1, 0], len(drawn))
    forest = RandomForestClassifier(300, min_samples_leaf=2, random_state=0)
    infants = np.concatenate([real.infant, real.infant])
    chance = cross_val_predict(forest, both, label, groups=infants, cv=GroupKFold(5), method="predict_proba")
    return float(roc_auc_score(label, chance[:, 1]))
