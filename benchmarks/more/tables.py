"""The tables: which columns are covariates and outcome, where they come from, and how they are split."""

import gzip
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.download import cache_directory, read_url
from benchmarks.machine import ROOT

if TYPE_CHECKING:
    import pandas as pd

UCI = "https://raw.githubusercontent.com/treforevans/uci_datasets/master/uci_datasets/{file}/data.csv.gz"
SEABORN = "https://raw.githubusercontent.com/mwaskom/seaborn-data/master/{file}.csv"
N_SPLITS = 5
SMALL = 3000  # rows up to which a table is run when nobody says which


@dataclass(frozen=True)
class Task:
    """One outcome of a table: rows with a known outcome, the outcome's column, columns that must not be known.

    `few`: whether the outcome is on few values or often the same, so that densities cannot be compared.
    """

    file: str
    n: int
    outcome: str = "y0"
    without: tuple[str, ...] = ()
    dates: tuple[str, ...] = ()
    few: bool = False

    @property
    def is_numeric(self) -> bool:
        """Whether it is one of the tables of numbers alone."""
        return self.outcome == "y0"


TASKS = {
    "servo": Task("servo", 167, few=True),
    "machine": Task("machine", 209, few=True),
    "autos": Task("autos", 159),
    "breastcancer": Task("breastcancer", 194, few=True),
    "forest": Task("forest", 517, few=True),
    "pendulum": Task("pendulum", 630),
    "solar": Task("solar", 1066, few=True),
    "gas": Task("gas", 2565, few=True),
    "pol": Task("pol", 15000, few=True),
    "kin40k": Task("kin40k", 40000),
    "tamielectric": Task("tamielectric", 45781),
    "keggdirected": Task("keggdirected", 48827, few=True),
    "geyser waiting": Task("geyser", 272, "waiting", ("kind",), few=True),
    "geyser duration": Task("geyser", 272, "duration", ("kind",), few=True),
    "titanic age": Task("titanic", 714, "age", ("who", "adult_male", "alive"), few=True),
    "titanic fare": Task("titanic", 891, "fare", ("alive",), few=True),
    "planets mass": Task("planets", 513, "mass"),
    "planets period": Task("planets", 992, "orbital_period"),
    "taxis fare": Task("taxis", 6433, "fare", ("total", "tip", "tolls"), ("pickup", "dropoff"), few=True),
    "taxis tip": Task("taxis", 6433, "tip", ("total",), ("pickup", "dropoff"), few=True),
    "diamonds": Task("diamonds", 53940, "price"),
}


@cache
def load(name: str) -> tuple["pd.DataFrame", np.ndarray]:
    """Covariates as a frame, and outcomes (n,), of the rows whose outcome is known."""
    import pandas as pd

    task = TASKS[name]
    table = pd.read_csv(_local(task) or _downloaded(task), parse_dates=list(task.dates) or False)
    table = table[table[task.outcome].notna()].reset_index(drop=True)
    if len(table) != task.n:
        raise ValueError(f"{name} has {len(table)} rows with an outcome; expected {task.n}")
    return table.drop(columns=[task.outcome, *task.without]), table[task.outcome].to_numpy(np.float64)


def split(n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Training and test rows of split k: a tenth is tested."""
    rows = np.random.default_rng(k).permutation(n)
    return rows[n // 10 :], rows[: n // 10]


def as_numbers(train: "pd.DataFrame", test: "pd.DataFrame") -> tuple[np.ndarray, np.ndarray]:
    """Covariates for libraries that read numbers alone, by what training rows have.

    Levels of text are counted by frequency, dates are days, gaps are medians.
    """
    import pandas as pd

    found: list[list[np.ndarray]] = [[], []]
    for name in train:
        parts = train[name], test[name]
        if pd.api.types.is_datetime64_any_dtype(train[name]):
            parts = tuple((part - train[name].min()).dt.total_seconds() / 86400 for part in parts)
        elif not pd.api.types.is_numeric_dtype(train[name]):
            codes = {level: code for code, level in enumerate(train[name].value_counts().index)}
            parts = tuple(part.map(codes) for part in parts)
        middle = parts[0].astype(float).median()
        for side, part in zip(found, parts, strict=True):
            side.append(part.astype(float).fillna(middle if np.isfinite(middle) else 0.0).to_numpy())
    return np.column_stack(found[0]), np.column_stack(found[1])


def _local(task: Task) -> Path | None:
    """The file in the directory that TREECDF_DATA names or else in ../shared/data, None if there is none."""
    given = os.environ.get("TREECDF_DATA")
    path = (Path(given) if given else ROOT.parent / "shared" / "data") / "more" / f"{task.file}.csv.gz"
    return path if path.is_file() else None


def _downloaded(task: Task) -> Path:
    """The file of the public source, kept in the cache; those of numbers alone come without names of columns."""
    path = cache_directory() / f"more_{task.file}.csv"
    if not path.is_file():
        content = read_url((UCI if task.is_numeric else SEABORN).format(file=task.file))
        if task.is_numeric:
            content = gzip.decompress(content)
            q = content.split(b"\n", 1)[0].count(b",")
            content = b",".join([*(b"x%d" % j for j in range(q)), b"y0"]) + b"\n" + content
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return path
