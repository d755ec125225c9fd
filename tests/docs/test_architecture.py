"""The walks of docs/architecture.md: every hop is a function that exists, none goes up a floor, none is long."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/architecture.md").read_text()
HOP = re.compile(r"^\d+\. `([\w/]+\.py)` `([\w.]+)`: ", re.MULTILINE)
WALKS = {part.splitlines()[0]: HOP.findall(part) for part in PAGE.split("\n## ")[1:]}
CONTRACT = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
FLOORS = {name: k for k, layer in enumerate(CONTRACT["layers"]) for name in re.split(r"[ :|]+", layer)}


def functions_of(path):
    """Names of the functions of a file, those of classes with the class before them."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{own.name}" for own in node.body if isinstance(own, ast.FunctionDef)}
    return names


def test_the_page_has_the_walks_that_a_reader_asks_for():
    for wanted in ("fit: the row is read", "fit: the row is learnt from", "log_prob", "icdf", "mean", "save", "load"):
        assert WALKS[wanted]
    assert len(WALKS) == 9


@pytest.mark.parametrize("name", WALKS)
def test_a_walk_is_short_and_goes_down(name):
    hops = WALKS[name]
    assert 3 <= len(hops) <= 12
    floors = [FLOORS[file.split("/")[0]] for file, _ in hops]
    assert floors == sorted(floors)


@pytest.mark.parametrize(("file", "function"), sorted({hop for hops in WALKS.values() for hop in hops}))
def test_a_hop_exists(file, function):
    assert function in functions_of(ROOT / "src/treecdf" / file)
