"""What a fitted model says of its own moments, marginals and cells, against draws of it."""

import numpy as np

from benchmarks.honest.fitter import Fitter, Generator, Metrics
from benchmarks.honest.measures import crps_of_draws, farthest
from benchmarks.honest.truths import JOINT, TRUTHS

DRAWS = 1_000_000  # at each row
ROWS = 2
GRID = 0.5  # step to which outcomes are rounded


def try_moments(fit: Fitter, rng: Generator, n: int) -> Metrics:
    """Moments and marginals of two outcomes against draws of the model; cells of a grid against a sum of one."""
    source = JOINT["skewed"]
    x, y = source.rows(n, rng)
    x_new, _ = source.rows(ROWS, rng)
    distribution = fit(x, y).predict_distribution(x_new)
    draws = distribution.sample(DRAWS, random_state=0)
    ratio = distribution.std() / draws.std(axis=1)
    ends = np.quantile(draws, [0.005, 0.995], axis=1)  # (2, rows, outcomes)
    low = np.quantile(draws, 1e-4, axis=1)
    marginals = [distribution.marginal(j) for j in range(2)]
    widths = np.column_stack([np.subtract(*marginal.interval(0.99)[::-1]) for marginal in marginals])
    tails = np.column_stack([marginal.cdf(low[:, j]) for j, marginal in enumerate(marginals)])
    rounded = GRID * np.round(y / GRID)
    return {
        "std_ratio": float(np.mean(ratio)),
        "std_error": farthest(ratio),
        "mean_error": float(np.max(np.abs(distribution.mean() - draws.mean(axis=1)) / draws.std(axis=1))),
        "marginal_99_ratio": float(np.mean(widths / (ends[1] - ends[0]))),
        "marginal_99_error": farthest(widths / (ends[1] - ends[0])),
        "marginal_tail": float(np.mean(tails)) / 1e-4,
        "cells_error": farthest(_sum_of_cells(fit(x, rounded, {"resolution": GRID}), x_new)),
    }


def _sum_of_cells(model, x: np.ndarray) -> np.ndarray:
    """Sum (n,) of the probabilities of all cells of two outcomes' grid, out to 20 on each side."""
    ticks = np.arange(-20.0, 20.0 + GRID / 2, GRID)
    cells = np.stack(np.meshgrid(ticks, ticks, indexing="ij"), axis=-1).reshape(1, -1, 2)
    log_density = model.predict_distribution(x).logpdf(np.repeat(cells, len(x), axis=0))
    return np.exp(log_density).sum(axis=1) * GRID**2


def try_grid(fit: Fitter, rng: Generator, n: int) -> Metrics:
    """Moments and CRPS of one rounded outcome against draws of the model, which are on the grid."""
    source = TRUTHS["skewed"]
    x, y = source.rows(n, rng)
    x_new, y_new = source.rows(ROWS, rng)
    model = fit(x, GRID * np.round(y / GRID), {"resolution": GRID})
    distribution = model.predict_distribution(x_new)
    draws = distribution.sample(DRAWS, random_state=0)
    truth = GRID * np.round(y_new / GRID)
    spread = draws.std(axis=1)
    return {
        "std_error": farthest(distribution.std() / spread),
        "mean_error": float(np.max(np.abs(distribution.mean() - draws.mean(axis=1)) / spread)),
        "crps_error": farthest(distribution.crps(truth) / crps_of_draws(draws, truth)),
    }
