"""Every code block of the README and of the documentation runs as it stands."""

import re
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from treecdf import TreeFlowRegressor

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
pyplot = pytest.importorskip("matplotlib.pyplot")

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    *(
        f"docs/{name}.md"
        for name in ("index", "tables", "compositions", "command-line", "scikit-learn", "settings", "scaling")
    ),
]
RECIPES = ["node-classifier", "mean-learner", "row-source", "outcome-type"]  # their code checks itself


def blocks(text):
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def run(page):
    """The names after all blocks of a page have run, one after the other."""
    names = {}
    for block in blocks((ROOT / page).read_text()):
        exec(block, names)
    return names


@pytest.mark.parametrize("page", PAGES)
def test_blocks_of_a_page_run_one_after_the_other(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run(page)
    assert "model" in names or "pipe" in names
    if page == "README.md":
        assert names["model"].score(names["X"], names["y"]) > -1.3  # the best single normal reaches about -1.46
        assert names["joint"].sample(names["X"][:5], 3).shape == (5, 3, 2)
        assert "RandomForestRegressor" in names["forest"].summary()


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_for_contributors_work(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = f"docs/contributing/{name}.md"
    assert "\nassert " in (ROOT / page).read_text()
    run(page)


def test_every_page_with_code_is_among_them():
    pages = {str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md") if blocks(page.read_text())}
    recipes = {f"docs/contributing/{name}.md" for name in RECIPES}
    assert pages <= {*PAGES, *recipes, "docs/gallery.md", "docs/skpro.md"}  # the last: test_skpro


# The gallery shows two lines for each picture; what it draws is fitted here, small.

GALLERY = re.split(r"^## ", (ROOT / "docs/gallery.md").read_text(), flags=re.MULTILINE)[1:]


@cache
def context(heading):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(200, 1))
    y = x[:, 0] + rng.normal(size=200)
    if heading.startswith("Joint"):
        y = np.column_stack([y, rng.normal(size=200)])
    elif not heading.startswith("Density"):
        x = pd.DataFrame({"hour": 24 * x[:, 0], "bmi": rng.normal(size=200)})
    model = TreeFlowRegressor(effort="fast", random_state=0, max_trees=2).fit(x, y)
    return {"model": model, "X": x, "y": y, "X_test": x, "y_test": y, "near": slice(0, 20)}


@pytest.mark.parametrize("section", GALLERY, ids=[section.split("\n")[0] for section in GALLERY])
def test_two_lines_draw_each_picture(section):
    (block,) = blocks(section)
    names = dict(context(section))
    exec(block, names)
    pyplot.close("all")
    for picture in re.findall(r"\((gallery/.*?)\)", section):
        assert (ROOT / "docs" / picture).stat().st_size < 500_000


def test_pages_link_to_files_that_exist():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_page_of_results_is_in_the_navigation():
    (results,) = [
        entry["Results"] for entry in yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"] if "Results" in entry
    ]
    listed = [page for entry in results for page in entry.values()]
    assert sorted(listed) == sorted(f"results/{page.name}" for page in (ROOT / "docs/results").glob("*.md"))
