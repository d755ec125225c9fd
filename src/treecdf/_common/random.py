"""Random generators: from seeds of users, and one for each training job."""

from __future__ import annotations

import numpy as np

from treecdf._common.protocols import Seed


def as_generator(random_state: Seed) -> np.random.Generator:
    """A Generator from any seed that scikit-learn or NumPy accept."""
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31))
    return np.random.default_rng(random_state)


def child(rng: np.random.Generator) -> np.random.Generator:
    """A generator for one job, seeded from this one."""
    return np.random.default_rng(rng.integers(2**63, size=4))
