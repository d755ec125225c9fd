"""The fitted state of an estimator: built apart while a fit runs, put in place in one step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from treecdf.data.columns import Covariates
from treecdf.data.reading import Schema


def replace_state(model: BaseEstimator, state: Mapping[str, Any], known: Sequence[str]) -> None:
    """Give a model the fitted attributes of `state` in place of those it had.

    It is one assignment: whatever interrupts it, the model is the old one or the new one, never half of each.
    """
    kept = {name: value for name, value in vars(model).items() if name not in known}
    model.__dict__ = {**kept, **state}


def schema_state(schema: Schema) -> dict[str, Any]:
    """The fitted attributes that describe the columns of X, under scikit-learn's names."""
    state: dict[str, Any] = {"n_features_in_": schema.n_columns, "covariates_": schema.covariates}
    if schema.names is not None:
        state["feature_names_in_"] = np.array(schema.names, dtype=object)
    return state


def schema_of(model: BaseEstimator) -> Schema:
    """The schema of the columns of X that a fitted model expects."""
    names = getattr(model, "feature_names_in_", None)
    covariates: Covariates = model.covariates_
    return Schema(None if names is None else tuple(names), covariates)
