"""Scores of a fitted model on test rows."""

import time

import numpy as np
from scipy.special import logsumexp
from scipy.stats import kstest, qmc

from benchmarks.distributions import Empirical

LEVELS = (0.5, 0.9)  # of the central intervals
N_SAMPLES = 100
N_DRAWN_ROWS = 500  # of several outcomes; the first test rows
N_CELL_POINTS = 16
N_PIT_BINS = 20


def evaluate(model, x: np.ndarray, y: np.ndarray, cell: np.ndarray | None = None) -> tuple[dict, dict]:
    """Metrics and seconds of a fitted model on test rows; y is (n,) for one outcome, (n, d) for several.

    `cell` holds the edges (d,) of the cell in which an outcome was recorded, None where that does not matter. What a
    model cannot tell is left out: the likelihood where it has no density, PIT values of most joint models.
    """
    metrics, seconds = _density(model, x, y) if getattr(model, "has_density", True) else ({}, {})
    if hasattr(model, "n_trees_"):
        metrics["trees"] = int(np.sum(model.n_trees_))
    drawn = slice(None) if y.ndim == 1 else slice(N_DRAWN_ROWS)
    start = time.perf_counter()
    samples = model.sample(x[drawn], n_samples=N_SAMPLES, random_state=0)
    seconds["sample"] = (time.perf_counter() - start) * len(x) / len(samples)
    if hasattr(model, "predict_distribution"):
        distribution = model.predict_distribution(x)
    else:
        distribution = Empirical(samples, draws=True) if y.ndim == 1 else None
    if y.ndim == 1 or (hasattr(model, "mixture_") and model.mixture_.is_flow):
        pit = distribution.pit(y)
        metrics |= {"pit_ks": pit_ks(pit), "pit_counts": pit_counts(pit)}
    if y.ndim > 1:
        metrics["energy_score"] = energy_score(samples, y[drawn])
    else:
        metrics["crps"] = float(np.mean(distribution.crps(y)))
        metrics |= intervals(distribution, y)
    if cell is not None and "log_lik" in metrics:
        score = cell_log_lik if y.ndim == 1 else joint_cell_log_lik
        metrics["cell_log_lik"] = score(distribution, y, cell)
    return metrics, seconds


def _density(model, x: np.ndarray, y: np.ndarray) -> tuple[dict, dict]:
    start = time.perf_counter()
    log_prob = model.log_prob(x, y)
    seconds = {"log_prob": time.perf_counter() - start}
    return {"log_lik": float(np.mean(log_prob)), "worst_row": float(np.min(log_prob))}, seconds


def pit_counts(pit: np.ndarray) -> list[int]:
    """Counts of the PIT values (n,) or (n, d), of all outcomes together, in equal bins of (0, 1)."""
    return np.histogram(np.clip(pit, 0.0, 1.0), bins=N_PIT_BINS, range=(0.0, 1.0))[0].tolist()


def pit_ks(pit: np.ndarray) -> float:
    """Largest Kolmogorov-Smirnov distance of an outcome's PIT values (n,) or (n, d) from the uniform."""
    columns = np.asarray(pit).reshape(len(pit), -1).T
    return max(float(kstest(column, "uniform").statistic) for column in columns)


def intervals(distribution, y: np.ndarray) -> dict[str, float]:
    """Coverage and mean width of the central intervals of one outcome."""
    tails = [(1 - level) / 2 for level in LEVELS]
    ends = distribution.icdf(np.array(tails + [1 - tail for tail in tails]))
    metrics = {}
    for k, level in enumerate(LEVELS):
        lower, upper = ends[:, k], ends[:, k + len(LEVELS)]
        metrics[f"coverage_{100 * level:.0f}"] = float(np.mean((lower <= y) & (y <= upper)))
        metrics[f"width_{100 * level:.0f}"] = float(np.mean(upper - lower))
    return metrics


def cell_log_lik(distribution, y: np.ndarray, cell: np.ndarray) -> float:
    """Mean log of the probability of the recording cell over its width: no spike can inflate it."""
    ends = distribution.cdf(np.column_stack([y - cell / 2, y + cell / 2]))
    # A difference of two CDF values has no digits below the machine epsilon.
    mass = np.maximum(ends[:, 1] - ends[:, 0], np.finfo(float).eps)
    return float(np.mean(np.log(mass / cell)))


def joint_cell_log_lik(distribution, y: np.ndarray, cell: np.ndarray) -> float:
    """The same for y (n, d): probability over volume is the mean density at quasi-random points of the cell."""
    d = y.shape[1]
    points = qmc.Sobol(d, rng=np.random.default_rng(0)).random(N_CELL_POINTS) - 0.5
    log_density = distribution.logpdf(y[:, None, :] + points * cell)
    return float(np.mean(logsumexp(log_density, axis=1) - np.log(N_CELL_POINTS)))


def energy_score(samples: np.ndarray, y: np.ndarray, chunk: int = 64) -> float:
    """Mean of E|Y - y| - E|Y - Y'| / 2 over the rows, from samples (n, m, d); lower is better."""
    m = samples.shape[1]
    total = 0.0
    for start in range(0, len(y), chunk):
        some, target = samples[start : start + chunk], y[start : start + chunk]
        to_outcome = np.linalg.norm(some - target[:, None, :], axis=2).mean(axis=1)
        between = np.linalg.norm(some[:, :, None, :] - some[:, None, :, :], axis=3).sum(axis=(1, 2))
        total += float(np.sum(to_outcome - between / (2 * m * (m - 1))))
    return total / len(y)
