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

    X may be an array or a pandas or polars frame with text, categories, dates and missing values; docs/tables.md says
    how columns become numbers.

    Parameters
    ----------
    effort : "fast", "default" or "best"
        How many learners, folds and flows are tried where other parameters are "auto" or None.
    structure : "auto", "chain" or "joint"
        Several outcomes: "chain" factorises p(y1 | x) p(y2 | x, y1) ... into flows of one outcome, "joint" trains flows
        of all outcomes at once. "auto" trains chains; of outcomes that come in the same combinations again and again,
        up to 5,000 rows, also joint flows (unless the effort is "fast"), weighed by the likelihood of left-out rows.
    base : "auto", "conditional", "mixture", "network", "unconditional", "box", "student", "normal", or regressors
        The map that comes before the trees. "conditional": a mixture of Student t or normal distributions whose
        locations, scales and weights depend on x, learnt by a stack of regressors and by boosted trees from
        out-of-fold predictions; it is for one outcome, so several need a chain. A regressor of scikit-learn, or a list
        of them, takes the place of the stack. "mixture": all parameters of such a mixture are boosted together, for
        modes that move; "network": small networks give them, for smooth shapes. "box": a box around the training range
        with tails beyond it; "student": a Student t of each outcome; "normal": a normal distribution of each; these do
        not depend on x. "unconditional": "box" with bounds, else "normal" for one outcome and "student" for several.
        "auto": "conditional", with "mixture" and "network" beside it where left-out rows say that they help, except
        that joint flows have "student", or "box" with bounds, and a table of few rows has no conditional base.
    margin : float
        How far the box reaches beyond the training outcomes on each side, as a share of their range.
    stages : list of Stage, default None
        Kinds of trees, one after the other, each with its own early stopping. None: what suits the base.
    bounds : (low, high) or a list of one pair for each outcome, default None
        Hard ends of the outcomes' support; None for an end without bound. Outside them the density is zero.
    atoms : "auto", list of numbers or None
        One outcome: values with a probability of their own, such as exact zeros. Boosted trees of x predict their
        probabilities, and the flow learns the other outcomes; log_prob is the log probability at an atom and the log
        density elsewhere. "auto" finds values that are far more frequent than those around them.
    resolution : "few", "auto", number, list of one number or None for each outcome, or None
        Step of the grid that outcomes were rounded to. An outcome then stands for its cell: log_prob is the log of the
        cell's probability divided by its volume, and draws and quantiles are on the grid. "few", the default: outcomes
        of few values, such as grades, counts or ages, are recognised and modelled so; others have a plain density.
        "auto" finds the step, however many values there are. None: a plain density.
    categorical_features : list of names or numbers of columns, or of booleans, default None
        Columns of X that are categories although they hold numbers. Text and categorical dtypes are found without.
    weights_are : "counts" or "relative", default "counts"
        What sample weights mean. "counts": a row of weight 2 equals the row twice, and with all weights .05 there is
        twenty times less evidence. "relative": only their ratios matter; they are divided by their mean.
    remember_rows : bool, default True
        Whether the model, and its file, may contain training rows: nearest rows with their outcomes, and covariates of
        some rows. False: none, at some cost in accuracy (docs/model-files.md).
    rotations : int or list of (d, d) arrays, default None
        Several outcomes: a mixture of flows, each grown on scaled and rotated outcomes. A number J means J equally
        spaced angles of [0, pi / 2) in every coordinate plane, d (d - 1) / 2 * (J - 1) + 1 flows in all; a list has
        orthogonal matrices; 0 and None mean no rotations.
    weights : "equal", "stacked", "likelihood" or "mean_likelihood"
        Weights of the flows in the mixture. "stacked" maximises the likelihood of validation rows in each region of x;
        "likelihood" is the product of the training likelihoods of a region, as the paper prints it;
        "mean_likelihood" is their geometric mean; "equal" lets every flow set aside other validation rows.
    regions : int, "hdbscan" or clusterer
        Partition of the covariates for weights other than "equal": k-means with this number of regions, HDBSCAN, or
        any scikit-learn clusterer with `predict`, fitted or not.
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
        Smallest weight of the rows of a node that is split.
    max_trees : int
        Largest number of trees in a stage.
    early_stopping_window : int
        A stage ends when the validation log-likelihood is not above its value this number of trees ago; trees after
        the best one are dropped.
    validation_fraction : float
        Share of the rows set aside for early stopping if `fit` gets no validation rows. 0: no early stopping, every
        stage grows max_trees.
    subsample : float, default None
        Share of the rows each tree is grown on. None: 0.7 on a conditional base, else 1.
    split_search : "score", "exhaustive" or "middle"
        "score": a score test of all cuts in one pass over the rows, then classifiers for the best few; "exhaustive": a
        classifier for every cut; "middle": only the middle of the box.
    n_jobs : int or None
        Threads, or processes that train the flows of a mixture (joblib); -1 for all cores. The model does not depend
        on it.
    random_state : int, Generator, RandomState or None
        Seed of everything random in the fit.
    checkpoint : path, default None
        A directory of its own for what has been trained so far, written about every 20 seconds. If the fit is killed,
        the same fit (rows, settings and seed; None counts as the same seed) resumes from there and gives the same
        model; then the directory is removed. The checkpoint of another fit raises ValueError. One fit at a time.
    on_interrupt : "raise" or "keep"
        What Ctrl-C does. "raise": writes the checkpoint and raises KeyboardInterrupt. "keep": training stops at the
        next tree, and the fit ends with the model so far and a warning that says what is missing; KeyboardInterrupt is
        raised if nothing usable has been trained, and at a second Ctrl-C. Only in the main thread.
    verbose : int
        0: no output; 1: progress in one line, on a terminal or in a notebook; 2: lines for a log.

    Attributes
    ----------
    mixture_ : Mixture
        The fitted flows, `mixture_.members`, and their weights.
    families_ : tuple of Family
        Families of flows that were trained alike, each with its out-of-fold log densities.
    family_weights_ : array
        Weight of each family in the mixture; the weights maximise the likelihood of left-out rows.
    history_ : dict of arrays
        member, stage, train, validation (mean log-likelihoods), kept and too_dense, with an entry for every tree that
        was grown. too_dense is True for the last tree of a stage that ended because outcomes repeat and their density
        grows without bound.
    n_trees_ : int
        Trees in all flows.
    outcome_names_ : tuple of str
        Names of the outcomes if y was a frame or a series with a name.
    atoms_, grid_ : Atoms or None, Grid, ListedValues or None
        Atoms, and the grid or the list of values of the outcomes, if there are any.
    covariates_ : Covariates
        The encoders of the columns of X; `covariates_.kinds` has "number", "date" or "category" for each column.
    feature_importances_ : (q,) array
        Importances of the covariates: shares of the log-likelihood that is lost when one is shuffled among training
        rows.

    Examples
    --------
    >>> import numpy as np
    >>> from treecdf import TreeFlowRegressor
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(80, 2))
    >>> y = x[:, 0] + np.exp(0.5 * x[:, 1]) * rng.normal(size=80)
    >>> model = TreeFlowRegressor(effort="fast", max_trees=5, random_state=0).fit(x, y)
    >>> model.log_prob(x, y).shape
    (80,)
    >>> low, high = model.predict_distribution(x).interval(0.9)
    >>> bool((low < high).all())
    True
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
        """An estimator with the settings of the paper's experiments.

        Where the paper's text leaves a choice open, the setting is the one that came closest to its figures (ADR 22).

        Parameters
        ----------
        **overrides
            Parameters that differ from the paper's, such as `rotations=12` for its ensembles.

        Returns
        -------
        TreeFlowRegressor
            Logistic nodes of depth 6, then networks of depth 4; a normal distribution as base for one outcome, a
            Student t for each of several; rotated flows weighed by their training likelihoods in 8 regions of x.

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

        With more than 50,000 rows the default fits a model to a sample, then grows trees on all other rows:
        docs/scaling.md.

        Parameters
        ----------
        X : array or frame of shape (n, q), or Dask collection
            Covariates: numbers, text, categories and dates, with missing values.
        y : array, series or frame of shape (n,) or (n, d)
            Outcomes, without missing values and finite.
        sample_weight : array of shape (n,), default None
            Weights; with `weights_are="counts"` a row of weight 2 equals the row twice. None: all 1.
        X_val, y_val, sample_weight_val : as X, y, sample_weight, default None
            Validation rows for early stopping. None: left-out folds, or a random `validation_fraction` of the rows.
        groups : array of shape (n,), default None
            Groups of rows that belong together, such as those of one person or place: they are left out together
            wherever the fit validates on left-out rows. Copies of a row are always left out together.
        exposure : array of shape (n,), default None
            Time at risk, area or the like to which outcomes are proportional; predictions then need exposures too
            (docs/tables.md).

        Returns
        -------
        TreeFlowRegressor
            The estimator itself.

        Examples
        --------
        >>> import numpy as np
        >>> from treecdf import TreeFlowRegressor
        >>> x = np.linspace(0, 1, 60)[:, None]
        >>> model = TreeFlowRegressor(effort="fast", max_trees=5, random_state=0).fit(x, x[:, 0] ** 2)
        >>> model.outcome_names_
        ('y',)
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

        Up to 50,000 rows are read into memory. Of larger files a sample is read, and trees are grown on all other rows;
        one flow on an unconditional base is trained on all rows. The model is the same as that of `fit`, to the last
        bit (docs/scaling.md has the exceptions).

        Parameters
        ----------
        path : path
            A file, or a directory of files with the same columns; names of Hive partitions are columns too.
        outcomes : str or list of str
            Columns of the outcomes.
        covariates : list of str, default None
            Columns of the covariates. None: all other columns.
        sample_weight : str, default None
            Column of the weights.
        directory : path, default None
            Where more than 50,000 rows are copied to, in unnamed temporary files: 9 q + 16 d + 70 bytes per row. None:
            the system's directory for temporary files.
        groups : str, default None
            Column of the groups of rows that belong together; it is no covariate unless `covariates` names it.
        path_val : path, default None
            File or directory of validation rows for early stopping, with the same columns. None: left-out folds, or a
            random `validation_fraction` of the rows.

        Returns
        -------
        TreeFlowRegressor
            The estimator itself.

        Examples
        --------
        >>> import tempfile, numpy as np, pandas as pd
        >>> from treecdf import TreeFlowRegressor
        >>> table = pd.DataFrame({"x": np.linspace(0, 1, 60)}).assign(y=lambda t: t["x"] ** 2)
        >>> model = TreeFlowRegressor(effort="fast", max_trees=5, random_state=0)
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     table.to_parquet(f"{directory}/rows.parquet")
        ...     mean = model.fit_parquet(f"{directory}/rows.parquet", outcomes="y").predict(table[["x"]])
        >>> mean.shape
        (60,)
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
        """Put a new fitted state in place; warn of what is missing and of stages that ended at repeated outcomes.

        Warnings are given here because flows may have been trained in other processes, where nobody sees them.
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
        """Write the fitted model to a file that `load_model` reads; it contains no code and no pickle.

        An existing file is replaced in one step, or stays as it was if anything fails. All parameters are written
        except the checkpoint and a generator as random_state; of families with more than 10,000 left-out rows only the
        mean log density is. Unless remember_rows is False the model may remember training rows, some with their
        outcomes (`summary` says how many), and so does the file: docs/model-files.md.

        Parameters
        ----------
        path : path
            The file.

        Raises
        ------
        ModelFileError
            If the model contains scikit-learn classifiers, regressors or clusterers: use skops or joblib for these.

        Examples
        --------
        >>> import tempfile, numpy as np
        >>> from treecdf import TreeFlowRegressor, load_model
        >>> x = np.linspace(0, 1, 60)[:, None]
        >>> model = TreeFlowRegressor(effort="fast", max_trees=5, random_state=0).fit(x, x[:, 0] ** 2)
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     model.save(f"{directory}/model.tcdf")
        ...     type(load_model(f"{directory}/model.tcdf")).__name__
        'TreeFlowRegressor'
        """
        check_is_fitted(self, "mixture_")
        read_settings(self.get_params(deep=False))
        fitted = {name: getattr(self, name) for name in _FITTED if hasattr(self, name)}
        write_model(path, FORMAT, self.get_params(deep=False), fitted, check_fitted)

    @classmethod
    def _restored(cls, parameters: dict[str, Any], fitted: dict[str, Any]) -> Self:
        """The model with the parameters and fitted attributes of a file, after checks."""
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
    """The checkpoint that the settings ask for, or a `NoCheckpoint`."""
    return NoCheckpoint() if settings.checkpoint is None else Checkpoint(settings.checkpoint)
