"""Mixtures of what a row may be where some of its covariates are missing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from treecdf._common.typing import Array, Bools

_N_GROUPS = 8  # of versions of a row, each with components of its own


def averaged(parameters: Array, caution: Array, has_level: Bools, unit: float) -> Array:
    """Parameters (n, 3 (G J + 1)) of mixtures of k versions of mixtures (n, k, 3 (J + 1)).

    The last component is the same in all versions, and in the mixture of them.
    Versions are put into groups of like means; the components of a group have the moments of its versions, or those of
    all versions where a level of a category is missing (n,).

    caution: by how much (n,) the variance between versions is taken larger; unit: scale of a component of standard
    deviation 1.
    """
    location, log_scale, log_weight = np.split(parameters, 3, axis=2)
    order = np.argsort((np.exp(log_weight) * location).sum(axis=2), axis=1, kind="stable")[..., None]
    location, log_scale, log_weight = (
        np.take_along_axis(part, order, axis=1) for part in (location, log_scale, log_weight)
    )
    mean = location.mean(axis=1, keepdims=True)
    location = mean + np.sqrt(caution)[:, None, None] * (location - mean)
    whole = _moments(location, log_scale, log_weight, unit)
    found = []
    for group in np.array_split(np.arange(location.shape[1]), min(_N_GROUPS, location.shape[1])):
        own = _moments(location[:, group], log_scale[:, group], log_weight[:, group], unit)
        found.append(np.where(has_level[:, None, None], whole, own))
    return _joined(found)


def padded(parameters: Array, n_components: int) -> Array:
    """The same mixtures (n, 3 (J + 1)) with as many components as `averaged` gives: the further ones have no weight."""
    location, log_scale, log_weight = np.split(parameters, 3, axis=1)
    room = (len(parameters), n_components - location.shape[1])
    further = (np.broadcast_to(part, room) for part in (location[:, :1], log_scale[:, :1], -np.inf))
    parts = zip((location, log_scale, log_weight), further, strict=True)
    return np.hstack([np.hstack([part[:, :-1], more, part[:, -1:]]) for part, more in parts])


def _moments(location: Array, log_scale: Array, log_weight: Array, unit: float) -> Array:
    """Locations, log scales and log weights (n, 3, J) of components with the moments of k versions (n, k, J)."""
    mean = location.mean(axis=1)
    between = ((location - mean[:, None]) ** 2).mean(axis=1)
    variance = np.exp(2 * log_scale).mean(axis=1) + unit**2 * between
    return np.stack([mean, np.log(variance) / 2, np.log(np.exp(log_weight).mean(axis=1))], axis=1)


def _joined(groups: Sequence[Array]) -> Array:
    """Parameters (n, 3 (G J + 1)) of G groups (n, 3, J + 1) of equal weight, whose last components are the same."""
    parts = np.concatenate([group[:, :, :-1] for group in groups], axis=2)
    parts[:, 2] -= np.log(len(groups))
    return np.concatenate([parts, groups[0][:, :, -1:]], axis=2).reshape(len(parts), -1)
