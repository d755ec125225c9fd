"""Predictions of many rows need memory for their answers and for a bounded work space."""

import subprocess
import sys

import pytest

# Models of few trees, so that 50,000 rows are quick; the limit is set when everything is compiled.
CODE = """
import sys
import resource
import numpy as np
from treecdf import TreeFlowRegressor

rng = np.random.default_rng(0)
x = rng.normal(size=(50_000, 5))
y = x[:, 0].copy()
model = TreeFlowRegressor(base=sys.argv[1], max_trees=1, random_state=0, n_jobs=1).fit(x[:200], y[:200])

def ask(x, y):
    d = model.predict_distribution(x)
    yield model.log_prob(x, y)
    if sys.argv[1] != "box":  # its learners are asked in blocks, whatever the question
        return
    yield d.icdf([0.05, 0.5, 0.95])
    yield d.sample(10, 0)
    yield d.mean()
    yield d.crps(y)

list(ask(x[:5000], y[:5000]))
with open("/proc/self/status") as file:
    used = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmData"))
limit = used + 100_000_000
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
for answer in ask(x, y):
    print(np.isfinite(answer).all())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of data are Linux's")
@pytest.mark.parametrize(("base", "n_answers"), [("box", 5), ("conditional", 1)])
def test_the_work_space_does_not_grow_with_the_rows(base, n_answers):
    done = subprocess.run([sys.executable, "-c", CODE, base], capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["True"] * n_answers, done.stderr
