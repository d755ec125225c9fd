"""Peers without a density: a diffusion, a forest of quantiles, engression. They are scored by draws or quantiles."""

import numpy as np

from benchmarks.distributions import Empirical
from benchmarks.peers.common import VALIDATION_SHARE, Peer, set_aside

N_QUANTILES = 200
N_PARALLEL = 10  # draws of treeffuser that share one prior noise


class Treeffuser(Peer):
    """treeffuser with its defaults; it sets its own rows aside, and its training rows include them."""

    library = "treeffuser"
    has_density = False

    def __init__(self, random_state: int = 0, d: int = 1):
        super().__init__(random_state, d, eval_percent=VALIDATION_SHARE)

    def _fit(self, x, y):
        from treeffuser import Treeffuser as Model

        self._model = Model(seed=self.random_state, n_jobs=1, verbose=-1, **self.settings).fit(x, y)
        self.n_trees_ = self._model.n_estimators_true

    def sample(self, x, n_samples: int, random_state: int):
        """Draws (n, m) or (n, m, d)."""
        # Under one seed all its batches start from the same noise, so each batch gets a seed of its own.
        seeds = np.random.default_rng(random_state).integers(2**31, size=-(-n_samples // N_PARALLEL))
        batches = [self._model.sample(x, N_PARALLEL, n_parallel=N_PARALLEL, seed=int(seed)) for seed in seeds]
        return np.moveaxis(np.concatenate(batches)[:n_samples], 0, 1)


class QuantileForest(Peer):
    """quantile-forest with its defaults; nothing to stop early, so it trains on all rows."""

    library = "quantile-forest"
    has_density = False
    one_outcome_only = True

    def _fit(self, x, y):
        from quantile_forest import RandomForestQuantileRegressor

        self._model = RandomForestQuantileRegressor(n_jobs=1, random_state=self.random_state).fit(x, y)
        self.n_trees_ = self._model.n_estimators

    def _quantiles(self, x):
        levels = (np.arange(N_QUANTILES) + 0.5) / N_QUANTILES
        return self._model.predict(x, quantiles=list(levels))

    def sample(self, x, n_samples: int, random_state: int):
        """Draws (n, m) of the quantiles."""
        picks = np.random.default_rng(random_state).integers(N_QUANTILES, size=(len(x), n_samples))
        return np.take_along_axis(self._quantiles(x), picks, axis=1)

    def predict_distribution(self, x):
        """Its quantiles at equal steps."""
        return Empirical(self._quantiles(x), draws=False)


class LightGBMQuantiles(Peer):
    """LightGBM with its defaults but 500 trees, one model for each of 20 levels at equal steps, sorted at every row."""

    library = "lightgbm"
    has_density = False
    one_outcome_only = True
    n_levels = 20

    def __init__(self, random_state: int = 0, d: int = 1):
        super().__init__(random_state, d, n_estimators=500)

    def _fit(self, x, y):
        from lightgbm import LGBMRegressor

        how = {"n_jobs": 1, "verbose": -1, "random_state": self.random_state, **self.settings}
        levels = (np.arange(self.n_levels) + 0.5) / self.n_levels
        self._models = [LGBMRegressor(objective="quantile", alpha=level, **how).fit(x, y) for level in levels]
        self.n_trees_ = self.n_levels * self.settings["n_estimators"]

    def _quantiles(self, x):
        return np.sort(np.column_stack([model.predict(x) for model in self._models]), axis=1)

    def sample(self, x, n_samples: int, random_state: int):
        """Draws (n, m) of the quantiles."""
        picks = np.random.default_rng(random_state).integers(self.n_levels, size=(len(x), n_samples))
        return np.take_along_axis(self._quantiles(x), picks, axis=1)

    def predict_distribution(self, x):
        """Its quantiles at equal steps."""
        return Empirical(self._quantiles(x), draws=False)


class Engression(Peer):
    """engression with the settings of its own introduction."""

    library = "engression"
    has_density = False

    def __init__(self, random_state: int = 0, d: int = 1):
        super().__init__(random_state, d, lr=0.01, num_epochs=500, batch_size=1000)

    def _fit(self, x, y):
        import torch
        from engression import engression

        torch.set_num_threads(1)
        torch.manual_seed(self.random_state)
        train, validation = set_aside(len(x), self.random_state)
        rows, aside = (
            [torch.as_tensor(part[some].reshape(len(some), -1), dtype=torch.float32) for part in (x, y)]
            for some in (train, validation)
        )
        self._model = engression(*rows, x_val=aside[0], y_val=aside[1], verbose=False, **self.settings)

    def sample(self, x, n_samples: int, random_state: int):
        """Draws (n, m) or (n, m, d)."""
        import torch

        torch.manual_seed(random_state)
        found = self._model.sample(torch.as_tensor(x, dtype=torch.float32), sample_size=n_samples)
        draws = np.swapaxes(found.numpy().astype(float).reshape(len(x), self.d, n_samples), 1, 2)
        return draws[:, :, 0] if self.d == 1 else draws
