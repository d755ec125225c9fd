"""Generators of random numbers: from what users pass as a seed, and one for each training job."""

from __future__ import annotations

import numpy as np

from treecdf._common.protocols import Seed


def as_generator(random_state: Seed) -> np.random.Generator:
    """A Generator from whatever scikit-learn or numpy users pass as a seed."""
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31))
    return np.random.default_rng(random_state)


def child(rng: np.random.Generator) -> np.random.Generator:
    """A generator of its own for one job."""
    return np.random.default_rng(rng.integers(2**63, size=4))
