"""The 777 stool samples of 33 infants: counts of reads of the 100 most abundant taxa."""

import gzip
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.machine import ROOT

FILE = "diabimmune/otu.csv.gz"
SOURCE = "DIABIMMUNE T1D cohort, 16S, via github.com/MaStatLab/LTN_analysis (commit 7997ced)"
SHA256 = "19c2bc6f02388360d8e7b7e2fdeb45eac012d2a31be36bc18dae53c4984ab09a"
N_TAXA = 100
N_FOLDS = 3


@dataclass(frozen=True)
class Samples:
    """Ages (n, 1) in days, reads of each taxon (n, taxa), and whose they are (n,)."""

    age: np.ndarray
    counts: np.ndarray
    infant: np.ndarray

    @property
    def depth(self) -> np.ndarray:
        """Reads (n,) of all taxa together."""
        return self.counts.sum(axis=1)

    @property
    def y(self) -> np.ndarray:
        """Compositions (n, taxa) of sum one."""
        return self.counts / self.counts.sum(axis=1, keepdims=True)

    def take(self, rows: np.ndarray) -> "Samples":
        """Some of the samples."""
        return Samples(self.age[rows], self.counts[rows], self.infant[rows])


def load() -> Samples:
    """The samples; their counts come back exactly from the shares of all reads that the file has."""
    given = os.environ.get("TREECDF_DATA")
    path = (Path(given) if given else ROOT.parent / "shared" / "data") / FILE
    if not path.is_file():
        raise FileNotFoundError(f"no data file {FILE} in the directory that TREECDF_DATA names. Source: {SOURCE}")
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256:
        raise ValueError(f"{FILE} has sha256 {found}; expected {SHA256}")
    lines = [line.split(",") for line in gzip.decompress(content).decode().splitlines()[1:]]
    shares = np.array([line[3 : 3 + N_TAXA] for line in lines], dtype=np.float64)
    reads = np.array([line[-1] for line in lines], dtype=np.float64)
    age = np.array([line[2:3] for line in lines], dtype=np.float64)
    return Samples(age, np.round(shares * reads[:, None]), np.array([line[1] for line in lines]))


def infant_folds(infant: np.ndarray, seed: int, n_folds: int = N_FOLDS) -> list[np.ndarray]:
    """Rows of each fold; an infant's samples are all in one."""
    names, number = np.unique(infant, return_inverse=True)
    fold = np.random.default_rng(seed).permutation(len(names)) % n_folds
    return [np.flatnonzero(fold[number] == f) for f in range(n_folds)]
