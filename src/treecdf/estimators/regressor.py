"""TreeFlowRegressor: the scikit-learn face of the tree flow."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any, Self

from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from treecdf._common.protocols import Seed
from treecdf.bases.box import MARGIN
from treecdf.data.recording import FEW
from treecdf.data.table import is_dask
from treecdf.estimators.fitting import FittedState, Given, fit_in_memory, fit_table_in_pieces
from treecdf.estimators.predictions import Predictions
from treecdf.estimators.state import replace_state
from treecdf.flows.summary import warning_about_repeats
from treecdf.persist.checkpoint import Checkpoint, NoCheckpoint
from treecdf.persist.checks.models import check_fitted, expect
from treecdf.persist.files import set_fitted, write_model
from treecdf.training.parameters import read_settings
from treecdf.training.plan import PAPER_SETTINGS, PAPER_STAGES
from treecdf.training.settings import FitSettings, Stage
from treecdf.training.sources.parquet import ParquetPieces

FORMAT = "treecdf model"  # What its file says it is.
# What a file keeps of a fitted model.
_FITTED = (
    "n_features_in_",
    "feature_names_in_",
    "n_outcomes_",
    "outcome_names_",
    "covariates_",
    "atoms_",
    "grid_",
    "notes_",
    "exposure_",
    "mixture_",
    "families_",
    "family_weights_",
    "history_",
    "n_trees_",
    "feature_importances_",
)


class TreeFlowRegressor(Predictions, RegressorMixin, BaseEstimator):
    """Learns the conditional distribution p(y | x) of one or several outcomes as a flow of tree-CDFs.

    X may be an array or a pandas or polars frame, with text, categories, dates and missing values: a missing number
    gets the median and an indicator, a missing name is a level of its own, names not seen in training are no level at
    all. Dates become days since the earliest one, month, weekday and hour.

    Parameters
    ----------
    effort : "fast", "default" or "best"
        How many learners, folds and flows go into what is left to "auto" and None.
    structure : "auto", "chain" or "joint"
        Several outcomes: "chain" factorises p(y1 | x) p(y2 | x, y1) ... into flows of one outcome, "joint" are flows
        of all outcomes at once, "auto" weighs chains and joint flows by the likelihood of rows they did not see.
    base : "auto", "conditional", "mixture", "network", "unconditional", "box", "student", "normal", or regressors
        What comes before the trees. "conditional": a mixture of Student t or normal distributions whose locations,
        scales and weights depend on x, learnt by a stack of regressors and boosted trees, always from predictions of
        rows left out; it is of one outcome, so several need a chain. A list of your own scikit-learn regressors may
        take the place of the stack. "mixture": all parameters of such a mixture are boosted together, for modes that
        move; "network": small networks give them, for smooth shapes. "box": a box around the training range with tails
        beyond it; "student": a Student t of each outcome; "normal": a normal distribution of each; these do not depend
        on x. "unconditional": "box" with bounds, else "normal" for one outcome and "student" for several. "auto":
        "conditional", with "mixture" and "network" beside it where left-out rows say that they help, except that joint
        flows have "student", or "box" with bounds, and a table of few rows has no conditional base.
    margin : float
        How far the box reaches beyond the training outcomes on each side, as a share of their range.
    stages : list of Stage, default None
        Kinds of trees, one after the other, each with its own early stopping. None: what suits the base.
    bounds : (low, high) or a list of one pair for each outcome, default None
        Hard ends of the outcomes' support; None for an end without bound. Outside them the density is zero.
    atoms : "auto", list of numbers or None
        One outcome: values with a probability of their own, such as exact zeros. Boosted trees of x say how probable
        each is, the flow learns the rest; log_prob is then the log probability at an atom, the log density elsewhere.
        "auto" finds values that come far more often than those around them.
    resolution : "few", "auto", number, list of one number or None for each outcome, or None
        Step of the grid that outcomes were rounded to. What is known of an outcome then is its cell: log_prob is the
        log of the cell's probability over its volume, draws and quantiles are on the grid. "few": an outcome of few
        values, such as grades, counts or ages, is taken so, and of two values each has its probability; others have a
        plain density. "auto" finds the step, however many values there are. None: a plain density.
    categorical_features : list of names or numbers of columns, or of booleans, default None
        Columns of X whose values are names even if they look like numbers. Text and categorical dtypes need no mention.
    weights_are : "counts" or "relative", default "counts"
        What sample weights mean. Counts: a row of weight 2 is the row twice, and weights of .05 are twenty times less
        evidence. Relative: only their ratios matter; they are divided by their mean.
    remember_rows : bool, default True
        Whether the model, and its file, may hold training rows: nearest rows with their outcomes, and covariates of
        some rows. False: none, at some cost of accuracy (docs/model-files.md).
    rotations : int or list of (d, d) arrays, default None
        Several outcomes: a mixture of flows, each grown on outcomes that were scaled and rotated. J means J equally
        spaced angles of [0, pi / 2) in every coordinate plane, d (d - 1) / 2 * (J - 1) + 1 flows in all; or orthogonal
        matrices; 0 and None are off.
    weights : "equal", "stacked", "likelihood" or "mean_likelihood"
        Of the flows in the mixture. "stacked" maximises the likelihood of validation rows in each region of x;
        "likelihood" is the product of the training likelihoods of a region, as the paper prints it;
        "mean_likelihood" is their geometric mean; "equal" lets every flow set aside other validation rows.
    regions : int, "hdbscan" or clusterer
        Partition of the covariates for weights other than "equal": k-means with so many regions, HDBSCAN, or any
        scikit-learn clusterer with `predict`, fitted or not.
    c0, gamma : float
        Learning rate c0 (1 - log2 volume)^(-gamma) of a node: smaller boxes learn more slowly.
    eta : float
        Penalty of a split's distance from the middle of its box.
    penalty : "node", "row" or "auto"
        Whether eta counts once in the likelihood of a node, as the paper prints it, or once for each of its rows.
        "auto": once a row for one or two outcomes, once a node for more.
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
        1 shows progress in a line that is rewritten, on a terminal or in a notebook; 2 prints lines for a log.

    Attributes
    ----------
    mixture_ : Mixture
        The fitted flows, `mixture_.members`, and their weights.
    families_ : tuple of Family
        Which members belong together, and the log densities of rows they were not trained on.
    family_weights_ : array
        Weight of each family in the mixture, which maximises the likelihood of rows left out.
    history_ : dict of arrays
        member, stage, train, validation (mean log-likelihood), kept and too_dense, for every tree that was grown. The
        last is True for a tree with which a stage ended, because outcomes repeat and their density grows without bound.
    n_trees_ : int
        Trees in all flows.
    outcome_names_ : tuple of str
        Names of the outcomes if y was a frame or a series with a name.
    atoms_, grid_ : Atoms or None, Grid, ListedValues or None
        What was learnt about the recording of the outcomes.
    covariates_ : Covariates
        How the columns of X become numbers; `covariates_.kinds` says which were taken for numbers, dates or categories.
    feature_importances_ : (q,) array
        Share of each covariate in the log-likelihood that is lost when it is shuffled among training rows.
    """

    def __init__(
        self,
        *,
        effort: str = "default",
        structure: str = "auto",
        base: Any = "auto",
        margin: float = MARGIN,
        stages: Sequence[Stage] | None = None,
        bounds: Any = None,
        atoms: Any = None,
        resolution: Any = FEW,
        categorical_features: Any = None,
        weights_are: str = "counts",
        remember_rows: bool = True,
        rotations: Any = None,
        weights: str = "equal",
        regions: Any = 8,
        c0: float = 0.05,
        gamma: float = 0.5,
        eta: float = 0.1,
        penalty: str = "node",
        grid_size: int = 20,
        min_samples_node: float = 10,
        max_trees: int = 1000,
        early_stopping_window: int = 10,
        validation_fraction: float = 0.1,
        subsample: float | None = None,
        split_search: str = "score",
        n_jobs: int | None = None,
        random_state: Seed = None,
        checkpoint: str | os.PathLike[str] | None = None,
        on_interrupt: str = "raise",
        verbose: int = 0,
    ) -> None:
        self.effort = effort
        self.structure = structure
        self.base = base
        self.margin = margin
        self.stages = stages
        self.bounds = bounds
        self.atoms = atoms
        self.resolution = resolution
        self.categorical_features = categorical_features
        self.weights_are = weights_are
        self.remember_rows = remember_rows
        self.rotations = rotations
        self.weights = weights
        self.regions = regions
        self.c0 = c0
        self.gamma = gamma
        self.eta = eta
        self.penalty = penalty
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
        """The settings of the paper's experiments.

        Where its text leaves a choice open, the choice is the one that came closest to its figures (ADR 22).

        Parameters
        ----------
        **overrides
            Parameters that differ from the paper's, such as `rotations=12` for its ensembles.

        Returns
        -------
        TreeFlowRegressor
            Logistic nodes of depth 6, then networks of depth 4; one outcome on a normal distribution, several on a
            Student t of each; rotated flows weighed by their training likelihoods in 8 regions of x.

        Examples
        --------
        >>> from treecdf import TreeFlowRegressor
        >>> TreeFlowRegressor.paper(max_trees=50).weights
        'mean_likelihood'
        """
        return cls(**{**PAPER_SETTINGS, "stages": list(PAPER_STAGES), **overrides})

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        X_val: ArrayLike | None = None,
        y_val: ArrayLike | None = None,
        sample_weight_val: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
    ) -> Self:
        """Learn p(y | x). A fit that fails or is interrupted leaves the estimator as it was.

        Of more than 50,000 rows the default learns a model of a sample, then trees of all others: see docs/scaling.md.

        Parameters
        ----------
        X : array or frame of shape (n, q), or Dask collection
            Covariates: numbers, text, categories, with missing values.
        y : array, series or frame of shape (n,) or (n, d)
            Outcomes, all known and finite.
        sample_weight : array of shape (n,), default None
            Weights that count rows: a row of weight 2 equals the row twice. None: all 1.
        X_val, y_val, sample_weight_val : as X, y, sample_weight, default None
            Rows that decide when to stop. None: a random `validation_fraction` of the rows does.
        groups : array of shape (n,), default None
            Which rows belong together, such as those of one person or place: they are left out together wherever
            left-out rows decide. Copies of a row are, without being asked.
        exposure : array of shape (n,), default None
            Time at risk, area or the like that outcomes grow with; predictions then need one too. See docs/tables.md.

        Returns
        -------
        TreeFlowRegressor
            The estimator itself.
        """
        settings = read_settings(self.get_params(deep=False))
        validation: Given | None = None
        if X_val is not None and y_val is not None:
            validation = X_val, y_val, sample_weight_val, None
        elif X_val is not None or y_val is not None:
            raise ValueError("Expected X_val and y_val together; got only one of them.")
        elif sample_weight_val is not None:
            raise ValueError("Expected X_val and y_val with sample_weight_val; got only the weights.")
        checkpoint = _checkpoint(settings)
        if not is_dask(X):
            fitted = fit_in_memory(settings, (X, y, sample_weight, groups), validation, checkpoint, exposure)
            return self._take(fitted, checkpoint)
        if exposure is not None:
            raise ValueError("exposure is for arrays and frames, not for Dask collections.")
        from treecdf.training.sources.dask import DaskPieces

        if validation is not None and is_dask(X_val):
            validation = DaskPieces(X_val, y_val, sample_weight_val).whole()
        pieces = DaskPieces(X, y, sample_weight, groups)
        return self._take(fit_table_in_pieces(settings, pieces, validation, checkpoint), checkpoint)

    def fit_parquet(
        self,
        path: str | os.PathLike[str],
        outcomes: str | Sequence[str],
        covariates: Sequence[str] | None = None,
        sample_weight: str | None = None,
        directory: str | None = None,
        groups: str | None = None,
        path_val: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Learn p(y | x) from a Parquet file, or a directory of them, that need not fit into memory.

        Up to 50,000 rows are read into memory. Of more rows a sample is, and trees are grown on all others; an
        unconditional base is trained on all rows. The model is that of `fit`, to the last bit. See docs/scaling.md.

        Parameters
        ----------
        path : path
            A file, or a directory of files with the same columns; names of Hive partitions are columns too.
        outcomes : str or list of str
            Columns of the outcomes.
        covariates : list of str, default None
            Columns of the covariates. None: all that are left.
        sample_weight : str, default None
            Column of the weights.
        directory : path, default None
            Where more than 50,000 rows are copied to, in files without a name: 9 q + 16 d + 70 bytes a row. None: the
            system's place for temporary files.
        groups : str, default None
            Column that says which rows belong together; it is no covariate unless `covariates` names it.
        path_val : path, default None
            File or directory with the same columns, of rows that decide when to stop. None: a random
            `validation_fraction` of the rows does.

        Returns
        -------
        TreeFlowRegressor
            The estimator itself.
        """
        settings = read_settings(self.get_params(deep=False))
        pieces = ParquetPieces(path, outcomes, covariates, sample_weight, groups, directory)
        validation = None
        if path_val is not None:
            names = pieces.covariates
            validation = ParquetPieces(path_val, outcomes, names, sample_weight, None, directory).whole()
        checkpoint = _checkpoint(settings)
        return self._take(fit_table_in_pieces(settings, pieces, validation, checkpoint), checkpoint)

    def _take(self, fitted: FittedState, checkpoint: NoCheckpoint) -> Self:
        """Put a new fitted state in place, and say what is missing of it and which stages ended at repeated outcomes.

        Flows may have been trained in other processes, whose warnings nobody sees.
        """
        replace_state(self, fitted.attributes, _FITTED)
        if fitted.missing:
            goes_on = ""
            if self.checkpoint is not None:
                goes_on = " Its checkpoint stays: the same fit again goes on from there."
            missing = f"The fit was interrupted; the model is without {', '.join(fitted.missing)}.{goes_on}"
            warnings.warn(missing, UserWarning, stacklevel=3)
        repeats = warning_about_repeats(fitted.ended)
        if repeats is not None:
            warnings.warn(repeats, UserWarning, stacklevel=3)
        if not fitted.missing:
            checkpoint.remove()
        return self

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a file that `load_model` reads; it holds no code and no pickle.

        An existing file is replaced in one step, or stays as it was if anything fails. Parameters are kept, except for
        the checkpoint and a generator as random_state; of families with more than 10,000 rows left out only the mean
        log density is kept. Unless remember_rows is False the model may remember training rows, some of them with their
        outcomes (`summary` says how many), and so does the file: docs/model-files.md.
        Models with scikit-learn classifiers, regressors or clusterers inside raise ModelFileError: use skops or joblib.
        """
        check_is_fitted(self, "mixture_")
        read_settings(self.get_params(deep=False))
        fitted = {name: getattr(self, name) for name in _FITTED if hasattr(self, name)}
        write_model(path, FORMAT, self.get_params(deep=False), fitted, check_fitted)

    @classmethod
    def _restored(cls, parameters: dict[str, Any], fitted: dict[str, Any]) -> Self:
        """The model in a file."""
        model = cls(**parameters)
        read_settings(model.get_params(deep=False))
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


def _checkpoint(settings: FitSettings) -> NoCheckpoint:
    """Where a fit is kept while it runs, as the settings say."""
    return NoCheckpoint() if settings.checkpoint is None else Checkpoint(settings.checkpoint)
