"""Every code block of the README and of the documentation runs as it stands."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import yaml

from treecdf import TreeFlowRegressor
from treecdf.cli.main import main

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
pyplot = pytest.importorskip("matplotlib.pyplot")

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    *(
        f"docs/{name}.md"
        for name in (
            "index",
            "tables",
            "compositions",
            "command-line",
            "scikit-learn",
            "settings",
            "scaling",
            "gallery",
        )
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
    pyplot.close("all")
    assert "model" in names or "pipe" in names
    if page == "README.md":
        assert names["model"].score(names["X"], names["y"]) > -1.3  # the best single normal reaches about -1.46


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_for_contributors_work(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = f"docs/contributing/{name}.md"
    assert "\nassert " in (ROOT / page).read_text()
    run(page)


def test_every_page_with_code_is_among_them():
    pages = {str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md") if blocks(page.read_text())}
    recipes = {f"docs/contributing/{name}.md" for name in RECIPES}
    assert pages <= {*PAGES, *recipes, "docs/skpro.md"}  # the last: test_skpro


def test_pictures_of_the_gallery_are_small():
    for picture in re.findall(r"\((gallery/.*?)\)", (ROOT / "docs/gallery.md").read_text()):
        assert (ROOT / "docs" / picture).stat().st_size < 500_000


# Commands


def commands(page):
    """The lines of a page's shell blocks that call treecdf, without their comments."""
    lines = "\n".join(re.findall(r"```sh\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)).splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("treecdf ")]


@pytest.mark.parametrize("page", ["README.md", "docs/command-line.md"])
def test_commands_of_a_page_run_as_they_stand(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tables,) = [block for block in blocks((ROOT / "README.md").read_text()) if "houses.csv" in block]
    exec(tables, {"rng": np.random.default_rng(0), "TreeFlowRegressor": TreeFlowRegressor})
    assert len(commands(page)) >= 3
    for command in commands(page):
        extra = ["--effort", "fast", "--jobs", "1"] if command[0] == "fit" else []
        assert main([*command, *extra]) == 0, command


def test_the_first_command_installs_what_the_readme_shows():
    text = (ROOT / "README.md").read_text()
    assert 'pip install ".[plots,cli]"' in text.split("```sh")[1]
    assert "treecdf warmup" in text.split("## In Python")[0]
    assert "treecdf warmup" in (ROOT / "docs/index.md").read_text()


@pytest.mark.parametrize("page", ["command-line", "model-files", "serving", "deploying"])
def test_pages_about_files_say_what_these_hold_of_the_training_rows(page):
    text = (ROOT / f"docs/{page}.md").read_text()
    assert "not anonymous" in text or "model-files.md" in text
    assert "training rows" in text


def test_tests_that_are_named_exist():
    text = (ROOT / "docs/reliability.md").read_text()
    named = set(re.findall(r"`(tests/[\w/]+\.py)`", text))
    assert len(named) > 20
    for path in named:
        assert (ROOT / path).exists(), path


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
