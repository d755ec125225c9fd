"""Boosted trees for the parameters of a distribution: NGBoost, LightGBMLSS, PGBM."""

import numpy as np
from scipy.stats import norm, t

from benchmarks.distributions import JointDensity, Normal, Student
from benchmarks.peers.common import PATIENCE, Peer, ZScore, draw_normals, score, set_aside


class NGBoost(Peer):
    """NGBoost: normal for one outcome, multivariate normal for several; 500 trees, or up to 2000 stopped early."""

    library = "ngboost"

    def __init__(self, random_state: int = 0, d: int = 1, stops_early: bool = False):
        super().__init__(random_state, d, n_estimators=2000 if stops_early else 500, learning_rate=0.01)
        self.stops_early, self.n_trees_ = stops_early, self.settings["n_estimators"]

    def _fit(self, x, y):
        from ngboost import NGBRegressor
        from ngboost.distns import MultivariateNormal
        from ngboost.distns import Normal as NormalOutcome

        law = NormalOutcome if self.d == 1 else MultivariateNormal(self.d)
        self._model = NGBRegressor(Dist=law, random_state=self.random_state, verbose=False, **self.settings)
        if not self.stops_early:
            self._model.fit(x, y)
            return
        train, validation = set_aside(len(x), self.random_state)
        aside = {"X_val": x[validation], "Y_val": y[validation], "early_stopping_rounds": PATIENCE}
        self._model.fit(x[train], y[train], **aside)
        self.n_trees_ = self._model.best_val_loss_itr + 1

    def _law(self, x):
        return self._model.pred_dist(x, max_iter=self.n_trees_)

    def log_prob(self, x, y):
        """Log density (n,)."""
        return np.asarray(self._law(x).logpdf(y))

    def sample(self, x, n_samples: int, random_state: int):
        """Draws (n, m) or (n, m, d)."""
        law = self._law(x)
        if self.d == 1:
            return draw_normals(law.loc[:, None], law.scale[:, None, None], n_samples, random_state)[:, :, 0]
        return draw_normals(np.asarray(law.loc), np.linalg.cholesky(np.asarray(law.cov)), n_samples, random_state)

    def predict_distribution(self, x):
        """Normal of one outcome, the joint density of several."""
        if self.d > 1:
            return JointDensity(self, x)
        law = self._law(x)
        return Normal(law.loc, law.scale)


