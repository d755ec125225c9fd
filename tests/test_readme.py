"""The README's code works as it stands."""

import re
from pathlib import Path

BLOCKS = re.findall(r"```python\n(.*?)```", (Path(__file__).parent.parent / "README.md").read_text(), re.DOTALL)


def test_code_blocks_run_one_after_the_other():
    names = {}
    for block in BLOCKS:
        exec(block, names)
    assert names["model"].score(names["X"], names["y"]) > -1.3  # the best single normal reaches about -1.46
    assert names["joint"].sample(names["X"][:5], 3).shape == (5, 3, 2)
    assert "RandomForestRegressor" in names["forest"].summary()
