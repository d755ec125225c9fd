"""Write src/treecdf/_kernels/first_fit.py: what a first default fit compiles, in the order of use.

Run `python -m tests.record_kernels` after a change of kernels or of what they are called with.
"""

import json
import pathlib
import subprocess
import sys

import numpy as np

from treecdf import TreeFlowRegressor
from treecdf._kernels import compiling
from treecdf._kernels.beside import name_of, words_of

FILE = pathlib.Path(compiling.__file__).with_name("first_fit.py")
TEXT = '''"""Kernels of a first default fit and of the first questions after it, with the types of their arguments.

`python -m tests.record_kernels` writes this file: in the order in which the kernels are used; `type:n` is an array of n
axes. What is not here, or no longer true, costs time at the first fit and nothing else.
"""

# ruff: noqa: E501

FIRST_FIT: tuple[tuple[str, str, str], ...] = (
{fit})

FIRST_QUESTIONS: tuple[tuple[str, str, str], ...] = (
{questions})
'''


def recorded():
    """Kernels that a default fit asks for, and those that the first questions ask for after it, in a new process."""
    asked = []
    load = compiling.KernelCache.load_overload

    def note(self, signature, context):
        words = words_of(signature)
        if words is not None:
            asked.append((*name_of(self._function).split("."), words))
        return load(self, signature, context)

    compiling.KernelCache.load_overload = note
    try:
        rng = np.random.default_rng(0)
        x = rng.normal(size=(200, 4))
        model = TreeFlowRegressor(random_state=0, n_jobs=1).fit(x, x[:, 0] + rng.normal(size=200))
        fit = list(dict.fromkeys(asked))
        asked.clear()
        model.log_prob(x, x[:, 0])
        model.predict_distribution(x).icdf([0.05, 0.5, 0.95])
        model.predict(x)
        model.sample(x, 2, random_state=0)
    finally:
        compiling.KernelCache.load_overload = load
    return fit, [entry for entry in dict.fromkeys(asked) if entry not in fit]


def recorded_twice():
    """What a second new process records: in the first one kernels that others call may have to be compiled too."""
    command = "import json; from tests.record_kernels import recorded; print(json.dumps(recorded()))"
    for _ in range(2):
        root = pathlib.Path(__file__).parents[1]
        done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, cwd=root, check=True)
    return [[tuple(entry) for entry in part] for part in json.loads(done.stdout)]


def main():
    """Write the file."""
    lists = ["".join(f'    ("{m}", "{name}", "{types}"),\n' for m, name, types in part) for part in recorded_twice()]
    FILE.write_text(TEXT.format(fit=lists[0], questions=lists[1]))


if __name__ == "__main__":
    main()
