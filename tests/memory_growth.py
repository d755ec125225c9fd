"""Memory over many small fits and predictions.

    python -m tests.memory_growth --rounds 1000

prints the resident memory of the process every 100 rounds, and how much it grew after the first 200, in which caches
and kernels settle.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from pathlib import Path

import numpy as np
from sklearn.base import clone

from treecdf import BoostedTrees, Constant, Logistic, Stage, TreeFlowRegressor

EVERY = 100
SETTLED = 200
MOST = 20.0  # MB of growth after that

STAGES = [Stage(Constant(), 2), Stage(Logistic(), 3), Stage(BoostedTrees(rounds=1), 3)]
MODELS = (
    (TreeFlowRegressor(effort="fast", max_trees=2), 1),
    (TreeFlowRegressor(base="box", stages=STAGES, max_trees=2), 2),
    (TreeFlowRegressor(base="student", rotations=2, weights="stacked", stages=STAGES[1:2], max_trees=2), 2),
    (TreeFlowRegressor(base="box", stages=STAGES[:1], resolution=0.1, max_trees=2, n_jobs=2), 1),
)


def round_trip(number):
    """Fit one of the models to a small table of its own and ask it everything."""
    rng = np.random.default_rng(number)
    model, d = MODELS[number % len(MODELS)]
    x = rng.normal(size=(50, 3))
    y = x[:, :1] + rng.normal(size=(50, d))
    model = clone(model).set_params(random_state=number).fit(x, y)
    model.log_prob(x, y)
    model.sample(x, 5, random_state=0)
    distribution = model.predict_distribution(x[:5])
    distribution.mean()
    if d == 1:
        distribution.cdf(distribution.icdf([0.1, 0.9]))


def resident():
    """Memory of the process in MB."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main():
    """Print the memory as the rounds go by."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1000)
    options = parser.parse_args()
    say = lambda text: print(text, flush=True)  # noqa: E731, T201
    found = {}
    for number in range(1, options.rounds + 1):
        round_trip(number)
        if number % EVERY == 0:
            found[number] = resident()
            say(f"{number:5} rounds: {found[number]:.1f} MB")
    grown = found[max(found)] - found[min(SETTLED, max(found))]
    say(f"{grown:+.1f} MB after the first {SETTLED} rounds, at most {MOST:g} allowed")
    return int(grown > MOST)


if __name__ == "__main__":
    sys.exit(main())
