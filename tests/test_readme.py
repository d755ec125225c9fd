"""The README's code works as it stands."""

import re
from pathlib import Path

import pytest

BLOCKS = re.findall(r"```python\n(.*?)```", (Path(__file__).parent.parent / "README.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_code_block_runs(block):
    names = {}
    exec(block, names)
    assert names["model"].score(names["X"], names["y"]) > -1.3  # the best single normal reaches about -1.46
