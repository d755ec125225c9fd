"""Training of the links of a composition: a taxon's log ratio given the covariates and the taxa before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import solve
from scipy.optimize import nnls
from sklearn.base import clone

from treecdf._common.typing import Array, Ints
from treecdf.bases.linear_mixture import fit_linear_mixture
from treecdf.bases.student import Student
from treecdf.data.recording import is_few
from treecdf.data.scaling import Standardizer
from treecdf.estimators.fitting import FittedState, fit_table
from treecdf.estimators.regressor import TreeFlowRegressor
from treecdf.flows.composition.drawing import At
from treecdf.flows.composition.presence import splits
from treecdf.flows.composition.ratios import Link, standardized
from treecdf.flows.flow import TreeFlow
from treecdf.flows.mixture import Mixture
from treecdf.flows.weights import equal_weights
from treecdf.persist.checkpoint import NoCheckpoint
from treecdf.training.parameters import read_settings

_N_FOLDS = 5  # Folds of a taxon whose rows are all in one fold of the composition.
_MARGIN = 0.03  # Flows reach beyond the range of the log ratios by this share of it.
_FEWEST_ROWS = 30  # Rows for a flow; a taxon of fewer has a Student t around its mean.
_DEGREES = 10.0  # Degrees of freedom of that t.
_PRIOR_ROWS = 5.0  # Rows that the prior of its scale counts for.
_PRIOR_SCALE = 1.5  # Scale of a log ratio before any row is seen.
# Penalties of effects of the covariates and of the other taxa, whose ridge regressions are stacked.
_PENALTIES = tuple((own, other) for own in (10.0, 200.0) for other in (30.0, 300.0, 3000.0))
_SHRINKAGE = 5.0  # Rows that the penalty of the stack's weights counts for.


@dataclass(frozen=True)
class FittedLink:
    """The link of a taxon, and warnings about its flow."""

    link: Link
    was_interrupted: bool = False  # before it had all its trees
    has_repeats: bool = False  # whether some of its trees were not grown because log ratios repeat


def fit_link(
    flow: TreeFlowRegressor | None,
    at: At,
    effects: Array,
    features: Array,
    log_ratio: Array,
    fold: Ints,
    weight: Array,
    seed: int,
) -> FittedLink:
    """The link of a taxon, from the n rows in which it follows others.

    effects (n, p) of the covariates, features (n, f) made of the other taxa, and log ratios (n,).
    """
    raw = np.hstack([effects, features])
    total = float(weight.sum())
    rare = _student(log_ratio, weight, at.x.shape[1] + 1)
    if total < _FEWEST_ROWS or len(raw) < 2:
        width = raw.shape[1]
        return FittedLink(Link(np.zeros(width), np.ones(width), np.zeros(width), rare))
    if fold.min() == fold.max():
        fold = np.arange(len(raw)) % _N_FOLDS
    center, scale = _moments(raw, weight)
    z = standardized(raw, center, scale)
    slopes, left_out = _stacked_ridge(z, log_ratio, effects.shape[1], fold, weight)
    given = np.column_stack([at.x, left_out])
    if flow is None:
        own, missing, ended = _usual_flow(given, log_ratio, weight, at.floor), False, False
    else:
        fitted = _fit_flow(flow, given, log_ratio, weight, seed)
        own, missing, ended = fitted.attributes["mixture_"], bool(fitted.missing), bool(fitted.ended)
    return FittedLink(Link(center, scale, slopes, _with_rare(own, rare, 1 / (total + 1))), missing, ended)


def _usual_flow(given: Array, log_ratio: Array, weight: Array, floor: Array | None) -> Mixture:
    """A mixture of normals cut off at the range, linear in x and the prediction (n, q + 1)."""
    standardize = Standardizer.fit(given, weight)
    base = fit_linear_mixture(standardize(given), log_ratio, weight, _bounds(log_ratio), floor)
    return Mixture((TreeFlow(standardize, base, ()),), equal_weights(1))


def _fit_flow(flow: TreeFlowRegressor, given: Array, log_ratio: Array, weight: Array, seed: int) -> FittedState:
    """The user's flow, fitted within the range of the log ratio."""
    own = clone(flow).set_params(bounds=_bounds(log_ratio), random_state=seed)
    settings = read_settings(own.get_params(deep=False))
    if is_few(settings.resolution):  # ratios are numbers, however few there are
        settings = replace(settings, resolution=None)
    return fit_table(settings, (given, log_ratio, weight, None), None, NoCheckpoint())