class LightGBMLSS(Peer):
    """LightGBMLSS of up to 2000 trees; outcomes are z-scored, because its trees start from a constant 0.5.

    At LightGBM's own rate of 0.1 its scales run away. Which of its three ways to stabilise gradients is best differs
    from table to table, and its authors advise to search: the rows set aside decide.
    """

    library = "lightgbmlss"
    one_outcome_only = True

    def __init__(self, random_state: int = 0, d: int = 1, law: str = "Gaussian"):
        super().__init__(random_state, d, law=law, num_boost_round=2000, learning_rate=0.01)

    def _fit(self, x, y):
        train, validation = set_aside(len(x), self.random_state)
        self._z, found = ZScore(y[train]), []
        for stabilization in ("None", "MAD", "L2"):
            self._train(stabilization, x[train], y[train], x[validation], y[validation])
            found.append((score(self, x[validation], y[validation]), stabilization, self._model))
        _, self.settings["stabilization"], self._model = max(found, key=lambda one: one[0])
        self.n_trees_ = self._model.booster.best_iteration

    def _train(self, stabilization: str, x, y, x_aside, y_aside):
        import lightgbm
        from lightgbmlss.distributions.Gaussian import Gaussian
        from lightgbmlss.distributions.StudentT import StudentT
        from lightgbmlss.model import LightGBMLSS as Model

        law = {"Gaussian": Gaussian, "StudentT": StudentT}[self.settings["law"]]
        rate = {"learning_rate": self.settings["learning_rate"]}
        rows = lightgbm.Dataset(x, self._z(y), params={"verbosity": -1})
        aside = lightgbm.Dataset(x_aside, self._z(y_aside), reference=rows, params={"verbosity": -1})
        self._model = Model(law(stabilization=stabilization))
        self._model.train(
            {"num_threads": 1, "seed": self.random_state, "verbosity": -1} | rate,
            rows,
            num_boost_round=self.settings["num_boost_round"],
            valid_sets=[aside],
            callbacks=[lightgbm.early_stopping(PATIENCE, verbose=False)],
        )

    def _parameters(self, x) -> dict[str, np.ndarray]:
        """Parameters (n,) of the rows, in the unit of the outcome."""
        found = self._model.predict(x, pred_type="parameters").astype(float)
        location, scale = self._z.back(found["loc"].to_numpy()), self._z.std * found["scale"].to_numpy()
        return {"loc": location, "scale": scale} | ({"df": found["df"].to_numpy()} if "df" in found else {})

    def log_prob(self, x, y):
        """Log density (n,)."""
        parameters = self._parameters(x)
        return (t if "df" in parameters else norm).logpdf(y, **parameters)

    def sample(self, x, n_samples: int, random_state: int):
        """Draws (n, m)."""
        parameters = {name: values[:, None] for name, values in self._parameters(x).items()}
        law = t if "df" in parameters else norm
        return law.rvs(**parameters, size=(len(x), n_samples), random_state=np.random.default_rng(random_state))

    def predict_distribution(self, x):
        """Normal or Student distributions."""
        parameters = self._parameters(x)
        if "df" in parameters:
            return Student(**parameters)
        return Normal(parameters["loc"], parameters["scale"])


class PGBM(Peer):
    """PGBM on torch, of up to 2000 trees: a normal of the mean and variance that its leaves add up to.

    The rows set aside choose the correlation of its trees by their likelihood, of the values its own search has.
    Its other form, on scikit-learn, is compiled for numpy 1. This one compiles a small file when first imported.
    """

    library = "pgbm"
    one_outcome_only = True

    def __init__(self, random_state: int = 0, d: int = 1):
        super().__init__(random_state, d, n_estimators=2000, distribution="normal")

    def _fit(self, x, y):
        import torch
        from pgbm.torch import PGBMRegressor

        torch.set_num_threads(1)
        train, validation = set_aside(len(x), self.random_state)
        self._z = ZScore(y[train])
        self._model = PGBMRegressor(random_state=self.random_state + 1, verbose=1, **self.settings)
        aside = (x[validation], self._z(y[validation]))
        self._model.fit(x[train], self._z(y[train]), eval_set=aside, early_stopping_rounds=PATIENCE)
        learner = self._model.learner_
        self.n_trees_ = int(learner.best_iteration)
        found = []
        for correlation in torch.arange(-0.2, 0.2, 0.02):
            learner.tree_correlation = correlation
            found.append((score(self, x[validation], y[validation]), correlation))
        _, learner.tree_correlation = max(found, key=lambda one: one[0])
        self.settings["tree_correlation"] = round(float(learner.tree_correlation), 2)

    def _mean_and_std(self, x):
        _, mean, variance = self._model.learner_.predict_dist(x, n_forecasts=1, output_sample_statistics=True)
        mean, variance = (np.asarray(part, dtype=float) for part in (mean, variance))
        return self._z.back(mean), self._z.std * np.sqrt(np.maximum(variance, 1e-12))

    def log_prob(self, x, y):
        """Log density (n,)."""
        return norm.logpdf(y, *self._mean_and_std(x))

    def sample(self, x, n_samples: int, random_state: int):
        """Draws (n, m)."""
        mean, std = self._mean_and_std(x)
        return draw_normals(mean[:, None], std[:, None, None], n_samples, random_state)[:, :, 0]

    def predict_distribution(self, x):
        """Normal distributions."""
        return Normal(*self._mean_and_std(x))
