"""From files to models."""

from __future__ import annotations

import os

from treecdf.estimators import compositional, regressor
from treecdf.estimators.compositional import CompositionalFlow
from treecdf.estimators.regressor import TreeFlowRegressor
from treecdf.persist.files import read_model


def load_model(path: str | os.PathLike[str]) -> TreeFlowRegressor | CompositionalFlow:
    """The TreeFlowRegressor or CompositionalFlow that `save` wrote; its predictions are the same to the last bit.

    The file may come from anywhere: it is read as numbers and names, never run, takes no more memory than about ten
    times its size, and is checked before use. One that is cut off, damaged, of another version or inconsistent raises
    ModelFileError.
    """
    model: TreeFlowRegressor | CompositionalFlow = read_model(
        path, {regressor.FORMAT: TreeFlowRegressor._restored, compositional.FORMAT: CompositionalFlow._restored}
    )
    return model
