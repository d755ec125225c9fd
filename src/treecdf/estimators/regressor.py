"""TreeFlowRegressor: the scikit-learn face of the tree flow."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from treecdf._common.random import as_generator
from treecdf._common.steps import Steps, stop_by_interrupt
from treecdf._common.typing import Array
from treecdf._kernels.compiling import announce_compilation
from treecdf.bases.atoms import Atoms
from treecdf.bases.protocol import Bound
from treecdf.data.recording import Grid, continuous_part, notes, read_atoms, read_grid
from treecdf.data.table import (
    Table,
    check_bounds,
    check_counts,
    check_size,
    has_repeats,
    is_dask,
    outcome_names,
    read_bounds,
    read_covariates,
    read_outcomes,
    read_table,
    read_weights,
)
from treecdf.estimators.progress import Progress, bar
from treecdf.flows.distribution import ConditionalDistribution
from treecdf.flows.recorded import RecordedDistribution
from treecdf.flows.results import History
from treecdf.flows.summary import summarize
from treecdf.persist.checkpoint import Checkpoint, NoCheckpoint
from treecdf.persist.checks.models import check_fitted, expect
from treecdf.persist.files import set_fitted, write_model
from treecdf.training.ensemble import Ensemble, fit_ensemble
from treecdf.training.importance import importances
from treecdf.training.jobs import Report
from treecdf.training.parameters import check_base, check_parameters
from treecdf.training.plan import PAPER_STAGES, has_no_rotations, make_plan
from treecdf.training.settings import Growth, Stage
from treecdf.training.sources.parquet import ParquetPieces
from treecdf.training.sources.pieces import Pieces
from treecdf.training.streaming import fit_pieces

_NOT_IN_THE_MODEL = ("n_jobs", "random_state", "verbose", "checkpoint", "on_interrupt")  # settings that do not shape it
FORMAT = "treecdf model"  # of its file, and what that keeps of a fitted model
_FITTED = (
    "n_features_in_",
    "feature_names_in_",
    "n_outcomes_",
    "outcome_names_",
    "covariates_",
    "atoms_",
    "grid_",
    "notes_",
    "mixture_",
    "families_",
    "family_weights_",
    "history_",
    "n_trees_",
    "feature_importances_",
)


class TreeFlowRegressor(RegressorMixin, BaseEstimator):
    """Learns the conditional distribution p(y | x) of one or several outcomes as a flow of tree-CDFs.

    X may be an array or a pandas or polars frame, with text, categories and gaps: a gap in a column of numbers gets the
    median and an indicator, a gap among names is a level of its own, names not seen in training are no level at all.

    Parameters
    ----------
    effort : "fast", "default" or "best"
        How many learners, folds and flows go into what is left to "auto" and None.
    structure : "auto", "chain" or "joint"
        Several outcomes: "chain" factorises p(y1 | x) p(y2 | x, y1) ... into flows of one outcome, "joint" are flows
        of all outcomes at once, "auto" weighs chains and joint flows by the likelihood of rows they did not see.
    base : "auto", "conditional", "box", "student", a regressor or a list of regressors
        What comes before the trees. "conditional": a mixture of Student t distributions whose locations, scales and
        weights depend on x, learnt by a stack of regressors and boosted trees, always from predictions of rows left
        out; it is of one outcome, so several need a chain. Your own scikit-learn regressors may take the place of the
        stack. "box": a box around the training range with tails beyond it; "student": a Student t of each outcome;
        these do not depend on x. "auto": "conditional", except that joint flows have "student", or "box" with
        bounds, and a table of few rows has no conditional base.
    stages : list of Stage, default None
        Kinds of trees, one after the other, each with its own early stopping. None: what suits the base.
    bounds : (low, high) or a list of one pair for each outcome, default None
        Hard ends of the outcomes' support; None for an end without bound. Outside them the density is zero.
    atoms : "auto", list of numbers or None
        One outcome: values with a probability of their own, such as exact zeros. Boosted trees of x say how probable
        each is, the flow learns the rest; log_prob is then the log probability at an atom, the log density elsewhere.
        "auto" finds values that come far more often than those around them.
    resolution : "auto", number, list of one number or None for each outcome, or None
        Step of the grid that outcomes were rounded to. Training outcomes are spread over their cells, log_prob is the
        log of a cell's probability over its volume, draws and quantiles are on the grid. "auto" finds the step.
    categorical_features : list of names or numbers of columns, or of booleans, default None
        Columns of X whose values are names even if they look like numbers. Text and categorical dtypes need no mention.
    rotations : int or list of (d, d) arrays, default None
        Several outcomes: a mixture of flows, each grown on outcomes that were scaled and rotated. J means J equally
        spaced angles of [0, pi / 2) in every coordinate plane, d (d - 1) / 2 * (J - 1) + 1 flows in all; or orthogonal
        matrices; 0 and None are off.
    weights : "equal", "stacked" or "likelihood"
        Of the flows in the mixture. "stacked" maximises the likelihood of validation rows in each region of x;
        "likelihood" is the paper's product of training likelihoods; "equal" lets every flow set aside other
        validation rows.
    regions : int, "hdbscan" or clusterer
        Partition of the covariates for "stacked" and "likelihood": k-means with so many regions, HDBSCAN, or any
        scikit-learn clusterer with `predict`, fitted or not.
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
    subsample : float, default None
        Share of the rows each tree is grown on. None: 0.7 on a conditional base, else 1.
    split_search : "score", "exhaustive" or "middle"
        Score test of all cuts from one pass; a classifier fitted for every cut; the middle of the box only.
    n_jobs : int or None
        Threads, or processes that train the flows of a mixture (joblib); -1 for all cores. The model does not depend
        on it.
    random_state : int, Generator, RandomState or None
        Seed of the validation split and of the starting weights.
    checkpoint : path, default None
        A directory of its own for what has been trained so far, written now and then. A fit that was killed, begun
        again with the same rows, settings and seed (None is the same seed too), goes on from there and ends in the
        same model; then the directory is removed. One of another fit raises ValueError. One fit at a time.
    on_interrupt : "raise" or "keep"
        What Ctrl-C does. "raise": KeyboardInterrupt, after what there is went to the checkpoint. "keep": training
        stops at the next tree, and the fit ends with what there is and a warning that says what is missing; before
        there is anything, and at a second Ctrl-C, it is raised. Only in the main thread.
    verbose : int
        1 shows progress on a terminal.

    Attributes
    ----------
    mixture_ : Mixture
        The fitted flows, `mixture_.members`, and their weights.
    families_ : tuple of Family
        Which members belong together, and the log densities of rows they were not trained on.
    family_weights_ : array
        Weight of each family in the mixture, which maximises the likelihood of rows left out.
    history_ : dict of arrays
        member, stage, train, validation (mean log-likelihood) and kept, for every tree that was grown.
    n_trees_ : int
        Trees in all flows.
    outcome_names_ : tuple of str
        Names of the outcomes if y was a frame or a series with a name.
    atoms_, grid_ : Atoms or None, Grid or None
        What was learnt about the recording of the outcomes.
    covariates_ : Covariates
        How the columns of X become numbers; `covariates_.kinds` says which were taken for numbers, which for names.
    feature_importances_ : (q,) array
        Share of each covariate in the log-likelihood that is lost when it is shuffled among training rows.
    """

    def __init__(
        self,
        *,
        effort: str = "default",
        structure: str = "auto",
        base: Any = "auto",
        stages: Sequence[Stage] | None = None,
        bounds: Any = None,
        atoms: Any = None,
        resolution: Any = None,
        categorical_features: Any = None,
        rotations: Any = None,
        weights: str = "equal",
        regions: Any = 8,
        c0: float = 0.05,
        gamma: float = 0.5,
        eta: float = 0.1,
        grid_size: int = 20,
        min_samples_node: float = 10,
        max_trees: int = 1000,
        early_stopping_window: int = 10,
        validation_fraction: float = 0.1,
        subsample: float | None = None,
        split_search: str = "score",
        n_jobs: int | None = None,
        random_state: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
        on_interrupt: str = "raise",
        verbose: int = 0,
    ) -> None:
        self.effort = effort
        self.structure = structure
        self.base = base
        self.stages = stages
        self.bounds = bounds
        self.atoms = atoms
        self.resolution = resolution
        self.categorical_features = categorical_features
        self.rotations = rotations
        self.weights = weights
        self.regions = regions
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
        self.checkpoint = checkpoint
        self.on_interrupt = on_interrupt
        self.verbose = verbose

    @classmethod
    def paper(cls, **overrides: Any) -> Self:
        """The settings of the paper's experiments with one outcome."""
        paper = {"base": "box", "structure": "joint", "stages": list(PAPER_STAGES), "subsample": 1.0}
        return cls(**{**paper, **overrides})

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
        if is_dask(X):
            if X_val is not None or y_val is not None:
                raise ValueError("X_val and y_val are for arrays and frames; of Dask collections rows are set aside.")
            from treecdf.training.sources.dask import DaskPieces

            return self._fit_pieces(DaskPieces(X, y, sample_weight))
        check_parameters(self)
        checkpoint = NoCheckpoint() if self.checkpoint is None else Checkpoint(self.checkpoint)
        rng = checkpoint.generator(self.random_state)
        table = read_table(self, X, y, sample_weight, rng)
        check_size(table)
        check_counts(table, self.min_samples_node)
        self.n_outcomes_ = table.y.shape[1]
        self.outcome_names_ = outcome_names(y, self.n_outcomes_)
        bounds = read_bounds(self.bounds, self.n_outcomes_)
        check_bounds(table, bounds, "y")
        check_base(self, bounds)
        validation = self._validation(X_val, y_val, sample_weight_val)
        checkpoint.begin(self._settings(), table, validation)
        self.notes_ = notes(table, self.atoms, self.resolution)
        table, validation = self._read_recording(table, validation, bounds, rng)
        plan = make_plan(self, len(table), table.x.shape[1], bounds, has_repeats(table.y))

        announce_compilation()
        with (
            contextlib.closing(Progress(self.verbose)) as progress,
            stop_by_interrupt(self.on_interrupt) as stop,
            checkpoint,
        ):
            report, steps = _reporter(progress, self.max_trees), partial(checkpoint.steps, stop)
            ensemble = fit_ensemble(plan, table, validation, rng, self.n_jobs, self._n_threads(), report, steps)
        self._finish(ensemble, table, rng)
        if not ensemble.missing:
            checkpoint.remove()
        return self

    def fit_parquet(
        self,
        path: str | os.PathLike[str],
        outcomes: str | Sequence[str],
        covariates: Sequence[str] | None = None,
        sample_weight: str | None = None,
        directory: str | None = None,
    ) -> Self:
        """Learn p(y | x) from a Parquet file, or a directory of them, that need not fit into memory.

        outcomes, covariates and sample_weight are names of columns; by default all columns that are left are
        covariates. The rows are copied to files without a name in `directory`, by default the system's place for
        temporary files: 9 q + 16 d + 70 bytes a row. One flow on base="box" or "student" is trained, the same as rows
        in memory give; "auto" is "box" for one outcome. See docs/scaling.md.
        """
        return self._fit_pieces(ParquetPieces(path, outcomes, covariates, sample_weight, directory))

    def _fit_pieces(self, pieces: Pieces) -> Self:
        check_parameters(self)
        rng = as_generator(self.random_state)
        announce_compilation()
        with contextlib.closing(Progress(self.verbose)) as progress, stop_by_interrupt(self.on_interrupt) as stop:
            ensemble, sample = fit_pieces(self, pieces, rng, _reporter(progress, self.max_trees), Steps(stop))
        self.notes_ = notes(sample, self.atoms, self.resolution)
        self.atoms_: Atoms | None = None
        self.grid_: Grid | None = None
        return self._finish(ensemble, sample, rng)

    def _finish(self, ensemble: Ensemble, table: Table, rng: np.random.Generator) -> Self:
        self.mixture_ = ensemble.mixture()
        self.families_, self.family_weights_ = ensemble.families, ensemble.weights
        self.history_ = _concatenate(ensemble.histories)
        self.n_trees_ = sum(len(block) for flow in self.mixture_.trees() for block in flow.blocks)
        self.feature_importances_ = importances(self.mixture_, table, self.covariates_.places(), rng, self._n_threads())
        if ensemble.missing:
            goes_on = "" if self.checkpoint is None else " Its checkpoint stays: the same fit again goes on from there."
            missing = f"The fit was interrupted; the model is without {', '.join(ensemble.missing)}.{goes_on}"
            warnings.warn(missing, UserWarning, stacklevel=3)
        return self

    def _settings(self) -> dict[str, Any]:
        """Settings that shape the model."""
        return {k: value for k, value in self.get_params(deep=False).items() if k not in _NOT_IN_THE_MODEL}

    def _read_recording(
        self, table: Table, validation: Table | None, bounds: Sequence[Bound], rng: np.random.Generator
    ) -> tuple[Table, Table | None]:
        """Learn the atoms; the rows that are left for the flow, spread over the cells of the grid."""
        values, self.grid_ = read_atoms(self.atoms, table), read_grid(self.resolution, table)
        self.atoms_ = Atoms.fit(values, table, rng) if len(values) else None
        table = continuous_part(table, values, self.grid_, bounds, rng)
        check_size(table, len(values))
        if validation is not None:
            validation = continuous_part(validation, values, self.grid_, bounds, rng)
            validation = validation if len(validation) else None
        return table, validation

    def predict_distribution(self, X: ArrayLike) -> ConditionalDistribution:
        """The conditional distributions at covariates X (n, q)."""
        check_is_fitted(self, "mixture_")
        if is_dask(X):
            from treecdf.estimators.lazy import LazyDistribution

            lazy: Any = LazyDistribution(self, X)
            return lazy
        distribution = ConditionalDistribution(self.mixture_, read_covariates(self, X), self._n_threads())
        if self.atoms_ is None and self.grid_ is None:
            return distribution
        return RecordedDistribution(distribution, self.atoms_, self.grid_)

    def log_prob(self, X: ArrayLike, y: ArrayLike) -> Array:
        """Exact log density (n,) of outcomes y at covariates X, in the outcomes' own unit."""
        distribution = self.predict_distribution(X)
        if is_dask(X):
            return distribution.logpdf(y)
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
        log_prob = np.asarray(self.log_prob(X, y))
        weight = read_weights(sample_weight, len(log_prob))
        counted = weight > 0  # an impossible outcome of no weight must not count either
        return float(np.average(log_prob[counted], weights=weight[counted]))

    def summary(self) -> str:
        """What was trained and chosen, in words."""
        check_is_fitted(self, "mixture_")
        return "\n".join([summarize(self.families_, self.family_weights_), *self.notes_])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a file that `load_model` reads; it holds no code and no pickle.

        An existing file is replaced in one step, or stays as it was if anything fails. Parameters are kept, except for
        the checkpoint and a generator as random_state; of families with more than 10,000 rows left out only the mean
        log density is kept. A Gaussian process in the base remembers some of the training rows' standardised
        covariates, nearest neighbours (above 5000 rows) up to 100,000 rows with their outcomes, and so does the file.
        Models with scikit-learn classifiers, regressors or clusterers inside raise ModelFileError: use skops or joblib.
        """
        check_is_fitted(self, "mixture_")
        check_parameters(self)
        fitted = {name: getattr(self, name) for name in _FITTED if hasattr(self, name)}
        write_model(path, FORMAT, self.get_params(deep=False), fitted, check_fitted)

    @classmethod
    def _restored(cls, parameters: dict[str, Any], fitted: dict[str, Any]) -> Self:
        """The model in a file."""
        model = cls(**parameters)
        check_parameters(model)
        expect(model.checkpoint is None, "no checkpoint")
        check_fitted(fitted)
        set_fitted(model, fitted, _FITTED)
        return model

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags

    def _growth(self) -> Growth:
        return Growth(
            c0=self.c0,
            gamma=self.gamma,
            eta=self.eta,
            grid_size=self.grid_size,
            min_samples_node=self.min_samples_node,
            split_search=self.split_search,
            subsample=1.0 if self.subsample is None else self.subsample,
        )

    def _validation(
        self, X_val: ArrayLike | None, y_val: ArrayLike | None, sample_weight_val: ArrayLike | None
    ) -> Table | None:
        if (X_val is None) != (y_val is None):
            raise ValueError("Expected X_val and y_val together; got only one of them.")
        if X_val is None or y_val is None:
            if sample_weight_val is not None:
                raise ValueError("Expected X_val and y_val with sample_weight_val; got only the weights.")
            has_rotations = self.n_outcomes_ > 1 and not has_no_rotations(self.rotations)
            if has_rotations and self.weights == "stacked" and self.validation_fraction == 0:
                raise ValueError("weights='stacked' needs validation rows: expected validation_fraction above 0.")
            return None
        validation = read_table(self, X_val, y_val, sample_weight_val)
        read_outcomes(validation.y, self.n_outcomes_)
        check_bounds(validation, read_bounds(self.bounds, self.n_outcomes_), "y_val")
        return validation

    def _n_threads(self) -> int:
        if self.n_jobs is None:
            return 1
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return self.n_jobs if self.n_jobs > 0 else max(1, cores + 1 + self.n_jobs)


def _reporter(progress: Progress, max_trees: int) -> Report:
    """Tells people how far the fit is."""
    trees = 0

    def report(n_flows: int, flow: int, history: History, score: float) -> None:
        nonlocal trees
        if n_flows == 1:
            stage = history.stage[-1]
            done = bar(history.stage.count(stage) / max_trees)
            text = f"stage {stage + 1} {done} {len(history.stage)} trees"
        else:
            trees += sum(history.kept)
            text = f"{bar((flow + 1) / n_flows)} {flow + 1} of {n_flows} flows, {trees} trees"
        progress.show(f"{text}, validation log-likelihood {score:.4f}")

    return report


def _concatenate(histories: Sequence[History]) -> dict[str, NDArray[Any]]:
    """The members' histories as one table."""
    member = np.repeat(np.arange(len(histories)), [len(history.stage) for history in histories])

    def column(name: str, kind: type) -> NDArray[Any]:
        return np.concatenate([np.array(getattr(history, name), dtype=kind) for history in histories])

    kinds = {"stage": int, "train": float, "validation": float, "kept": bool}
    return {"member": member} | {name: column(name, kind) for name, kind in kinds.items()}
