"""Compositions: rows that sum to one, with exact zeros, given covariates.

First which taxa are present, by a chain of logistic regressions; then their abundances, as a chain of log ratios: of
every taxon present to the total of those before it. Each ratio is a flow of one outcome given the covariates,
the presences and the ratios before it; a row is divided by its sum in the end.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from typing import Any, Self

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from treecdf._common.random import as_generator
from treecdf._common.typing import Array, Ints
from treecdf._common.validation import check_setting
from treecdf.data.compositions import check_samples, read_compositions
from treecdf.data.table import learn_table
from treecdf.data.units import draw_folds
from treecdf.estimators.composition_answers import CompositionAnswers, read_subjects
from treecdf.estimators.links import FittedLink, fit_link, told
from treecdf.estimators.regressor import TreeFlowRegressor
from treecdf.estimators.state import replace_state, schema_state
from treecdf.estimators.subjects import fit_subjects
from treecdf.flows.composition.drawing import At
from treecdf.flows.composition.presence import EffectsWithTrend, Presence
from treecdf.flows.composition.ratios import Ratios, order_of_chain
from treecdf.flows.composition.reads import Depths, floors, spread
from treecdf.persist.checks.models import check_compositional, expect
from treecdf.persist.files import kept_parameters, set_fitted, write_model
from treecdf.training.parameters import check_parameter, read_settings

_N_FOLDS = 5  # Folds whose left-out rows choose penalties.
FORMAT = "treecdf compositional model"  # of its file, and what that keeps of a fitted model
_FITTED = (
    "n_features_in_",
    "feature_names_in_",
    "covariates_",
    "n_taxa_",
    "taxa_",
    "order_",
    "effects_",
    "presence_",
    "links_",
    "depths_",
    "subjects_",
)


class CompositionalFlow(CompositionAnswers, BaseEstimator):
    """Learns the distribution of compositions given covariates: exact zeros, exact density, draws with sum one.

    Parameters
    ----------
    counts : bool
        Whether Y has counts, such as reads. The depth, a row's sum, is then a further covariate, taxa that are present
        have at least one read, and draws are counts with a given depth.
    normalize : bool
        Whether rows of Y are divided by their sums (for percentages, or counts whose depth should be ignored).
        Otherwise rows that do not sum to one are refused.
    categorical_features : list of names or numbers of columns, or of booleans, default None
        Columns of X whose values are names, besides text and categories of a frame.
    flow : TreeFlowRegressor, default None
        What learns a log ratio given x and its linear prediction, cloned for every taxon; its bounds are set here, to
        the range of the log ratio. None: a small mixture of normals cut off at that range, without trees.
    n_jobs : int or None
        Processes that train the taxa (joblib). The model does not depend on it.
    random_state : int, Generator, RandomState or None
        Seed of the folds and of the flows.

    Attributes
    ----------
    n_taxa_ : int
        Columns of Y.
    taxa_ : tuple of str
        Their names, if Y was a frame or a BIOM table.
    order_ : array
        Columns of Y that are not always zero in the order of the chain of ratios: what is abundant and varies little
        comes first.
    presence_ : Presence
        Which taxa are present.
    links_ : tuple of Link
        Log ratios of the taxa of order_.
    depths_ : Depths
        For counts: the numbers of reads of the training samples.
    subjects_ : Subjects
        Correlations between samples of one subject, if `fit` got subjects.

    Notes
    -----
    Densities are with respect to a mixed measure: counting measure on sets of taxa that are present, and for a set of
    m taxa Lebesgue measure on m - 1 of their abundances (whichever is left out, the density is the same). A row of a
    single taxon so has a probability. A taxon that was present in no training row is absent for certain, and rows
    that say otherwise have log density -inf; of those that were present in all n of them one is
    absent with probability 1 / (n + 2).

    Examples
    --------
    >>> import numpy as np
    >>> from treecdf import CompositionalFlow
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(40, 1)), rng.dirichlet([1, 2, 3], 40)
    >>> CompositionalFlow(random_state=0).fit(x, y).sample(x[:2], n_samples=5, random_state=0).shape
    (2, 5, 3)
    """

    n_features_in_: int
    feature_names_in_: NDArray[np.object_]

    def __init__(
        self,
        *,
        counts: bool = False,
        normalize: bool = False,
        categorical_features: Any = None,
        flow: TreeFlowRegressor | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.counts = counts
        self.normalize = normalize
        self.categorical_features = categorical_features
        self.flow = flow
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(
        self,
        X: ArrayLike,
        Y: ArrayLike,
        groups: ArrayLike | None = None,
        *,
        sample_weight: ArrayLike | None = None,
        subject: ArrayLike | None = None,
        time: ArrayLike | None = None,
    ) -> Self:
        """Learn the distribution of compositions. A fit that fails or is interrupted leaves the estimator as it was.

        Parameters
        ----------
        X : array or frame of shape (n, q)
            Covariates: numbers, text, categories, with missing values.
        Y : array, frame, sparse matrix or BIOM table of shape (n, taxa)
            Compositions: not negative, each row of sum one (or of any sum, with `normalize`). Columns of frames and
            taxa of BIOM tables are known by their names from then on. Where X and Y name their samples (by an index
            that is not just a numbering), the names must agree.
        groups : array of shape (n,), default None
            Rows of one group, such as samples of one person, are left out together where left-out rows decide.
        sample_weight : array of shape (n,), default None
            How many samples each row counts for. None: all 1. Correlations within subjects are learnt without weights.
        subject : array of shape (n,), default None
            Subject of each sample. Correlations between samples of one subject are then learnt, for histories drawn by
            `sample(..., subject=...)`; subjects are groups if no other groups are given. The distribution of a single
            sample given its covariates does not depend on them.
        time : array of shape (n,), default None
            Time of each sample: correlations within a subject may decrease with the time between samples. Dates and
            durations count in days.

        Returns
        -------
        CompositionalFlow
            The estimator itself.
        """
        self._check_parameters()
        rng = as_generator(self.random_state)
        given = read_compositions(Y, self.normalize, counts=self.counts)
        check_samples(X, given.samples)
        if subject is None and time is not None:
            raise ValueError("time goes with subject: it says when samples of one subject were taken.")
        kin = None if subject is None else read_subjects(subject, time, len(given.y))
        y = given.y
        groups = subject if groups is None else groups
        table, schema = learn_table(X, y, sample_weight, groups, self.categorical_features, rng, merge=False)
        x, y, weight = table.x, table.y, table.weight
        total = given.total[table.number]
        kin = None if kin is None else (kin[0][table.number], kin[1][table.number])
        if len(x) < 2:
            raise ValueError(f"Found {len(x)} row(s) (n_samples = {len(x)}): at least 2 are required.")
        fold = draw_folds(table.unit, _N_FOLDS, rng)
        order = order_of_chain(y, weight)
        state: dict[str, Any] = {"n_taxa_": y.shape[1], "order_": order}
        if given.taxa is not None:
            state["taxa_"] = given.taxa
        if self.counts:
            state["depths_"] = depths = Depths.fit(total, weight)
            x = np.column_stack([x, depths.covariate(total)])
            y = spread(np.round(y * total[:, None]), rng)
        ratios = Ratios.of(y[:, order])
        make_effects = EffectsWithTrend.fit(x, weight, ratios.present)
        with threadpool_limits(1, user_api="blas"):
            effects = make_effects(x)
            presence = Presence.fit(effects, make_effects.ridge, ratios.present, fold, weight)
            at = At(x, floors(np.log(total)) if self.counts else None, None)
            fitted = self._fit_links(at, effects, ratios, fold, weight, rng)
            links = tuple(part.link for part in fitted)
            if kin is not None:
                state["subjects_"] = replace(
                    fit_subjects(kin, at, effects, ratios, presence, links, rng), has_times=time is not None
                )
        state |= {"effects_": make_effects, "presence_": presence, "links_": links}
        replace_state(self, schema_state(schema) | state, _FITTED)
        for text in told(fitted, [str(k) if given.taxa is None else given.taxa[k] for k in order]):
            warnings.warn(text, UserWarning, stacklevel=2)
        return self

    def _fit_links(
        self, at: At, effects: Array, ratios: Ratios, fold: Ints, weight: Array, rng: np.random.Generator
    ) -> list[FittedLink]:
        """The log ratio of every taxon to the total of those before it."""
        tasks = []
        for k in range(ratios.present.shape[1]):
            rows = np.flatnonzero(ratios.follows[:, k])
            features = ratios.features(k)[rows]
            seed = int(rng.integers(2**31))
            tasks.append(
                delayed(fit_link)(
                    self.flow,
                    at.take(rows),
                    effects[rows],
                    features,
                    ratios.log_ratio(k)[rows],
                    fold[rows],
                    weight[rows],
                    seed,
                )
            )
        return list(Parallel(self.n_jobs)(tasks))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a file that `load_model` reads; see `TreeFlowRegressor.save`."""
        check_is_fitted(self, "links_")
        self._check_parameters()
        parameters = self.get_params(deep=False)
        if self.flow is not None:
            parameters["flow"] = kept_parameters(self.flow.get_params(deep=False))
        fitted = {name: getattr(self, name) for name in _FITTED if hasattr(self, name)}
        write_model(path, FORMAT, parameters, fitted, check_compositional)

    @classmethod
    def _restored(cls, parameters: dict[str, Any], fitted: dict[str, Any]) -> Self:
        """The model with the parameters and fitted attributes of a file, after checks."""
        flow = parameters.pop("flow", None)
        model = cls(**parameters, flow=None if flow is None else TreeFlowRegressor(**flow))
        expect(model.flow is None or model.flow.checkpoint is None, "no checkpoint")
        model._check_parameters()
        check_compositional(fitted)
        expect(model.counts == ("depths_" in fitted), "depths of a model of counts")
        set_fitted(model, fitted, _FITTED)
        return model

    def _check_parameters(self) -> None:
        check_setting("counts", self.counts, isinstance(self.counts, bool), "True or False")
        check_setting("normalize", self.normalize, isinstance(self.normalize, bool), "True or False")
        check_parameter("n_jobs", self.n_jobs)
        if self.flow is None:
            return
        is_flow = type(self.flow) is TreeFlowRegressor
        check_setting("flow", self.flow, is_flow, "None or a TreeFlowRegressor")
        read_settings(self.flow.get_params(deep=False))
        check_setting(
            "flow.checkpoint", self.flow.checkpoint, self.flow.checkpoint is None, "None: taxa cannot share one"
        )
        names = self.flow.categorical_features
        check_setting("flow.categorical_features", names, names is None, "None: name columns of X in CompositionalFlow")
