"""TreeFlowRegressor: the scikit-learn face of the tree flow."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from treecdf._kernels.compiling import announce_compilation
from treecdf.base import Support
from treecdf.boosting import History, Stage, boost
from treecdf.classifiers import MLP, Logistic, NodeClassifier, as_node_classifier
from treecdf.distribution import ConditionalDistribution
from treecdf.flow import TreeFlow
from treecdf.grower import Growth
from treecdf.progress import Progress, bar
from treecdf.rows import Rows
from treecdf.settings import as_generator, check_setting, is_int, is_real
from treecdf.table import (
    Standardizer,
    Table,
    check_bounds,
    check_size,
    read_bounds,
    read_covariates,
    read_outcomes,
    read_table,
    read_weights,
)
from treecdf.tree import TreeSequence

Array = NDArray[np.float64]

PAPER_STAGES = (Stage(Logistic(), max_depth=6), Stage(MLP((4, 4), alpha=1e-4, max_iter=1000), max_depth=4))
DEFAULT_STAGES = (Stage(Logistic(), max_depth=6), Stage(MLP((4, 4)), max_depth=4))

_SEARCHES = ("score", "exhaustive", "middle")

# What each parameter may be, and how to say so.
_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "c0": (lambda v: is_real(v) and 0 < v < 1, "a number between 0 and 1"),
    "gamma": (lambda v: is_real(v) and v >= 0, "a number of at least 0"),
    "eta": (lambda v: is_real(v) and v >= 0, "a number of at least 0"),
    "grid_size": (lambda v: is_int(v) and 1 <= v <= 1000, "an integer from 1 to 1000"),
    "min_samples_node": (lambda v: is_real(v) and v >= 1, "a number of at least 1"),
    "max_trees": (lambda v: is_int(v) and v >= 0, "an integer of at least 0"),
    "early_stopping_window": (lambda v: is_int(v) and v >= 1, "an integer of at least 1"),
    "validation_fraction": (lambda v: is_real(v) and 0 <= v < 1, "a number from 0 to below 1"),
    "subsample": (lambda v: is_real(v) and 0 < v <= 1, "a number above 0, at most 1"),
    "split_search": (lambda v: v in _SEARCHES, f"one of {', '.join(map(repr, _SEARCHES))}"),
    "n_jobs": (lambda v: v is None or (is_int(v) and v != 0), "None or an integer other than 0"),
    "verbose": (lambda v: isinstance(v, bool) or (is_int(v) and v >= 0), "an integer of at least 0"),
}


class TreeFlowRegressor(RegressorMixin, BaseEstimator):
    """Learns the conditional distribution p(y | x) of one or several outcomes as a flow of tree-CDFs.

    Parameters
    ----------
    stages : list of Stage, default None
        Kinds of trees, one after the other, each with its own early stopping. None: Logistic nodes in trees of
        depth 6, then MLP((4, 4)) nodes in trees of depth 4.
    bounds : (low, high) or a list of one pair for each outcome, default None
        Hard ends of the outcomes' support; None for an end without bound. Outside them the density is zero.
    c0, gamma : float
        Learning rate c0 (1 - log2 volume)^(-gamma) of a node: smaller boxes learn more slowly.
    eta : float
        Penalty of a split's distance from the middle of its box.
    grid_size : int
        Candidate cuts on each axis of a node.
    min_samples_node : float
        Nodes of less weight are not split.
    max_trees : int
        Largest number of trees in a stage.
    early_stopping_window : int
        A stage ends when the validation log-likelihood is not above that of so many trees ago; the trees after the
        best one are dropped.
    validation_fraction : float
        Share of the rows set aside for early stopping if `fit` gets no validation rows. 0: no early stopping, every
        stage grows max_trees.
    subsample : float
        Share of the rows each tree is grown on.
    split_search : "score", "exhaustive" or "middle"
        Score test of all cuts from one pass; a classifier fitted for every cut; the middle of the box only.
    n_jobs : int or None
        Threads, -1 for all cores. The model does not depend on it.
    random_state : int, Generator, RandomState or None
        Seed of the validation split and of the starting weights.
    verbose : int
        1 shows progress on a terminal.

    Attributes
    ----------
    flow_ : TreeFlow
        The fitted transform.
    history_ : dict of arrays
        stage, train, validation (mean log-likelihood) and kept, for every tree that was grown.
    n_trees_ : int
        Trees in the flow.
    feature_importances_ : (q,) array
        Share of each covariate in the log-likelihood won by letting the splits depend on x.
    outcome_importances_ : (d,) array
        Share of each outcome axis in the log-likelihood won by all splits.
    """

    def __init__(
        self,
        *,
        stages: Sequence[Stage] | None = None,
        bounds: Any = None,
        c0: float = 0.05,
        gamma: float = 0.5,
        eta: float = 0.1,
        grid_size: int = 20,
        min_samples_node: float = 10,
        max_trees: int = 1000,
        early_stopping_window: int = 10,
        validation_fraction: float = 0.1,
        subsample: float = 1.0,
        split_search: str = "score",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.stages = stages
        self.bounds = bounds
        self.c0 = c0
        self.gamma = gamma
        self.eta = eta
        self.grid_size = grid_size
        self.min_samples_node = min_samples_node
        self.max_trees = max_trees
        self.early_stopping_window = early_stopping_window
        self.validation_fraction = validation_fraction
        self.subsample = subsample
        self.split_search = split_search
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def paper(cls, **overrides: Any) -> Self:
        """The settings of the paper's experiments with one outcome."""
        return cls(**{"stages": list(PAPER_STAGES), **overrides})

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        X_val: ArrayLike | None = None,
        y_val: ArrayLike | None = None,
        sample_weight_val: ArrayLike | None = None,
    ) -> Self:
        """Learn p(y | x) from covariates X (n, q) and outcomes y (n,) or (n, d).

        A row of weight 2 equals the row twice. X_val, y_val (with their weights) decide when to stop; without them
        a random `validation_fraction` of the rows does.
        """
        self._check_parameters()
        table = read_table(self, X, y, sample_weight, reset=True)
        check_size(table, self.min_samples_node)
        self.n_outcomes_ = table.y.shape[1]
        bounds = read_bounds(self.bounds, self.n_outcomes_)
        check_bounds(table, bounds, "y")
        rng = as_generator(self.random_state)
        train, validation = self._validation_split(table, X_val, y_val, sample_weight_val, rng)
        if validation is not None:
            check_bounds(validation, bounds, "y_val")

        announce_compilation()
        standardize = Standardizer.fit(train.x, train.weight)
        support = Support.fit(train.y, train.weight, bounds)
        classifiers = [as_node_classifier(stage.classifier) for stage in self._stages()]
        with self._pool() as pool, threadpool_limits(1, user_api="blas"):
            blocks, history = self._boost(classifiers, train, validation, standardize, support, rng, pool)
        self.flow_ = TreeFlow(standardize, support, tuple(blocks))
        self.history_ = {name: np.array(values) for name, values in vars(history).items()}
        self.n_trees_ = sum(len(block) for block in blocks)
        self._set_importances(blocks, classifiers)
        return self

    def _boost(
        self,
        classifiers: Sequence[NodeClassifier],
        train: Table,
        validation: Table | None,
        standardize: Standardizer,
        support: Support,
        rng: np.random.Generator,
        pool: ThreadPoolExecutor | None,
    ) -> tuple[list[TreeSequence], History]:
        """Grow the trees; the history is in the outcomes' own unit."""
        train_rows, train_base, _ = _rows(train, standardize, support, pool)
        val_rows, val_base, val_share = None, np.nan, 1.0
        if validation is not None:
            val_rows, val_base, val_share = _rows(validation, standardize, support, pool)
        progress = Progress(self.verbose)

        def report(history: History) -> None:
            k, stage = len(history.stage), history.stage[-1] + 1
            done = history.stage.count(stage - 1) / self.max_trees
            val = val_base + val_share * history.validation[-1]
            progress.show(f"stage {stage} {bar(done)} {k} trees, validation log-likelihood {val:.4f}")

        blocks, history = boost(
            train_rows,
            val_rows,
            list(zip(classifiers, (stage.max_depth for stage in self._stages()), strict=True)),
            self._growth(),
            max_trees=self.max_trees,
            window=self.early_stopping_window,
            rng=rng,
            report=report,
        )
        progress.close()
        history.train = [train_base + value for value in history.train]
        history.validation = [val_base + val_share * value for value in history.validation]
        return blocks, history

    def predict_distribution(self, X: ArrayLike) -> ConditionalDistribution:
        """The conditional distributions at covariates X (n, q)."""
        check_is_fitted(self, "flow_")
        return ConditionalDistribution(self.flow_, read_covariates(self, X, reset=False), self._n_threads())

    def log_prob(self, X: ArrayLike, y: ArrayLike) -> Array:
        """Exact log density (n,) of outcomes y at covariates X, in the outcomes' own unit."""
        distribution = self.predict_distribution(X)
        values = read_outcomes(y, self.n_outcomes_)
        if len(values) != len(distribution):
            raise ValueError(f"X has {len(distribution)} rows and y has {len(values)}: they must have the same number.")
        return distribution.logpdf(values[:, 0] if self.n_outcomes_ == 1 else values)

    def sample(self, X: ArrayLike, n_samples: int = 100, random_state: Any = None) -> Array:
        """Draws at covariates X: (n, n_samples) for one outcome, (n, n_samples, d) for several."""
        return self.predict_distribution(X).sample(n_samples, random_state)

    def predict(self, X: ArrayLike) -> Array:
        """Conditional mean, (n,) or (n, d)."""
        return self.predict_distribution(X).mean()

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Mean log density, so that model selection maximises the likelihood."""
        log_prob = self.log_prob(X, y)
        weight = read_weights(sample_weight, len(log_prob))
        counted = weight > 0  # an impossible outcome of no weight must not count either
        return float(np.average(log_prob[counted], weights=weight[counted]))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _stages(self) -> Sequence[Stage]:
        return DEFAULT_STAGES if self.stages is None else self.stages

    def _growth(self) -> Growth:
        return Growth(
            c0=self.c0,
            gamma=self.gamma,
            eta=self.eta,
            grid_size=self.grid_size,
            min_samples_node=self.min_samples_node,
            split_search=self.split_search,
            subsample=self.subsample,
        )

    def _check_parameters(self) -> None:
        for name, (is_valid, expected) in _RULES.items():
            check_setting(name, getattr(self, name), is_valid(getattr(self, name)), expected)
        stages = self._stages()
        if not isinstance(stages, (list, tuple)) or not all(isinstance(stage, Stage) for stage in stages):
            raise TypeError(f"Expected stages to be a list of Stage; got {stages!r}.")
        for stage in stages:
            depth = stage.max_depth
            check_setting("max_depth", depth, is_int(depth) and 1 <= depth <= 30, "an integer from 1 to 30")
            as_node_classifier(stage.classifier)

    def _validation_split(
        self,
        table: Table,
        X_val: ArrayLike | None,
        y_val: ArrayLike | None,
        sample_weight_val: ArrayLike | None,
        rng: np.random.Generator,
    ) -> tuple[Table, Table | None]:
        if (X_val is None) != (y_val is None):
            raise ValueError("Expected X_val and y_val together; got only one of them.")
        if X_val is None and sample_weight_val is not None:
            raise ValueError("Expected X_val and y_val with sample_weight_val; got only the weights.")
        if X_val is not None and y_val is not None:
            validation = read_table(self, X_val, y_val, sample_weight_val, reset=False)
            read_outcomes(validation.y, self.n_outcomes_)
            return table, validation
        if self.validation_fraction == 0:
            return table, None
        count = min(max(1, round(self.validation_fraction * len(table))), len(table) - 1)
        chosen = np.zeros(len(table), bool)
        chosen[rng.permutation(len(table))[:count]] = True
        return table.take(~chosen), table.take(chosen)

    def _n_threads(self) -> int:
        if self.n_jobs is None:
            return 1
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return self.n_jobs if self.n_jobs > 0 else max(1, cores + 1 + self.n_jobs)

    @contextlib.contextmanager
    def _pool(self) -> Iterator[ThreadPoolExecutor | None]:
        if self._n_threads() == 1:
            yield None
            return
        with ThreadPoolExecutor(self._n_threads()) as pool:
            yield pool

    def _set_importances(self, blocks: Sequence[TreeSequence], classifiers: Sequence[NodeClassifier]) -> None:
        q, d = self.n_features_in_, self.n_outcomes_
        covariates, outcomes = np.zeros(q), np.zeros(d)
        for block, classifier in zip(blocks, classifiers, strict=True):
            if not len(block):
                continue
            outcomes += np.bincount(block.nodes["axis"], np.maximum(block.nodes["gain"], 0.0), minlength=d)
            moved = classifier.importance(block.theta, q)
            total = moved.sum(axis=1, keepdims=True)
            shares = np.divide(moved, total, out=np.zeros_like(moved), where=total > 0)
            covariates += block.nodes["covariate_gain"] @ shares
        self.feature_importances_ = covariates / max(covariates.sum(), 1e-300)
        self.outcome_importances_ = outcomes / max(outcomes.sum(), 1e-300)


def _rows(
    table: Table, standardize: Standardizer, support: Support, pool: ThreadPoolExecutor | None
) -> tuple[Rows, float, float]:
    """The table's rows inside the box, the base's mean log density of all rows, and the weight share inside."""
    v = support.to_box(table.y)
    inside = support.inside(v)
    total = table.weight.sum()
    base = float(table.weight @ support.to_unit(v)[1] / total)
    if not inside.all():
        table, v = table.take(inside), v[inside]
    rows = Rows(standardize(table.x), np.clip(v, 1e-300, 1.0), table.weight, pool)
    return rows, base, rows.weight / total
