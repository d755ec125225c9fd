"""The methods of a fitted TreeFlowRegressor: distributions, densities, draws, means and scores."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Self, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from treecdf._common.protocols import Seed
from treecdf._common.typing import Array
from treecdf._common.validation import check_setting, is_real
from treecdf.bases.atoms import Atoms
from treecdf.data.columns import Covariates
from treecdf.data.exposure import read_exposure
from treecdf.data.recording import AnyGrid
from treecdf.data.table import is_dask, read_covariates, read_outcomes, read_weights
from treecdf.estimators.state import schema_of
from treecdf.flows.arguments import interval_levels
from treecdf.flows.compacting import compact_families, compact_mixture
from treecdf.flows.continuous import FlowDistribution
from treecdf.flows.distribution import ConditionalDistribution
from treecdf.flows.exposed import ExposedDistribution
from treecdf.flows.learnt import count_trees
from treecdf.flows.mixture import Mixture
from treecdf.flows.recorded import as_recorded
from treecdf.flows.results import Family
from treecdf.flows.summary import note_on_compacting, notes_on_columns, summarize
from treecdf.training.jobs import n_threads

if TYPE_CHECKING:
    from treecdf.estimators.lazy import DaskCollection, LazyDistribution


class Predictions:
    """Distributions, densities, draws, means and scores, from the fitted attributes of a TreeFlowRegressor."""

    n_jobs: int | None
    n_features_in_: int
    feature_names_in_: NDArray[np.object_]
    n_outcomes_: int
    outcome_names_: tuple[str, ...]
    covariates_: Covariates
    atoms_: Atoms | None
    grid_: AnyGrid | None
    notes_: tuple[str, ...]
    exposure_: bool  # only there, and True, if the model was fitted with exposures
    mixture_: Mixture
    families_: tuple[Family, ...]
    family_weights_: Array
    history_: dict[str, NDArray[Any]]
    n_trees_: int
    feature_importances_: Array

    @overload
    def predict_distribution(self, X: DaskCollection) -> LazyDistribution: ...

    @overload
    def predict_distribution(self, X: ArrayLike, exposure: ArrayLike | None = None) -> ConditionalDistribution: ...

    def predict_distribution(
        self, X: Any, exposure: ArrayLike | None = None
    ) -> ConditionalDistribution | LazyDistribution:
        """The conditional distributions p(y | x) at rows of covariates.

        Parameters
        ----------
        X : array or frame of shape (n, q), or Dask collection
            Covariates; columns of frames are known by their names.
        exposure : number or array of shape (n,), default None
            Exposures of the rows, or one for all; for models fitted with exposures, and only for these.

        Returns
        -------
        ConditionalDistribution
            With densities, CDF, quantiles, draws and moments; lazy if X is a Dask collection.

        Examples
        --------
        >>> import numpy as np
        >>> from treecdf import TreeFlowRegressor
        >>> x = np.linspace(0, 1, 60)[:, None]
        >>> model = TreeFlowRegressor(effort="fast", max_trees=5, random_state=0).fit(x, x[:, 0] ** 2)
        >>> model.predict_distribution(x[:3]).icdf([0.05, 0.5, 0.95]).shape
        (3, 3)
        """
        if not hasattr(self, "mixture_"):  # asking scikit-learn takes longer than all other checks of one row
            check_is_fitted(self, "mixture_")
        self._check_exposure(exposure)
        if is_dask(X):
            from treecdf.estimators.lazy import LazyDistribution

            return LazyDistribution(self, X)
        x = read_covariates(schema_of(self), X)
        if exposure is None:
            latent = FlowDistribution(self.mixture_, x, n_threads(self.n_jobs), self.outcome_names_)
        else:
            exposures = read_exposure(exposure, len(x))
            x = np.ascontiguousarray(np.column_stack([x, np.log(exposures)]))
            rate = FlowDistribution(self.mixture_, x, n_threads(self.n_jobs), self.outcome_names_)
            latent = ExposedDistribution(rate, exposures)
        return as_recorded(latent, x, self.atoms_, self.grid_)

    def _check_exposure(self, exposure: ArrayLike | None) -> None:
        """Raise a ValueError unless exposures are given exactly if the model was fitted with them."""
        if hasattr(self, "exposure_") and exposure is None:
            raise ValueError("The model was fitted with exposure: pass exposure=, one for all rows or one for each.")
        if exposure is not None and not hasattr(self, "exposure_"):
            raise ValueError("The model was fitted without exposure: pass exposure to fit, or leave it out here.")

    def log_prob(self, X: ArrayLike, y: ArrayLike, exposure: ArrayLike | None = None) -> Array:
        """Exact log density of outcomes, in their own unit.

        Parameters
        ----------
        X : array or frame of shape (n, q), or Dask collection
            Covariates.
        y : array, series or frame of shape (n,) or (n, d)
            One outcome, or one row of outcomes, for each row of X.
        exposure : number or array of shape (n,), default None
            As in `predict_distribution`.

        Returns
        -------
        array of shape (n,)
            Log densities in nats. At an atom its log probability; on a grid the log of the cell's probability divided
            by its volume.

        Examples
        --------
        >>> import numpy as np
        >>> from treecdf import TreeFlowRegressor
        >>> x = np.linspace(0, 1, 60)[:, None]
        >>> model = TreeFlowRegressor(effort="fast", max_trees=5, random_state=0).fit(x, x[:, 0] ** 2)
        >>> model.log_prob(x, x[:, 0] ** 2).shape
        (60,)
        """
        distribution = self.predict_distribution(X, exposure)
        if is_dask(X):
            return distribution.logpdf(y)
        values = read_outcomes(y, self.n_outcomes_)
        if len(values) != len(distribution):
            raise ValueError(f"X has {len(distribution)} rows and y has {len(values)}: they must have the same number.")
        return distribution.logpdf(values[:, 0] if self.n_outcomes_ == 1 else values)

    def sample(
        self, X: ArrayLike, n_samples: int = 100, random_state: Seed = None, exposure: ArrayLike | None = None
    ) -> Array:
        """Draws of the outcomes.

        Parameters
        ----------
        X : array or frame of shape (n, q), or Dask collection
            Covariates.
        n_samples : int, default 100
            Draws at each row.
        random_state : int, Generator, RandomState or None, default None
            Seed of the draws.
        exposure : number or array of shape (n,), default None
            As in `predict_distribution`.

        Returns
        -------
        array of shape (n, n_samples), of several outcomes (n, n_samples, d)
            The draws.

        Examples
        --------
        >>> import numpy as np
        >>> from treecdf import TreeFlowRegressor
        >>> x = np.linspace(0, 1, 60)[:, None]
        >>> model = TreeFlowRegressor(effort="fast", max_trees=5, random_state=0).fit(x, x[:, 0] ** 2)
        >>> model.sample(x[:2], n_samples=10, random_state=0).shape
        (2, 10)
        """
        return self.predict_distribution(X, exposure).sample(n_samples, random_state)

    def predict(self, X: ArrayLike, quantiles: ArrayLike | None = None, exposure: ArrayLike | None = None) -> Array:
        """Conditional means of the outcomes, or quantiles; a pipeline hands `quantiles` on to its last step.

        Parameters
        ----------
        X : array or frame of shape (n, q), or Dask collection
            Covariates.
        quantiles : number or array of shape (m,), default None
            Levels of the quantiles, between 0 and 1. None: means.
        exposure : number or array of shape (n,), default None
            As in `predict_distribution`.

        Returns
        -------
        array of shape (n,), of several outcomes (n, d)
            The means, or the quantiles of one level; quantiles of m levels are (n, m), of several outcomes (n, m, d).

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import StandardScaler
        >>> from treecdf import TreeFlowRegressor
        >>> x = np.linspace(0, 1, 60)[:, None]
        >>> pipe = make_pipeline(StandardScaler(), TreeFlowRegressor(effort="fast", max_trees=5, random_state=0))
        >>> pipe.fit(x, x[:, 0] ** 2).predict(x[:4], quantiles=[0.1, 0.5, 0.9]).shape
        (4, 3)
        """
        distribution = self.predict_distribution(X, exposure)
        if quantiles is None:
            return distribution.mean()
        if self.n_outcomes_ == 1:
            return distribution.icdf(quantiles)
        return np.stack([distribution.marginal(j).icdf(quantiles) for j in range(self.n_outcomes_)], axis=-1)

    def predict_interval(self, X: ArrayLike, level: float = 0.9, exposure: ArrayLike | None = None) -> Array:
        """Ends of central intervals in one array; the distribution's `interval` takes several levels.

        Parameters
        ----------
        X : array or frame of shape (n, q), or Dask collection
            Covariates.
        level : float, default 0.9
            Probability inside, between 0 and 1.
        exposure : number or array of shape (n,), default None
            As in `predict_distribution`.

        Returns
        -------
        array of shape (n, 2), of several outcomes (n, 2, d)
            Lower and upper ends.
        """
        ends = interval_levels(level)
        check_setting("level", level, ends.ndim == 1, "one number between 0 and 1")
        return self.predict(X, quantiles=ends, exposure=exposure)

    def novelty(self, X: ArrayLike) -> Array:
        """How far rows are outside the training rows.

        0 is among the training rows; 1 is as far beyond their edge as they extend from their middle. Covariates count
        by how much they matter to the outcome. Beyond the training rows distributions get wider, and tend to the
        marginal distribution of the outcomes.

        Parameters
        ----------
        X : array or frame of shape (n, q)
            Covariates.

        Returns
        -------
        array of shape (n,)
            Distances from the training rows, in units of half their extent.

        Examples
        --------
        >>> import numpy as np
        >>> from treecdf import TreeFlowRegressor
        >>> x = np.linspace(-1, 1, 80)[:, None]
        >>> model = TreeFlowRegressor(effort="fast", max_trees=5, random_state=0).fit(x, x[:, 0])
        >>> model.novelty([[0.5], [3.0]]).round().tolist()
        [0.0, 2.0]
        """
        check_is_fitted(self, "mixture_")
        x = read_covariates(schema_of(self), X)
        if hasattr(self, "exposure_"):  # no exposure is unusual
            x = np.ascontiguousarray(np.column_stack([x, np.zeros(len(x))]))
        novelty = self.mixture_.novelty(x)
        if novelty is None:
            raise ValueError("novelty needs a conditional base; flows on a box or a Student t keep no training rows.")
        return novelty

    def score(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
    ) -> float:
        """Mean log density, so that model selection maximises the likelihood.

        Parameters
        ----------
        X : array or frame of shape (n, q)
            Covariates.
        y : array, series or frame of shape (n,) or (n, d)
            Outcomes.
        sample_weight : array of shape (n,), default None
            Weights of the rows. None: all 1.
        exposure : number or array of shape (n,), default None
            As in `predict_distribution`.

        Returns
        -------
        float
            The weighted mean of `log_prob`, in nats; higher is better.
        """
        log_prob = np.asarray(self.log_prob(X, y, exposure))
        weight = read_weights(sample_weight, len(log_prob))
        counted = weight > 0  # an impossible outcome of no weight must not count either
        relative = weight[counted] / weight.max()  # sums of very large weights overflow
        return float(np.average(log_prob[counted], weights=relative))

    def compact(self, X: ArrayLike, y: ArrayLike, tolerance: float = 0.01) -> Self:
        """A smaller model with nearly the same densities at these rows; the model itself does not change.

        Members, folds and trees are left out, first those whose absence changes least. The result is a model like any
        other: density, CDF and quantiles agree exactly. `summary` says what was left out.

        Parameters
        ----------
        X : array or frame of shape (n, q)
            Covariates; use rows that the model was not fitted to, because it fits its training rows too well.
        y : array, series or frame of shape (n,) or (n, d)
            Outcomes; rows at an atom are ignored.
        tolerance : float, default 0.01
            How much log densities may change, as the mean of the absolute differences over the rows, in nats.

        Returns
        -------
        TreeFlowRegressor
            The smaller model.

        Examples
        --------
        >>> import numpy as np
        >>> from treecdf import TreeFlowRegressor
        >>> x = np.linspace(0, 1, 90)[:, None]
        >>> y = x[:, 0] + 0.1 * np.random.default_rng(0).normal(size=90)
        >>> model = TreeFlowRegressor(effort="fast", max_trees=5, random_state=0).fit(x[::2], y[::2])
        >>> small = model.compact(x[1::2], y[1::2], tolerance=0.1)
        >>> len(small.mixture_.members) <= len(model.mixture_.members)
        True
        >>> bool(abs(small.log_prob(x[1::2], y[1::2]) - model.log_prob(x[1::2], y[1::2])).mean() <= 0.1)
        True
        """
        check_is_fitted(self, "mixture_")
        is_valid = is_real(tolerance) and 0 <= tolerance < np.inf
        check_setting("tolerance", tolerance, is_valid, "a number of at least 0")
        x, values = read_covariates(schema_of(self), X), read_outcomes(y, self.n_outcomes_)
        if len(values) != len(x):
            raise ValueError(f"X has {len(x)} rows and y has {len(values)}: they must have the same number.")
        if self.atoms_ is not None:
            counted = ~np.isin(values[:, 0], self.atoms_.values)
            x, values = x[counted], values[counted]
        if not len(x):
            raise ValueError("All outcomes are atoms: expected rows that tell what may be left out.")
        found = compact_mixture(self.mixture_, values, x, float(tolerance))
        families, weights = compact_families(self.families_, self.family_weights_, found)
        small = copy.copy(self)
        small.mixture_, small.families_, small.family_weights_ = found.mixture, families, weights
        small.n_trees_ = count_trees(found.mixture)
        flows = tuple(len(mixture.tree_flows()) for mixture in (found.mixture, self.mixture_))
        note = note_on_compacting(tolerance, flows, (small.n_trees_, self.n_trees_), found.change, len(x))
        small.notes_ = (*self.notes_, note)
        return small

    def summary(self) -> str:
        """A description of the fitted model.

        Returns
        -------
        str
            For each family of flows its weight, log-likelihood of left-out rows, base and number of trees; then notes
            on columns, outcomes and remembered training rows.

        Examples
        --------
        >>> import numpy as np
        >>> from treecdf import TreeFlowRegressor
        >>> x = np.linspace(0, 1, 60)[:, None]
        >>> model = TreeFlowRegressor(effort="fast", max_trees=5, random_state=0).fit(x, x[:, 0] ** 2)
        >>> "log-likelihood of left-out rows" in model.summary()
        True
        """
        check_is_fitted(self, "mixture_")
        names = getattr(self, "feature_names_in_", [str(j) for j in range(self.n_features_in_)])
        columns = notes_on_columns(self.covariates_, [str(name) for name in names])
        return "\n".join([summarize(self.families_, self.family_weights_, self.outcome_names_), *columns, *self.notes_])
