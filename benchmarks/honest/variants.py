"""The same rows in other forms: twice, with weights, in another order, from files; the models should be the same."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.honest.fitter import Fitter, Generator, Metrics
from benchmarks.honest.measures import FRESH, coverage, differences
from benchmarks.honest.truths import TRUTHS


@dataclass(frozen=True)
class Variant:
    """Another form of the same rows.

    `rows(x, y, rng)` gives what `fit` takes, `covariates` changes new x alike, and the log densities are compared with
    those of the model `against`.
    """

    rows: Callable[[np.ndarray, np.ndarray, Generator], dict]
    covariates: Callable[[np.ndarray], np.ndarray] = lambda x: x
    against: str = "plain"


def _with_exponential(x: np.ndarray) -> np.ndarray:
    return np.column_stack([np.exp(x[:, 0]), x[:, 1:]])


def _chosen(x: np.ndarray, y: np.ndarray, rows: np.ndarray) -> dict:
    return {"x": x[rows], "y": y[rows]}


VARIANTS = {
    "plain": Variant(lambda x, y, rng: {"x": x, "y": y}),
    "weight_2": Variant(lambda x, y, rng: {"x": x, "y": y, "sample_weight": np.full(len(x), 2.0)}),
    "twice": Variant(lambda x, y, rng: _chosen(x, y, np.arange(2 * len(x)) % len(x)), against="weight_2"),
    "bootstrap": Variant(lambda x, y, rng: _chosen(x, y, rng.integers(len(x), size=len(x)))),
    "order": Variant(lambda x, y, rng: _chosen(x, y, rng.permutation(len(x)))),
    "weights_05": Variant(lambda x, y, rng: {"x": x, "y": y, "sample_weight": np.full(len(x), 0.05)}),
    "exponential": Variant(lambda x, y, rng: {"x": _with_exponential(x), "y": y}, _with_exponential),
}


def try_variants(fit: Fitter, rng: Generator, n: int, names: tuple[str, ...]) -> Metrics:
    """Fit the same n rows of the linear truth plainly and in other forms; metrics begin with the form's name."""
    source = TRUTHS["linear"]
    x, y = source.rows(n, rng)
    x_new, y_new = source.rows(FRESH, rng)
    true, metrics, found = source.log_density(x_new, y_new), {}, {}
    for name in ("plain", *names):
        variant = VARIANTS[name]
        model, asked = fit(**variant.rows(x, y, rng)), variant.covariates(x_new)
        found[name] = model.log_prob(asked, y_new)
        own = coverage(model.predict_distribution(asked), y_new) | {"gap": float(np.mean(true - found[name]))}
        own["coverage_change"] = own["coverage_90"] - metrics.get("plain_coverage_90", own["coverage_90"])
        own["lost"] = float(np.mean(found["plain"] - found[name]))
        own |= differences(found[name], found[variant.against])
        metrics |= {f"{name}_{key}": value for key, value in own.items()}
    return metrics


def try_files(fit: Fitter, rng: Generator, n: int) -> Metrics:
    """Fit the same rows from one Parquet file, from three in another order, and from Dask in that order."""
    import dask.dataframe as dd
    import pandas as pd

    source = TRUTHS["linear"]
    x, y = source.rows(n, rng)
    x_new, y_new = source.rows(FRESH, rng)
    names = [f"x{j}" for j in range(x.shape[1])]
    table = pd.DataFrame(x, columns=names).assign(y=y, weight=1.0)
    reordered = table.iloc[rng.permutation(n)].reset_index(drop=True)

    def from_files(frame, parts: int):
        with tempfile.TemporaryDirectory() as directory:
            for k, some in enumerate(np.array_split(np.arange(len(frame)), parts)):
                frame.iloc[some].to_parquet(Path(directory) / f"{k}.parquet", index=False)
            return fit.by(lambda model: model.fit_parquet(directory, "y", names, sample_weight="weight"))

    lazy = dd.from_pandas(reordered, npartitions=3)
    models = {
        "one": from_files(table, 1),
        "three": from_files(reordered, 3),
        "dask": fit.by(lambda model: model.fit(lazy[names], lazy["y"])),
        "weight_2": from_files(table.assign(weight=2.0), 1),
        "twice": from_files(pd.concat([table, table]), 2),
    }
    found = {name: model.log_prob(pd.DataFrame(x_new, columns=names), y_new) for name, model in models.items()}
    compared = {"order": ("three", "one"), "dask": ("dask", "one"), "twice": ("twice", "weight_2")}
    return {
        f"{name}_{key}": value
        for name, (one, other) in compared.items()
        for key, value in differences(found[one], found[other]).items()
    }
