"""Other libraries behind the few methods the benchmarks ask of a model; `docs/benchmarks.md` says how to install them.

A library is imported when its model is fitted, so that a missing one spoils its own runs only.
"""

from benchmarks.peers.boosted_shapes import LightGBMLSSMixture, LightGBMLSSSpline
from benchmarks.peers.boosting import PGBM, LightGBMLSS, NGBoost
from benchmarks.peers.folded import FoldedMixture
from benchmarks.peers.linear import LinearGaussian
from benchmarks.peers.neural import Flow, MixtureDensity
from benchmarks.peers.samplers import Engression, LightGBMQuantiles, QuantileForest, Treeffuser

PEERS = {
    "linear": LinearGaussian,
    "ngboost": NGBoost,
    "ngboost_early": lambda random_state, d: NGBoost(random_state, d, stops_early=True),
    "lightgbmlss": LightGBMLSS,
    "lightgbmlss_student": lambda random_state, d: LightGBMLSS(random_state, d, law="StudentT"),
    "pgbm": PGBM,
    "treeffuser": Treeffuser,
    "quantile_forest": QuantileForest,
    "engression": Engression,
    "nsf": lambda random_state, d: Flow(random_state, d, kind="NSF"),
    "maf": lambda random_state, d: Flow(random_state, d, kind="MAF"),
    "mdn": MixtureDensity,
}
# For `python -m benchmarks shapes` alone: they take long, and the published tables are nearly unimodal
PEERS_OF_SHAPES = {
    "mdn_folds": FoldedMixture,
    "lightgbmlss_mixture": LightGBMLSSMixture,
    "lightgbmlss_spline": LightGBMLSSSpline,
}
# For `python -m benchmarks more` alone
PEERS_OF_MORE = {"lightgbm_quantiles": LightGBMQuantiles}
ONE_OUTCOME = ("lightgbmlss", "lightgbmlss_student", "pgbm", "quantile_forest")
PEERS_OF_SEVERAL = tuple(name for name in PEERS if name not in ONE_OUTCOME)
