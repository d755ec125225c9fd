"""Learn the whole conditional distribution p(y | x) of one or several outcomes on a table."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from treecdf.estimators.compositional import CompositionalFlow
    from treecdf.estimators.loading import load_model
    from treecdf.estimators.pipelines import predict_distribution
    from treecdf.estimators.regressor import TreeFlowRegressor
    from treecdf.flows.distribution import ConditionalDistribution
    from treecdf.persist.files import ModelFileError
    from treecdf.training.classifiers import MLP, BoostedTrees, Constant, Logistic
    from treecdf.training.settings import Stage

__version__ = "0.1.0.dev0"

__all__ = [
    "MLP",
    "BoostedTrees",
    "CompositionalFlow",
    "ConditionalDistribution",
    "Constant",
    "Logistic",
    "ModelFileError",
    "Stage",
    "TreeFlowRegressor",
    "load_model",
    "predict_distribution",
]

# Names are imported when they are first used: the command line answers --help and Ctrl-C before numba is there.
_HOMES = {
    "MLP": "training.classifiers",
    "BoostedTrees": "training.classifiers",
    "CompositionalFlow": "estimators.compositional",
    "ConditionalDistribution": "flows.distribution",
    "Constant": "training.classifiers",
    "Logistic": "training.classifiers",
    "ModelFileError": "persist.files",
    "Stage": "training.settings",
    "TreeFlowRegressor": "estimators.regressor",
    "load_model": "estimators.loading",
    "predict_distribution": "estimators.pipelines",
}


def __getattr__(name: str) -> object:
    """The public object of this name, imported from its module on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Names of the module, with the public names that have not been imported yet."""
    return sorted({*globals(), *__all__})
