"""What a fitted TreeFlowRegressor answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from treecdf._common.protocols import Seed
from treecdf._common.typing import Array
from treecdf.bases.atoms import Atoms
from treecdf.data.columns import Covariates
from treecdf.data.recording import Grid
from treecdf.data.table import is_dask, read_covariates, read_outcomes, read_weights
from treecdf.estimators.state import schema_of
from treecdf.flows.continuous import FlowDistribution
from treecdf.flows.distribution import ConditionalDistribution
from treecdf.flows.mixture import Mixture
from treecdf.flows.recorded import as_recorded
from treecdf.flows.results import Family
from treecdf.flows.summary import summarize
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
    grid_: Grid | None
    notes_: tuple[str, ...]
    mixture_: Mixture
    families_: tuple[Family, ...]
    family_weights_: Array
    history_: dict[str, NDArray[Any]]
    n_trees_: int
    feature_importances_: Array

    @overload
    def predict_distribution(self, X: DaskCollection) -> LazyDistribution: ...

    @overload
    def predict_distribution(self, X: ArrayLike) -> ConditionalDistribution: ...

    def predict_distribution(self, X: Any) -> ConditionalDistribution | LazyDistribution:
        """The conditional distributions p(y | x) at rows of covariates.

        Parameters
        ----------
        X : array or frame of shape (n, q), or Dask collection
            Covariates; columns of frames are known by their names.

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
        check_is_fitted(self, "mixture_")
        if is_dask(X):
            from treecdf.estimators.lazy import LazyDistribution

            return LazyDistribution(self, X)
        x = read_covariates(schema_of(self), X)
        return as_recorded(FlowDistribution(self.mixture_, x, n_threads(self.n_jobs)), x, self.atoms_, self.grid_)

    def log_prob(self, X: ArrayLike, y: ArrayLike) -> Array:
        """Exact log density of outcomes, in their own unit.

        Parameters
        ----------
        X : array or frame of shape (n, q), or Dask collection
            Covariates.
        y : array, series or frame of shape (n,) or (n, d)
            One outcome, or one row of outcomes, for each row of X.

        Returns
        -------
        array of shape (n,)
            At an atom its log probability; on a grid the log of the cell's probability over its volume.
        """
        distribution = self.predict_distribution(X)
        if is_dask(X):
            return distribution.logpdf(y)
        values = read_outcomes(y, self.n_outcomes_)
        if len(values) != len(distribution):
            raise ValueError(f"X has {len(distribution)} rows and y has {len(values)}: they must have the same number.")
        return distribution.logpdf(values[:, 0] if self.n_outcomes_ == 1 else values)

    def sample(self, X: ArrayLike, n_samples: int = 100, random_state: Seed = None) -> Array:
        """Draws of the outcomes.

        Parameters
        ----------
        X : array or frame of shape (n, q), or Dask collection
            Covariates.
        n_samples : int, default 100
            Draws at each row.
        random_state : int, Generator, RandomState or None, default None
            Seed of the draws.

        Returns
        -------
        array of shape (n, n_samples), of several outcomes (n, n_samples, d)
            The draws.
        """
        return self.predict_distribution(X).sample(n_samples, random_state)

    def predict(self, X: ArrayLike) -> Array:
        """Conditional means of the outcomes.

        Parameters
        ----------
        X : array or frame of shape (n, q), or Dask collection
            Covariates.

        Returns
        -------
        array of shape (n,), of several outcomes (n, d)
            The means.
        """
        return self.predict_distribution(X).mean()

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Mean log density, so that model selection maximises the likelihood.

        Parameters
        ----------
        X : array or frame of shape (n, q)
            Covariates.
        y : array, series or frame of shape (n,) or (n, d)
            Outcomes.
        sample_weight : array of shape (n,), default None
            Weights of the rows. None: all 1.

        Returns
        -------
        float
            The weighted mean of `log_prob`.
        """
        log_prob = np.asarray(self.log_prob(X, y))
        weight = read_weights(sample_weight, len(log_prob))
        counted = weight > 0  # an impossible outcome of no weight must not count either
        relative = weight[counted] / weight.max()  # sums of very large weights overflow
        return float(np.average(log_prob[counted], weights=relative))

    def summary(self) -> str:
        """What was trained and chosen, in words.

        Returns
        -------
        str
            A few lines for each family of flows: weight, log-likelihood of left-out rows, base and trees.
        """
        check_is_fitted(self, "mixture_")
        return "\n".join([summarize(self.families_, self.family_weights_), *self.notes_])
