"""Rules for the weights of a mixture's members: log weights (regions + 1, members), the last row for unknown regions.

They are computed from log densities log_prob (n, members) of rows with weights and regions (n,).
"""

from __future__ import annotations

import warnings

import numpy as np
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning

from treecdf._common.typing import Array, Ints

_PRIOR_ROWS = 20.0  # rows the overall weights count for in the stacked weights of a region
_N_STEPS = 1000  # steps of expectation maximisation at most
_CONVERGED = 1e-8  # change of the weights at which it ends
_TOLERATED = 1e-3  # nats a row below the maximum that are no reason for a warning


def equal_weights(n_members: int) -> Array:
    """Log weights (1, members), the same for every member."""
    return np.full((1, n_members), -np.log(n_members))


def likelihood_weights(log_prob: Array, weight: Array, region: Ints, n_regions: int) -> Array:
    """The rule as the paper prints it: in proportion to the product of the likelihoods of a region's training rows."""
    sums, _ = _sums_by_region(log_prob, weight, region, n_regions)
    return sums - logsumexp(sums, axis=1, keepdims=True)


def mean_likelihood_weights(log_prob: Array, weight: Array, region: Ints, n_regions: int) -> Array:
    """Weights in proportion to the geometric mean of the likelihoods of a region's training rows.

    The product over hundreds of rows would give one flow all the weight. The paper's table of partitions shows hardly
    any effect of the weights, which fits the mean and not the product (ADR 22).
    """
    sums, total = _sums_by_region(log_prob, weight, region, n_regions)
    means = sums / total[:, None]
    return means - logsumexp(means, axis=1, keepdims=True)


def _sums_by_region(log_prob: Array, weight: Array, region: Ints, n_regions: int) -> tuple[Array, Array]:
    """Weighted sums (regions + 1, members) of log densities, and the weight (regions + 1,); of all rows where none is.

    A row's log densities are those relative to its best member.
    """
    log_prob = log_prob - log_prob.max(axis=1, keepdims=True)  # only ratios count, and large sums lose digits
    sums = np.zeros((n_regions + 1, log_prob.shape[1]))
    np.add.at(sums, region, weight[:, None] * log_prob)
    total: Array = np.bincount(region, weight, minlength=n_regions + 1).astype(np.float64)
    empty = total == 0
    empty[-1] = True
    sums[empty], total[empty] = weight @ log_prob, weight.sum()
    return sums, total


# The rules that look at training rows, by the names of TreeFlowRegressor's `weights`.
TRAINING_RULES = {"likelihood": likelihood_weights, "mean_likelihood": mean_likelihood_weights}


def stacked_weights(log_prob: Array, weight: Array, region: Ints, n_regions: int) -> Array:
    """Weights with the highest likelihood of validation rows; in small regions shrunk towards the overall weights."""
    n_members = log_prob.shape[1]
    overall = maximise(log_prob, weight, np.ones(n_members))
    weights = np.tile(overall, (n_regions + 1, 1))
    for k in np.unique(region[region < n_regions]):
        here = region == k
        weights[k] = maximise(log_prob[here], weight[here], _PRIOR_ROWS * overall)
    with np.errstate(divide="ignore"):
        return np.log(weights)


def maximise(log_prob: Array, weight: Array, prior: Array) -> Array:
    """Mixture weights (members,) of the highest likelihood, by expectation maximisation.

    `prior` (members,) counts as rows already given to each member. The likelihood is concave in the weights, so its
    slopes bound how far it is from its maximum: a fit that ends at _N_STEPS and is too far off warns.
    """
    density = np.exp(log_prob - log_prob.max(axis=1, keepdims=True))
    weights = prior / prior.sum()
    for _ in range(_N_STEPS):
        given = (weight / (density @ weights)) @ density * weights + prior
        last, weights = weights, given / given.sum()
        if np.abs(weights - last).max() < _CONVERGED:
            return weights
    off = float((given / last).max() - given.sum()) / weight.sum()
    if off > _TOLERATED:
        warnings.warn(
            f"Weights of a mixture did not converge in {_N_STEPS} steps: the log-likelihood may be {off:.1g} a row "
            "below its maximum.",
            ConvergenceWarning,
            stacklevel=2,
        )
    return weights
