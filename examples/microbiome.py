"""Synthetic microbiomes given age: learn compositions with zeros, draw one for every age, compare.

    python examples/microbiome.py

With TREECDF_DATA naming a directory that holds diabimmune/otu.csv.gz it uses these 777 stool samples of infants (about
a minute), otherwise simulated ones.
"""

import csv
import gzip
import os
from pathlib import Path

import numpy as np

from treecdf import CompositionalFlow


def real_samples(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ages in days (n, 1), reads of taxa (n, 100), and whose samples they are (n,)."""
    with gzip.open(path, "rt") as file:
        lines = list(csv.reader(file))[1:]
    table = np.array([line[2:103] for line in lines], dtype=float)
    total = np.array([line[-1] for line in lines], dtype=float)  # the file has shares of all reads
    return table[:, :1], np.round(table[:, 1:] * total[:, None]), np.array([line[1] for line in lines])


def simulated_samples(n_infants: int = 50, n_taxa: int = 12) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Counts of taxa that settle one after the other, read to different depths; infants have levels of their own."""
    rng = np.random.default_rng(0)
    infant = np.repeat(np.arange(n_infants), 6)
    n = len(infant)
    age = rng.uniform(10, 1000, size=(n, 1))
    arrival = np.linspace(-300, 900, n_taxa)
    present = rng.random((n, n_taxa)) < 1 / (1 + np.exp((arrival - age) / 100))
    present[:, 0] = True
    bloom = np.exp(rng.normal(size=(n_infants, n_taxa))[infant] + 0.5 * rng.normal(size=(n, n_taxa)))
    share = present * bloom / (present * bloom).sum(axis=1, keepdims=True)
    return age, np.array([rng.multinomial(rng.integers(200, 2000), row) for row in share], dtype=float), infant


def main() -> None:
    """Fit, draw and compare."""
    path = Path(os.environ.get("TREECDF_DATA", ".")) / "diabimmune" / "otu.csv.gz"
    age, counts, infant = real_samples(path) if path.is_file() else simulated_samples()
    model = CompositionalFlow(counts=True, random_state=0).fit(age, counts, subject=infant, time=age[:, 0])
    depth = counts.sum(axis=1)
    synthetic = model.sample(age, 1, random_state=0, depth=depth, subject=infant, time=age[:, 0])[:, 0]

    difference = np.abs((counts == 0).mean(axis=0) - (synthetic == 0).mean(axis=0))
    print(f"{len(age)} samples of {counts.shape[1]} taxa, as many synthetic ones of the same ages and numbers of reads")
    print(f"zeros per taxon: real and synthetic differ by {100 * difference.mean():.1f} percentage points on average")
    for low, high in zip((0, 250, 500), (250, 500, np.inf), strict=True):
        rows = (age[:, 0] >= low) & (age[:, 0] < high)
        real, drawn = ((y[rows] > 0).sum(axis=1).mean() for y in (counts, synthetic))
        print(f"age {low} to {high:g} days: {real:.1f} taxa in real samples, {drawn:.1f} in synthetic ones")
    ages = np.quantile(age, [0.1, 0.9])[:, None]
    for name, (mean, lower, upper) in zip(("young", "old"), model.functional("shannon", ages), strict=True):
        print(f"Shannon diversity of the {name}: {mean:.2f} on average, 90 % between {lower:.2f} and {upper:.2f}")
    young, old = model.zero_prob(ages, depth=int(np.median(depth)))
    taxon = int(np.argmax(young - old))
    print(f"taxon {taxon} is absent with probability {young[taxon]:.2f} in the young and {old[taxon]:.2f} in the old")


if __name__ == "__main__":
    main()
