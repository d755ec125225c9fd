"""Whether the parts of a model fit together, so that a model from a file can be passed to compiled code.

Kernels index without checks. So everything that they index with is checked here, part by part, from the mixture down
to the trees, with the number q of covariates of each part; numbers that must be finite are checked too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from treecdf._common.steps import Sizes
from treecdf.bases.atoms import Atoms
from treecdf.bases.learners.boosting import BoostedScores
from treecdf.bases.learners.network import FittedNetworks
from treecdf.data.columns import Covariates
from treecdf.data.recording import ClosedGrid, Grid, ListedValues
from treecdf.flows.composition.presence import Effects, EffectsWithTrend, Presence
from treecdf.flows.composition.ratios import Link
from treecdf.flows.composition.reads import Depths
from treecdf.flows.composition.subjects import Subjects
from treecdf.flows.flow import TreeFlow
from treecdf.flows.learnt import count_trees
from treecdf.flows.mixture import Mixture
from treecdf.flows.results import HISTORY_COLUMNS, Family
from treecdf.flows.tree import TreeSequence
from treecdf.persist.checks import bases, compositions, learners, mixtures, recording, trees
from treecdf.persist.checks.learners import PREDICTORS
from treecdf.persist.checks.trees import check_axes
from treecdf.persist.checks.values import (
    Check,
    FromFile,
    ModelFileError,
    Visit,
    expect,
    expect_array,
    expect_pair,
    expect_texts,
    expect_tuple,
)

__all__ = [
    "CHECKS",
    "ModelFileError",
    "check_compositional",
    "check_fitted",
    "check_grown",
    "check_learnt",
    "check_result",
    "expect",
]
_MOST_TAXA = 10**6  # a row of predictions has as many numbers
# Every class that may be part of a model file, and how it is checked
CHECKS: dict[type, Check] = {
    **mixtures.CHECKS,
    **trees.CHECKS,
    **bases.CHECKS,
    **learners.CHECKS,
    **recording.CHECKS,
    **compositions.CHECKS,
}


def check_fitted(fitted: Mapping[str, FromFile]) -> None:
    """Raise ModelFileError unless the fitted attributes fit together."""
    needed = ("mixture_", "families_", "family_weights_", "history_", "feature_importances_")
    recording = ("covariates_", "outcome_names_", "notes_", "atoms_", "grid_")
    for name in (*needed, *recording, "n_trees_", "n_features_in_", "n_outcomes_"):
        expect(name in fitted, f"the attribute {name}")
    mixture, families, weights, history, importances = (fitted[name] for name in needed)
    d = fitted["n_outcomes_"]
    expect(type(d) is int and d >= 1, "a number of outcomes")
    visit = _Visitor()
    n_columns, q = _check_covariates(fitted, visit)
    if "exposure_" in fitted:
        expect(fitted["exposure_"] is True and d == 1, "an exposure of one outcome")
        q += 1
    _check_recording(fitted, q, d, visit)
    visit(mixture, q, Mixture)
    expect(mixture.n_outcomes == d, f"a mixture of {d} outcome(s)")
    expect_tuple(families, "families_")
    for family in families:
        visit(family, q, Family)
        expect(family.members[0].n_outcomes == d, f"families of {d} outcome(s)")
    expect_array(weights, "family_weights_", (len(families),), low=0.0, high=1.0)
    expect_array(importances, "feature_importances_", (n_columns,))
    expect(fitted["n_trees_"] == count_trees(mixture), "n_trees_ trees")
    _check_history(history, "history_", ("member", *HISTORY_COLUMNS))


def check_compositional(fitted: Mapping[str, FromFile]) -> None:
    """Raise ModelFileError unless the fitted attributes of a model of compositions fit together."""
    for name in ("n_features_in_", "covariates_", "n_taxa_", "order_", "effects_", "presence_", "links_"):
        expect(name in fitted, f"the attribute {name}")
    n_taxa, order, effects, links = (fitted[name] for name in ("n_taxa_", "order_", "effects_", "links_"))
    visit = _Visitor()
    _, q = _check_covariates(fitted, visit)
    expect(type(n_taxa) is int and 2 <= n_taxa <= _MOST_TAXA, f"2 to {_MOST_TAXA} taxa")
    if "taxa_" in fitted:
        expect_texts(fitted["taxa_"], "taxa_", n_taxa)
    expect_array(order, "order_", (-1,), np.int64, 0, n_taxa - 1)
    expect(len(np.unique(order)) == len(order), "every taxon once")
    if "depths_" in fitted:
        visit(fitted["depths_"], q, Depths)
        q += 1
    if "subjects_" in fitted:
        visit(fitted["subjects_"], len(order), Subjects)
    visit(effects, q, EffectsWithTrend if type(effects) is EffectsWithTrend else Effects)  # without: ADR 36
    visit(fitted["presence_"], effects.width, Presence)
    expect(len(fitted["presence_"].order) == len(order), "presences of the taxa of order_")
    expect_tuple(links, "links_", len(order))
    for link in links:
        visit(link, q + 1, Link)
        expect(len(link.center) == effects.width + len(order), "features of a log ratio")


def _check_covariates(fitted: Mapping[str, FromFile], visit: Visit) -> tuple[int, int]:
    """The number of columns of X, and of their encoded columns."""
    n_columns = fitted["n_features_in_"]
    expect(type(n_columns) is int and n_columns >= 1, "a number of covariates")
    visit(fitted["covariates_"], n_columns, Covariates)
    names = fitted.get("feature_names_in_", np.empty(n_columns, object))
    are_names = isinstance(names, np.ndarray) and names.dtype == object and names.shape == (n_columns,)
    expect(are_names, f"{n_columns} names of covariates")
    return n_columns, sum(column.width for column in fitted["covariates_"].columns)


def check_learnt(step: FromFile, n_covariates: int, shape: tuple[int, ...]) -> None:
    """Complain unless `step` is a fitted learner of n_covariates columns and its out-of-fold predictions."""
    expect_pair(step, "a step")
    part, left_out = step
    _Visitor()(part, n_covariates, *PREDICTORS, BoostedScores)
    expect_array(left_out, "left-out predictions", shape)
    expect(type(part) is not BoostedScores or part.start.shape == shape[1:], "scores of so many outputs")
    n_outputs = part.n_outputs if type(part) is FittedNetworks else 1
    expect(type(part) is not FittedNetworks or n_outputs == (shape[1:] or (1,))[0], "networks of so many outputs")


def check_grown(trees: FromFile, n_trees: int, n_covariates: int, n_outcomes: int) -> None:
    """Complain unless `trees` is a list of n_trees trees for these numbers of covariates and outcomes."""
    expect(isinstance(trees, list) and len(trees) == n_trees, f"{n_trees} tree(s)")
    for tree in trees:
        _Visitor()(tree, n_covariates, TreeSequence)
        check_axes(tree, n_outcomes)


def check_result(flows: FromFile, history: FromFile, left_out: FromFile, sizes: Sizes) -> None:
    """Complain unless a training job of these sizes can give such flows, history and out-of-fold log densities."""
    expect_tuple(flows, "flows")
    visit = _Visitor()
    for flow in flows:
        visit(flow, sizes.n_covariates, TreeFlow)
        expect(flow.n_outcomes == sizes.n_outcomes, f"flows of {sizes.n_outcomes} outcome(s)")
    expect((left_out is None) == (sizes.n_left_out is None), "log densities of rows left out, if there are any")
    if left_out is not None:
        expect_array(left_out, "left_out", (sizes.n_left_out or 0,), finite=False)
    _check_history(history, "a history", tuple(HISTORY_COLUMNS))


def _check_history(history: FromFile, name: str, columns: Sequence[str]) -> None:
    """Complain unless `history` has exactly these columns: arrays of numbers, one for each tree that was grown."""
    expect(isinstance(history, dict) and set(history) == set(columns), f"{name} with the columns {', '.join(columns)}")
    for column in history.values():
        is_column = isinstance(column, np.ndarray) and column.ndim == 1 and column.dtype.kind in "ifb"
        expect(is_column and len(column) == len(history["stage"]), f"{name} with columns of one length")


def _check_recording(fitted: Mapping[str, FromFile], q: int, d: int, visit: Visit) -> None:
    expect_texts(fitted["outcome_names_"], "outcome_names_", d)
    expect_texts(fitted["notes_"], "notes_")
    if fitted["atoms_"] is not None:
        expect(d == 1, "atoms of one outcome")
        visit(fitted["atoms_"], q, Atoms)
    if fitted["grid_"] is not None:
        visit(fitted["grid_"], d, Grid, ClosedGrid, ListedValues)


class _Visitor:
    """Checks a part with the function for its class, only once for each number q of columns."""

    def __init__(self) -> None:
        self._seen: set[tuple[int, int]] = set()

    def __call__(self, part: FromFile, q: int, *allowed: type) -> None:
        expect(type(part) in allowed, f"{' or '.join(kind.__name__ for kind in allowed)}; got {type(part).__name__}")
        if (id(part), q) not in self._seen:
            CHECKS[type(part)](part, q, self)
            self._seen.add((id(part), q))
