"""Loading of models from files."""

from __future__ import annotations

import os

from treecdf.estimators import compositional, regressor
from treecdf.estimators.compositional import CompositionalFlow
from treecdf.estimators.regressor import TreeFlowRegressor
from treecdf.persist.files import read_model


def load_model(path: str | os.PathLike[str]) -> TreeFlowRegressor | CompositionalFlow:
    """The model that `save` wrote to a file; its predictions are the same to the last bit.

    The file may be from an untrusted source: it is read as numbers and names, never run, takes memory in proportion to
    its size (docs/model-files.md), and is checked before use.

    Parameters
    ----------
    path : path
        The file.

    Returns
    -------
    TreeFlowRegressor or CompositionalFlow
        The fitted model.

    Raises
    ------
    ModelFileError
        If the file is cut off, damaged, of another version or inconsistent.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from treecdf import TreeFlowRegressor, load_model
    >>> x = np.linspace(0, 1, 60)[:, None]
    >>> model = TreeFlowRegressor(effort="fast", max_trees=5, random_state=0).fit(x, x[:, 0] ** 2)
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     model.save(f"{directory}/model.tcdf")
    ...     loaded = load_model(f"{directory}/model.tcdf")
    >>> bool((loaded.predict(x) == model.predict(x)).all())
    True
    """
    model: TreeFlowRegressor | CompositionalFlow = read_model(
        path, {regressor.FORMAT: TreeFlowRegressor._restored, compositional.FORMAT: CompositionalFlow._restored}
    )
    return model
