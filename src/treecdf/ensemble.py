"""Many flows, one distribution: members trained side by side, then mixed with weights that depend on x."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.special import logsumexp
from threadpoolctl import ThreadpoolController, threadpool_limits

from treecdf.boosting import History, Recipe, fit_flow
from treecdf.flow import TreeFlow
from treecdf.regions import Regions
from treecdf.settings import is_int
from treecdf.table import Table

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_PRIOR_ROWS = 20.0  # rows the overall weights count for in the stacked weights of a region


@dataclass(frozen=True)
class Mixture:
    """p(y | x) = sum over members j of w_j(x) p_j(y | x), the weights constant in each region of x."""

    members: tuple[TreeFlow, ...]
    log_weights: Array  # (regions + 1, members); the last row is for regions that fit did not see
    regions: Regions | None = None

    @property
    def n_outcomes(self) -> int:
        """d, the number of outcomes."""
        return self.members[0].n_outcomes

    def log_weights_at(self, x: Array) -> Array:
        """Log weights (n, members) at covariates x (n, q)."""
        if self.regions is None:
            return np.repeat(self.log_weights[-1:], len(x), axis=0)
        return self.log_weights[self.regions(x)]

    def log_prob(self, y: Array, x: Array, n_threads: int = 1) -> Array:
        """Log densities (n, m) of outcomes y (n, m, d), m at each row of x."""
        total = np.full(y.shape[:2], -np.inf)
        for log_weight, member in zip(self.log_weights_at(x).T, self.members, strict=True):
            log_prob = member.forward_and_log_det(y, x, n_threads)[1]
            np.logaddexp(total, log_weight[:, None] + log_prob, out=total)
        return total

    def inverse(self, u: Array, chosen: Array, x: Array, n_threads: int = 1) -> Array:
        """Outcomes (n, m, d) of points u of the cube, each taken back by the member that chosen (n, m) picks.

        `chosen` is uniform on (0, 1): it picks a member with the probability of its weight.
        """
        if len(self.members) == 1:
            return self.members[0].inverse(u, x, n_threads)
        steps = np.cumsum(np.exp(self.log_weights_at(x)), axis=1)
        number = np.zeros(chosen.shape, np.int64)
        for step in steps.T[:-1]:  # the last may be a little below one, and every draw needs a member
            number += chosen >= step[:, None]
        y = np.empty_like(u)
        for j, member in enumerate(self.members):
            rows, columns = np.nonzero(number == j)
            y[rows, columns] = member.inverse(u[rows, columns][:, None, :], x[rows], n_threads)[:, 0, :]
        return y


def has_no_rotations(rotations: Any) -> bool:
    """Whether the parameter is None or 0."""
    return rotations is None or (is_int(rotations) and rotations == 0)


def rotation_matrices(rotations: Any, n_outcomes: int) -> list[Array | None]:
    """The members' rotations: None for outcomes as they are.

    A number J means J equally spaced angles in every coordinate plane; a quarter turn maps axes to axes, so they
    divide [0, pi / 2), and the angle 0, which all planes share, is taken once.
    """
    if has_no_rotations(rotations):
        return [None]
    if is_int(rotations):
        matrices: list[Array | None] = [np.eye(n_outcomes)]
        angles = np.pi / 2 * np.arange(1, rotations) / rotations
        for j in range(n_outcomes):
            for k in range(j + 1, n_outcomes):
                matrices += [_plane_rotation(n_outcomes, j, k, angle) for angle in angles]
        return matrices
    return [_read_rotation(matrix, n_outcomes) for matrix in rotations]


def _plane_rotation(d: int, j: int, k: int, angle: float) -> Array:
    matrix = np.eye(d)
    matrix[j, j] = matrix[k, k] = np.cos(angle)
    matrix[j, k], matrix[k, j] = np.sin(angle), -np.sin(angle)
    return matrix


def _read_rotation(matrix: Any, d: int) -> Array:
    values = np.array(matrix, dtype=np.float64)
    is_small = values.shape == (d, d) and bool((np.abs(values) < 2).all())
    if not is_small or not np.allclose(values @ values.T, np.eye(d), rtol=0, atol=1e-8):
        raise ValueError(f"Expected rotations to be orthogonal matrices of shape ({d}, {d}); got {matrix!r}.")
    return values


# Training


def validation_folds(n: int, fraction: float, n_members: int, rng: np.random.Generator) -> list[Ints]:
    """Rows each member sets aside: every row is set aside about equally often."""
    count = min(max(1, round(fraction * n)), n - 1)
    order = rng.permutation(n)
    return [order[(j * count + np.arange(count)) % n] for j in range(n_members)]


def fit_members(
    recipes: Sequence[Recipe],
    table: Table,
    validation: Sequence[Table | Ints | None],
    rng: np.random.Generator,
    n_jobs: int | None,
    n_threads: int,
    report: Callable[[int, History, float], None],
) -> tuple[tuple[TreeFlow, ...], list[History]]:
    """Train one flow for each recipe; `validation` is a table, or the rows of `table` a member sets aside.

    A single flow gets all threads, several are jobs of one thread each; the seed of each is drawn beforehand, so
    neither changes the result. `report` is told the number of the member, its history and its validation score.
    """
    if len(recipes) == 1:
        flow, history = _fit_member(recipes[0], table, validation[0], rng, n_threads, partial(report, 0))
        return (flow,), [history]
    rngs = [np.random.default_rng(rng.integers(2**63, size=4)) for _ in recipes]
    jobs = (delayed(_fit_member)(r, table, v, g) for r, v, g in zip(recipes, validation, rngs, strict=True))
    flows, histories = [], []
    for number, (flow, history) in enumerate(Parallel(n_jobs, return_as="generator")(jobs)):
        report(number, history, max(history.validation, default=np.nan))
        flows.append(flow)
        histories.append(history)
    return tuple(flows), histories


def _fit_member(
    recipe: Recipe,
    table: Table,
    validation: Table | Ints | None,
    rng: np.random.Generator,
    n_threads: int = 1,
    report: Callable[[History, float], None] = lambda history, score: None,
) -> tuple[TreeFlow, History]:
    train, validation = split(table, validation)
    with _pool(n_threads) as pool, _BLAS:
        return fit_flow(recipe, train, validation, rng, pool, report)


def split(table: Table, validation: Table | Ints | None) -> tuple[Table, Table | None]:
    """Training and validation rows."""
    if validation is None or isinstance(validation, Table):
        return table, validation
    aside = np.zeros(len(table), bool)
    aside[validation] = True
    return table.take(~aside), table.take(aside)


class _OneThread:
    """Linear algebra on one thread while any fit is running, here or in another thread of the process."""

    def __init__(self) -> None:
        self._lock, self._users = threading.Lock(), 0
        self._limits: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._users:
                self._limits = threadpool_limits(1, user_api="blas")
            self._users += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                self._hand_over()
                self._limits.restore_original_limits()
                self._hand_over()

    @staticmethod
    def _hand_over() -> None:
        """Recent threadpoolctl lets only the thread that set a limit change it; the last fit may run in another."""
        for library in ThreadpoolController().lib_controllers:
            clear = getattr(library, "clear_controlling_thread", None)
            if clear is not None:
                clear(force=True)


_BLAS = _OneThread()


@contextlib.contextmanager
def _pool(n_threads: int) -> Iterator[ThreadPoolExecutor | None]:
    if n_threads == 1:
        yield None
        return
    with ThreadPoolExecutor(n_threads) as pool:
        yield pool


# Weights: functions of the members' log densities log_prob (n, members) of rows, the rows' weight and region


def equal_weights(n_members: int) -> Array:
    """The same weight for every member."""
    return np.full((1, n_members), -np.log(n_members))


def likelihood_weights(log_prob: Array, weight: Array, region: Ints, n_regions: int) -> Array:
    """The paper's rule: in proportion to the product of the likelihoods of a region's training rows."""
    log_prob = log_prob - log_prob.max(axis=1, keepdims=True)  # only ratios count, and large sums lose digits
    sums = np.zeros((n_regions + 1, log_prob.shape[1]))
    np.add.at(sums, region, weight[:, None] * log_prob)
    empty = np.bincount(region, minlength=n_regions + 1) == 0
    overall = weight @ log_prob
    sums[empty], sums[-1] = overall, overall
    return sums - logsumexp(sums, axis=1, keepdims=True)


def stacked_weights(log_prob: Array, weight: Array, region: Ints, n_regions: int) -> Array:
    """Weights of the highest likelihood of validation rows; small regions are drawn towards the overall weights."""
    n_members = log_prob.shape[1]
    overall = _maximise(log_prob, weight, np.ones(n_members))
    weights = np.tile(overall, (n_regions + 1, 1))
    for k in np.unique(region[region < n_regions]):
        here = region == k
        weights[k] = _maximise(log_prob[here], weight[here], _PRIOR_ROWS * overall)
    with np.errstate(divide="ignore"):
        return np.log(weights)


def _maximise(log_prob: Array, weight: Array, prior: Array) -> Array:
    """Mixture weights by expectation maximisation; `prior` counts as rows already given to each member."""
    density = np.exp(log_prob - log_prob.max(axis=1, keepdims=True))
    weights = prior / prior.sum()
    for _ in range(1000):
        joint = density * weights
        given = weight @ (joint / joint.sum(axis=1, keepdims=True)) + prior
        last, weights = weights, given / given.sum()
        if np.abs(weights - last).max() < 1e-8:
            break
    return weights
