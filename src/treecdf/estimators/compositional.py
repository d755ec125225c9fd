"""Compositions: rows that sum to one, with exact zeros, given covariates.

First which taxa are present, by a chain of logistic regressions; then their abundances, as a chain of log ratios: of
every taxon present to the total of those before it. Each ratio is a flow of one outcome given the covariates,
all presences and the ratios before it; a row is divided by its sum in the end.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from treecdf._common.random import as_generator
from treecdf._common.typing import Array, Ints
from treecdf._common.validation import check_setting, is_int
from treecdf.data.columns import Covariates
from treecdf.data.compositions import check_samples, read_compositions
from treecdf.data.table import learn_table, read_covariates, read_table
from treecdf.data.units import draw_folds
from treecdf.estimators.links import FittedLink, fit_link
from treecdf.estimators.regressor import TreeFlowRegressor
from treecdf.estimators.state import replace_state, schema_of, schema_state
from treecdf.flows.composition.presence import Effects, Presence
from treecdf.flows.composition.ratios import Link, Ratios
from treecdf.persist.checks.models import check_compositional, expect
from treecdf.persist.files import kept_parameters, set_fitted, write_model
from treecdf.training.parameters import check_parameter, read_settings

_N_FOLDS = 5  # Folds whose left-out rows choose penalties.
_ZERO_DRAWS = 200  # Drawn presences that probabilities of zeros are means over, by default.
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
)


class CompositionalFlow(BaseEstimator):
    """Learns the distribution of compositions given covariates: exact zeros, exact density, draws that sum to one.

    Parameters
    ----------
    normalize : bool
        Whether rows of Y are divided by their sums (counts, percentages). Otherwise rows that do not sum to one are
        refused.
    categorical_features : list of names or numbers of columns, or of booleans, default None
        Columns of X whose values are names, besides text and categories of a frame.
    flow : TreeFlowRegressor, default None
        What learns a log ratio given x and its linear prediction, cloned for every taxon; its bounds are set here, to
        the range of the log ratio. None: a flow on that range with smooth Logistic nodes.
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
        Columns of Y that are not always zero, the most abundant first: the order of the chain of ratios.
    presence_ : Presence
        Which taxa are present.
    links_ : tuple of Link
        Log ratios of the taxa of order_.

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
    covariates_: Covariates
    n_taxa_: int
    taxa_: tuple[str, ...]
    order_: Ints
    effects_: Effects
    presence_: Presence
    links_: tuple[Link, ...]

    def __init__(
        self,
        *,
        normalize: bool = False,
        categorical_features: Any = None,
        flow: TreeFlowRegressor | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.normalize = normalize
        self.categorical_features = categorical_features
        self.flow = flow
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: ArrayLike, Y: ArrayLike, groups: ArrayLike | None = None) -> Self:
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

        Returns
        -------
        CompositionalFlow
            The estimator itself.
        """
        self._check_parameters()
        rng = as_generator(self.random_state)
        given = read_compositions(Y, self.normalize)
        check_samples(X, given.samples)
        y = given.y
        table, schema = learn_table(X, y, None, groups, self.categorical_features, rng, merge=False)
        x = table.x
        if len(x) < 2:
            raise ValueError(f"Found {len(x)} row(s) (n_samples = {len(x)}): at least 2 are required.")
        fold = draw_folds(table.unit, _N_FOLDS, rng)
        seen = np.flatnonzero(y.any(axis=0))
        order = seen[np.argsort(-y[:, seen].mean(axis=0), kind="stable")]
        make_effects = Effects.fit(x)
        ratios = Ratios.of(y[:, order])
        with threadpool_limits(1, user_api="blas"):
            effects = make_effects(x)
            presence = Presence.fit(effects, ratios.present, fold)
            fitted = self._fit_links(x, effects, ratios, fold, rng)
        links = tuple(part.link for part in fitted)
        state = {"n_taxa_": y.shape[1], "order_": order, "effects_": make_effects, "presence_": presence}
        if given.taxa is not None:
            state["taxa_"] = given.taxa
        replace_state(self, {**schema_state(schema), **state, "links_": links}, _FITTED)
        for text in _told(fitted, [str(k) if given.taxa is None else given.taxa[k] for k in order]):
            warnings.warn(text, UserWarning, stacklevel=2)
        return self

    def _fit_links(
        self, x: Array, effects: Array, ratios: Ratios, fold: Ints, rng: np.random.Generator
    ) -> list[FittedLink]:
        """The log ratio of every taxon to the total of those before it."""
        tasks = []
        for k in range(ratios.present.shape[1]):
            rows = np.flatnonzero(ratios.follows[:, k])
            features = ratios.features(k)[rows]
            seed = int(rng.integers(2**31))
            tasks.append(
                delayed(fit_link)(
                    self.flow, x[rows], effects[rows], features, ratios.log_ratio(k)[rows], fold[rows], seed
                )
            )
        return list(Parallel(self.n_jobs)(tasks))

    def sample(self, X: ArrayLike, n_samples: int = 1, random_state: Any = None) -> Any:
        """Draws of compositions: each sums to one, absent taxa are 0.

        Parameters
        ----------
        X : array or frame of shape (n, q)
            Covariates.
        n_samples : int, default 1
            Draws at each row.
        random_state : int, Generator, RandomState or None, default None
            Seed of the draws.

        Returns
        -------
        array of shape (n, n_samples, taxa)
            The draws. If X is a pandas frame and the taxa have names, a frame of n * n_samples rows, with the taxa as
            columns and an index of the rows of X and the numbers of the draws.
        """
        check_is_fitted(self, "links_")
        check_setting("n_samples", n_samples, is_int(n_samples) and n_samples >= 0, "an integer of at least 0")
        rng = as_generator(random_state)
        x = self.covariates_.filled(read_covariates(schema_of(self), X))
        with threadpool_limits(1, user_api="blas"):
            effects = np.repeat(self.effects_(x), n_samples, axis=0)
            ratios = Ratios.unknown(self.presence_.draw(effects, rng)[0])
            at = np.repeat(x, n_samples, axis=0)
            for k, link in enumerate(self.links_):
                u = rng.random(len(at))
                rows = np.flatnonzero(ratios.follows[:, k])
                ratios.put(k, rows, link.draw(u[rows], at[rows], effects[rows], ratios.features(k)[rows]))
        drawn = np.zeros((len(at), self.n_taxa_))
        drawn[:, self.order_] = ratios.abundances()
        return self._named(X, drawn.reshape(len(x), n_samples, self.n_taxa_))

    def log_prob(self, X: ArrayLike, Y: ArrayLike) -> Array:
        """Log density of compositions, with respect to the measure named in the notes.

        Parameters
        ----------
        X : array or frame of shape (n, q)
            Covariates.
        Y : array, frame, sparse matrix or BIOM table of shape (n, taxa)
            Compositions; columns with names may be in any order.

        Returns
        -------
        array of shape (n,)
            -inf where a taxon is present that no training row had.
        """
        check_is_fitted(self, "links_")
        given = read_compositions(Y, self.normalize, self.n_taxa_, getattr(self, "taxa_", None))
        check_samples(X, given.samples)
        y = given.y
        x = read_table(schema_of(self), X, y, None).x
        unseen = np.setdiff1d(np.arange(self.n_taxa_), self.order_)
        possible = ~y[:, unseen].any(axis=1)
        total = np.full(len(x), -np.inf)
        x, y = x[possible], y[possible]
        if not len(x):
            return total
        ratios = Ratios.of(y[:, self.order_])
        with threadpool_limits(1, user_api="blas"):
            effects = self.effects_(x)
            log_prob = self.presence_.log_prob(effects, ratios.present)
            for k, link in enumerate(self.links_):
                rows = np.flatnonzero(ratios.follows[:, k])
                if len(rows):
                    own, features = ratios.log_ratio(k)[rows], ratios.features(k)[rows]
                    log_prob[rows] += link.log_prob(own, x[rows], effects[rows], features)
            log_prob -= ratios.log_y.sum(axis=1)  # the Jacobian from log ratios to all but one of the abundances
        total[possible] = log_prob
        return total

    def score(self, X: ArrayLike, Y: ArrayLike) -> float:
        """Mean log density, so that model selection maximises the likelihood."""
        return float(self.log_prob(X, Y).mean())

    def zero_prob(self, X: ArrayLike, n_draws: int = _ZERO_DRAWS, random_state: Any = 0) -> Any:
        """Probability that each taxon is absent.

        Parameters
        ----------
        X : array or frame of shape (n, q)
            Covariates.
        n_draws : int, default 200
            Drawn presences of the other taxa that the probabilities are means over.
        random_state : int, Generator, RandomState or None, default 0
            Seed of these draws.

        Returns
        -------
        array of shape (n, taxa)
            Probabilities; their standard errors are at most 0.5 / sqrt(n_draws). A frame if X is a pandas frame and
            the taxa have names.
        """
        check_is_fitted(self, "links_")
        check_setting("n_draws", n_draws, is_int(n_draws) and n_draws >= 1, "an integer of at least 1")
        rng = as_generator(random_state)
        effects = self.effects_(self.covariates_.filled(read_covariates(schema_of(self), X)))
        zero = np.ones((len(effects), self.n_taxa_))
        chance = np.zeros((len(effects), len(self.order_)))
        with threadpool_limits(1, user_api="blas"):
            for _ in range(n_draws):
                chance += self.presence_.draw(effects, rng)[1]
        zero[:, self.order_] = 1 - chance / n_draws
        return self._named(X, zero)

    def _named(self, X: Any, values: Array) -> Any:
        """Values (n, taxa) or (n, draws, taxa) as a pandas frame if X is one and the taxa have names."""
        taxa = getattr(self, "taxa_", None)
        if taxa is None or not hasattr(X, "index") or not hasattr(X, "iloc"):
            return values
        import pandas as pd

        if values.ndim == 2:
            return pd.DataFrame(values, index=X.index, columns=list(taxa))
        rows = np.repeat(np.arange(len(values)), values.shape[1])
        draws = np.tile(np.arange(values.shape[1]), len(values))
        index = pd.MultiIndex.from_arrays([X.index.take(rows), draws], names=[X.index.name or "sample", "draw"])
        return pd.DataFrame(values.reshape(-1, len(taxa)), index=index, columns=list(taxa))

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
        """The model in a file."""
        flow = parameters.pop("flow", None)
        model = cls(**parameters, flow=None if flow is None else TreeFlowRegressor(**flow))
        expect(model.flow is None or model.flow.checkpoint is None, "no checkpoint")
        model._check_parameters()
        check_compositional(fitted)
        set_fitted(model, fitted, _FITTED)
        return model

    def _check_parameters(self) -> None:
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


def _told(fitted: Sequence[FittedLink], taxa: Sequence[str]) -> list[str]:
    """What a person should hear of the flows of the taxa, whatever processes trained them."""
    interrupted = [taxon for taxon, part in zip(taxa, fitted, strict=True) if part.was_interrupted]
    repeating = [taxon for taxon, part in zip(taxa, fitted, strict=True) if part.has_repeats]
    told = []
    if interrupted:
        told.append(f"The fit was interrupted; trees are missing for these columns of Y: {', '.join(interrupted)}.")
    if repeating:
        told.append(
            f"Training was cut short for these columns of Y: {', '.join(repeating)}. Their ratios to the total of more "
            "abundant columns repeat exactly, so that the density grows without bound. What helps with small counts: "
            "adding noise between -1/2 and 1/2, drawn evenly, to every count that is not 0."
        )
    return told
