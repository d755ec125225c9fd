"""treecdf for skpro (extra `skpro`): a probabilistic regressor, and the distributions that it predicts."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils import check_random_state
from skpro.distributions.base import BaseDistribution
from skpro.regression.base import BaseProbaRegressor

from treecdf._common.typing import Array
from treecdf.estimators.regressor import TreeFlowRegressor
from treecdf.flows.arguments import Rows
from treecdf.flows.distribution import ConditionalDistribution


class TreeFlowProba(BaseProbaRegressor):
    """TreeFlowRegressor as a regressor of skpro, for one outcome.

    Parameters
    ----------
    regressor : TreeFlowRegressor, default None
        What is trained, with its settings; it is cloned. None: TreeFlowRegressor().

    Attributes
    ----------
    regressor_ : TreeFlowRegressor
        The trained model.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from treecdf import TreeFlowRegressor
    >>> from treecdf.skpro import TreeFlowProba
    >>> x = pd.DataFrame({"x": np.linspace(0, 1, 50)})
    >>> y = pd.DataFrame({"y": np.linspace(0, 1, 50) ** 2})
    >>> model = TreeFlowProba(TreeFlowRegressor(effort="fast", max_trees=5, random_state=0)).fit(x, y)
    >>> model.predict_interval(x, coverage=0.9).shape
    (50, 2)
    """

    _tags: ClassVar[dict[str, object]] = {
        "capability:missing": True,
        "X_inner_mtype": "pd_DataFrame_Table",
        "y_inner_mtype": "pd_DataFrame_Table",
    }

    def __init__(self, regressor: TreeFlowRegressor | None = None) -> None:
        self.regressor = regressor
        super().__init__()

    def _fit(self, X: pd.DataFrame, y: pd.DataFrame) -> Self:
        self.regressor_ = TreeFlowRegressor() if self.regressor is None else clone(self.regressor)
        self.regressor_.fit(_named(X), y.to_numpy()[:, 0])
        self._columns = y.columns
        return self

    def _predict_proba(self, X: pd.DataFrame) -> TreeFlowDistribution:
        return TreeFlowDistribution(
            self.regressor_.predict_distribution(_named(X)), index=X.index, columns=self._columns
        )

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, object]]:
        """Settings for the checks of skpro."""
        return [{"regressor": TreeFlowRegressor(effort="fast", max_trees=k, random_state=0)} for k in (2, 5)]


def _named(X: pd.DataFrame) -> pd.DataFrame:
    """The frame with names for columns that skpro numbered, because scikit-learn wants names that are text."""
    return X.rename(columns=str)


class TreeFlowDistribution(BaseDistribution):
    """The conditional distributions of one outcome, a row each, with the methods of skpro.

    Densities, cumulative probabilities and quantiles are exact; moments and energies are integrals of exact quantiles,
    within 0.005 standard deviations (std 1 %). With atoms and on a grid all are of the recorded outcomes.

    Parameters
    ----------
    distribution : ConditionalDistribution
        What `TreeFlowRegressor.predict_distribution` gives, for one outcome.
    index, columns : pd.Index, optional
        Names of the rows and of the outcome; both None: a single row, as a scalar.

    Examples
    --------
    >>> from treecdf.skpro import TreeFlowDistribution
    >>> rows = TreeFlowDistribution.create_test_instance()
    >>> rows.quantile([0.1, 0.9]).shape
    (3, 2)
    """

    _tags: ClassVar[dict[str, object]] = {
        "capabilities:approx": ["pdfnorm"],
        "capabilities:exact": ["mean", "var", "energy", "pdf", "log_pdf", "cdf", "ppf"],
        "distr:measuretype": "continuous",
        "distr:paramtype": "nonparametric",
    }

    def __init__(
        self, distribution: ConditionalDistribution, index: pd.Index | None = None, columns: pd.Index | None = None
    ) -> None:
        self.distribution = distribution
        super().__init__(index=index, columns=columns)

    def _shaped(self, values: Array) -> Array:
        """Values of the rows in the shape of the distribution: a column (n, 1), or a scalar."""
        return values.reshape(self.shape)

    def _of_rows(self, x: ArrayLike) -> Array:
        """Outcomes or levels of the rows as an array (n, 1)."""
        return np.asarray(x, dtype=np.float64).reshape(len(self.distribution), 1)

    def _log_pdf(self, x: Array) -> Array:
        return self._shaped(self.distribution.logpdf(self._of_rows(x)))

    def _pdf(self, x: Array) -> Array:
        return self._shaped(self.distribution.pdf(self._of_rows(x)))

    def _cdf(self, x: Array) -> Array:
        return self._shaped(self.distribution.cdf(self._of_rows(x)))

    def _ppf(self, p: Array) -> Array:
        return self._shaped(self.distribution.icdf(self._of_rows(p)))

    def _mean(self) -> Array:
        return self._shaped(self.distribution.mean())

    def _var(self) -> Array:
        return self._shaped(self.distribution.var())

    def _energy_x(self, x: Array) -> Array:
        values, mass = self.distribution.quadrature()
        return self._shaped((mass * np.abs(values - self._of_rows(x))).sum(axis=1))

    def _energy_self(self) -> Array:
        """E|X - Y| = 2 E|X - m| - 2 CRPS(m) for any m."""
        middle = self.distribution.median()
        return 2 * (self._energy_x(middle) - self._shaped(self.distribution.crps(middle)))

    def _sample(self, n_samples: int | None = None) -> float | pd.DataFrame:
        seed = check_random_state(None).randint(2**31)  # as skpro does, from numpy's own state
        draws = self.distribution.sample(n_samples or 1, seed)
        if self.ndim == 0:
            return float(draws[0, 0]) if n_samples is None else pd.DataFrame(draws[0])
        frames = [pd.DataFrame(column, index=self.index, columns=self.columns) for column in draws.T]
        return frames[0] if n_samples is None else pd.concat(frames, keys=range(n_samples))

    def _iat(self, rowidx: int | None = None, colidx: int | None = None) -> TreeFlowDistribution:
        return type(self)(self.distribution[0 if rowidx is None else rowidx])

    def _subset_params(
        self, rowidx: Rows | None, colidx: Rows | None, coerce_scalar: bool = False
    ) -> dict[str, ConditionalDistribution]:
        rows = slice(None) if rowidx is None else np.asarray(rowidx)
        return {"distribution": self.distribution[rows]}

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, object]]:
        """A small model for the checks of skpro: three rows, and one row as a scalar."""
        rng = np.random.default_rng(0)
        x = rng.normal(size=(60, 1))
        model = TreeFlowRegressor(effort="fast", max_trees=3, random_state=0).fit(x, x[:, 0] + rng.normal(size=60))
        rows = model.predict_distribution(x[:3])
        names = {"index": pd.Index([5, 2, 7]), "columns": pd.Index(["y"])}
        return [{"distribution": rows, **names}, {"distribution": rows[:1]}]
