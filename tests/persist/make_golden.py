"""Model files of the present version of the format, and what they predict, for `test_golden.py`.

    python -m tests.persist.make_golden

writes tests/persist/golden anew. Do so when VERSION in treecdf/persist/format.py is raised, and only then: a file that
cannot be read any more, or predicts something else, is what the test is there to find.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

GOLDEN = Path(__file__).parent / "golden"
PREDICTIONS = GOLDEN / "predictions.npz"
N_TRAINING, N_ROWS = 60, 8  # rows to fit to, and rows after them to predict at
LEVELS = [0.05, 0.5, 0.95]


def rows():
    """Covariates (n, 3), outcomes (n, 2) and weights (n,)."""
    rng = np.random.default_rng(16)
    n = N_TRAINING + N_ROWS
    x = rng.normal(size=(n, 3))
    y = np.sin(2 * x[:, 0]) + (0.3 + 0.2 * (x[:, 1] > 0)) * rng.normal(size=n)
    return {"x": x, "y": np.column_stack([y, y**2 + x[:, 2] * rng.normal(size=n)]), "weight": rng.uniform(1, 3, n)}


def table(x):
    """The covariates as a frame with numbers, missing values and text."""
    gaps = np.where(x[:, 1] > 1, np.nan, x[:, 1])
    few = np.array(["low", "", "high"])[np.digitize(x[:, 2], [-0.5, 0.5])]
    many = [f"lével {int(value)}" for value in 8 * (x[:, 0] - x[:, 0].round()) + 4]
    return pd.DataFrame({"number": x[:, 0], "gaps": gaps, "few": few, "many": many})


def compositions(y):
    """Shares of four taxa (n, 4), some of them zero."""
    raw = np.exp(np.column_stack([y, -y]) / 2)
    raw[:, 1:] *= np.abs(y[:, :1]) > [[0.1, 0.3, 0.8]]
    return raw / raw.sum(axis=1, keepdims=True)


def problems():
    """By name, a model to fit, and functions of x (n, 3) and y (n, 2) that give its covariates and its outcomes."""
    from treecdf import CompositionalFlow, TreeFlowRegressor

    few = {"max_trees": 2, "random_state": 0}
    box = TreeFlowRegressor(base="box", **few)
    return {
        "default": (TreeFlowRegressor(**few), table, lambda y: y[:, 0]),
        "chain": (TreeFlowRegressor(structure="chain", effort="fast", **few), np.array, np.array),
        "atoms": (
            TreeFlowRegressor(atoms=[0.0], bounds=(0, None), effort="fast", **few),
            np.array,
            lambda y: np.where(y[:, 1] > 0.2, y[:, 1], 0.0),
        ),
        "grid": (
            TreeFlowRegressor(resolution=0.25, effort="fast", **few),
            np.array,
            lambda y: np.round(4 * y[:, 0]) / 4,
        ),
        "compositional": (CompositionalFlow(flow=box, random_state=0), np.array, compositions),
    }


def predictions(model, x, y):
    """Log densities, and what else a model of its kind predicts, by name."""
    found = {"log_prob": model.log_prob(x, y)}
    if hasattr(model, "n_taxa_"):
        return found | {"zero_prob": model.zero_prob(x, 20), "sample": model.sample(x, 3, random_state=0)}
    distribution = model.predict_distribution(x)
    found |= {"mean": distribution.mean(), "std": distribution.std(), "sample": model.sample(x, 3, random_state=0)}
    if model.n_outcomes_ == 1:
        found |= {"icdf": distribution.icdf(LEVELS), "cdf": distribution.cdf(y), "crps": distribution.crps(y)}
    return found


def main():
    """Write all files, and say how large they are."""
    GOLDEN.mkdir(exist_ok=True)
    known = rows()
    x, y, weight = (known[name] for name in ("x", "y", "weight"))
    for name, (model, as_x, as_y) in problems().items():
        settings = {"sample_weight": weight[:N_TRAINING]} if name in ("default", "chain") else {}
        covariates, outcomes = as_x(x), as_y(y)
        model.fit(covariates[:N_TRAINING], outcomes[:N_TRAINING], **settings)
        path = GOLDEN / f"{name}.tcdf"
        model.save(path)
        found = predictions(model, covariates[N_TRAINING:], outcomes[N_TRAINING:])
        known |= {f"{name}.{key}": value for key, value in found.items()}
        print(f"{path.name}: {path.stat().st_size} bytes")  # noqa: T201
    np.savez_compressed(PREDICTIONS, **known)
    print(f"{PREDICTIONS.name}: {PREDICTIONS.stat().st_size} bytes")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