def _moments(raw: Array, weight: Array) -> tuple[Array, Array]:
    """Weighted means and standard deviations (p,) of features (n, p); the latter infinite for constants."""
    center = weight @ raw / weight.sum()
    scale = np.sqrt(weight @ (raw - center) ** 2 / weight.sum())
    return center, np.where(scale > 1e-9, scale, np.inf)


def _stacked_ridge(z: Array, y: Array, n_effects: int, fold: Ints, weight: Array) -> tuple[Array, Array]:
    """Slopes of standardised features z (n, p), and predictions (n,) of left-out rows; y's mean is not predicted.

    A sum of ridge regressions under all penalties, with weights that are not negative and fit left-out rows best.
    """
    center = weight @ y / weight.sum()
    left_out = np.empty((len(y), len(_PENALTIES)))
    for train, test in splits(fold):
        w = weight[train]
        offset, mean = w @ y[train] / w.sum(), w @ z[train] / w.sum()
        slopes = _ridge_path(z[train] - mean, y[train] - offset, n_effects, w)
        left_out[test] = offset - center + (z[test] - mean) @ slopes
    root = np.sqrt(weight)
    share = weight / weight.sum()
    variance = share @ (left_out - (share @ left_out).mean()) ** 2
    shrink = np.sqrt(_SHRINKAGE * variance.mean()) * np.eye(len(_PENALTIES))
    shares = nnls(np.vstack([root[:, None] * left_out, shrink]), np.append(root * (y - center), np.zeros(len(shrink))))[
        0
    ]
    return _ridge_path(z, y - center, n_effects, weight) @ shares, left_out @ shares


def _ridge_path(z: Array, y: Array, n_effects: int, weight: Array) -> Array:
    """Slopes (p, penalties) under each pair of penalties."""
    weighted = z.T * weight
    gram, target = weighted @ z, weighted @ y
    n_others = len(gram) - n_effects
    penalties = [np.repeat(pair, [n_effects, n_others]) for pair in _PENALTIES]
    return np.column_stack([solve(gram + np.diag(penalty), target, assume_a="pos") for penalty in penalties])


def _bounds(log_ratio: Array) -> tuple[float, float]:
    """The range of the log ratios, slightly widened: the bounds of whatever flow learns them.

    Tails must be light: among a hundred taxa one with a far too large log ratio takes the whole composition.
    """
    margin = _MARGIN * np.ptp(log_ratio) or 1.0
    return float(log_ratio.min() - margin), float(log_ratio.max() + margin)


def _with_rare(flow: Mixture, rare: Mixture, weight: float) -> Mixture:
    """The mixture with one more flow of small weight, for log ratios beyond the range."""
    log_weights = np.pad(flow.log_weights + np.log1p(-weight), ((0, 0), (0, 1)), constant_values=np.log(weight))
    return Mixture((*flow.members, *rare.members), log_weights, flow.regions)


def _student(log_ratio: Array, weight: Array, n_columns: int) -> Mixture:
    """A Student t around the mean of some log ratios that ignores its n_columns covariates."""
    total = weight.sum()
    location = weight @ log_ratio / total if total > 0 else 0.0
    squares = weight @ (log_ratio - location) ** 2 + _PRIOR_ROWS * _PRIOR_SCALE**2
    scale = np.sqrt(squares / (total + _PRIOR_ROWS))
    base = Student(np.array([location]), np.array([scale]), np.array([_DEGREES]))
    standardize = Standardizer(np.ones(n_columns), np.zeros(n_columns), np.ones(n_columns))
    return Mixture((TreeFlow(standardize, base, ()),), equal_weights(1))


def told(fitted: Sequence[FittedLink], taxa: Sequence[str]) -> list[str]:
    """Warnings about the flows of the taxa, collected from all processes."""
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
