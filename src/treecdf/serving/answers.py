"""Answers computed from distributions, as arrays whose last axis is the d outcomes."""

from __future__ import annotations

from typing import Any

import numpy as np

from treecdf._common.typing import Array
from treecdf.flows.distribution import ConditionalDistribution
from treecdf.serving.bodies import read_number, read_whole
from treecdf.serving.limits import Limits, Refusal, shown

DEFAULT_LEVELS = (0.05, 0.5, 0.95)
DEFAULT_LEVEL = 0.9
DEFAULT_DRAWS = 100
_LARGEST_SEED = 2**63 - 1


def mean_and_std(distribution: ConditionalDistribution) -> tuple[Array, Array]:
    """Means and standard deviations (n, d)."""
    n = len(distribution)
    return distribution.mean().reshape(n, -1), distribution.std().reshape(n, -1)


def quantiles(distribution: ConditionalDistribution, levels: Array) -> Array:
    """Quantiles (n, m, d) at levels (m,), of each outcome by itself."""
    return np.stack([own.icdf(levels) for own in _marginals(distribution)], axis=-1)


def intervals(distribution: ConditionalDistribution, level: float) -> Array:
    """Ends (n, 2, d) of the central intervals of each outcome."""
    return np.stack([np.column_stack(own.interval(level)) for own in _marginals(distribution)], axis=-1)


def cdf(distribution: ConditionalDistribution, points: Array) -> Array:
    """P(Y <= y), (n, m, d), of each outcome by itself at points (n, m, d)."""
    return np.stack([own.cdf(points[..., j]) for j, own in enumerate(_marginals(distribution))], axis=-1)


def log_density(distribution: ConditionalDistribution, points: Array) -> Array:
    """Log densities (n, m) of all outcomes together at points (n, m, d)."""
    return distribution.logpdf(points[..., 0] if distribution.n_outcomes == 1 else points)


def samples(distribution: ConditionalDistribution, n_draws: int, seed: int | None) -> Array:
    """Draws (n, k, d)."""
    return distribution.sample(n_draws, seed).reshape(len(distribution), n_draws, -1)


def _marginals(distribution: ConditionalDistribution) -> list[ConditionalDistribution]:
    return [distribution.marginal(j) for j in range(distribution.n_outcomes)]


# What a request says about them


def read_levels(given: Any, limits: Limits) -> Array:
    """Levels (m,) of quantiles."""
    if not isinstance(given, list):
        raise Refusal(f"levels: expected a list of numbers between 0 and 1; got {shown(given)}")
    if not 1 <= len(given) <= limits.levels:
        raise Refusal(f"levels: expected 1 to {limits.levels}; got {len(given)}", 413 if given else 400)
    return np.array([read_level(level, "levels") for level in given])


def read_level(given: Any, where: str = "level") -> float:
    """A probability strictly between 0 and 1."""
    level = read_number(given, where)
    if not 0 < level < 1:
        raise Refusal(f"{where}: expected a number between 0 and 1; got {shown(given)}")
    return level


def read_draws(given: Any, limits: Limits) -> int:
    """The number of draws at each row."""
    if type(given) is int and given > limits.draws:
        raise Refusal(f"draws: expected at most {limits.draws}; got {shown(given)}", 413)
    return read_whole(given, "draws", 1, limits.draws)


def read_seed(given: Any) -> int | None:
    """The seed of the draws; None: different draws every time."""
    return None if given is None else read_whole(given, "seed", 0, _LARGEST_SEED)


def check_size(limits: Limits, n_values: int) -> None:
    """Refuse an answer of too many numbers before it is computed."""
    if n_values > limits.values:
        raise Refusal(f"the answer would hold {n_values} numbers, and at most {limits.values} are allowed", 413)
