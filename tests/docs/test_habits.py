"""What contributors are told agrees with what is checked: the map of the code, versions, workflows."""

import os
import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
MAP = CONTRIBUTING.split("## How the code reads")[1].split("\n## ")[0]


def layers(container):
    """Names in the import contract of a package, layer by layer."""
    contracts = PROJECT["tool"]["importlinter"]["contracts"]
    (contract,) = [each for each in contracts if each.get("containers") == [container]]
    return [[name.strip() for name in re.split("[:|]", layer)] for layer in contract["layers"]]


def floors():
    """Packages of the map, floor by floor, each with the modules that are named below it."""
    found = []
    for floor in re.split(r"^\d\. ", MAP, flags=re.MULTILINE)[1:]:
        text = floor.split("\n\n")[0]
        packages = re.findall(r"\*\*`(\w+)`\*\*", text)
        # A module stands at the beginning of a line of the list, after a comma between modules, or after a semicolon.
        modules = [
            name
            for group in re.findall(r"(?:- |; )((?:`\w+`(?:, )?)+):", text.replace("\n      ", " "))
            for name in re.findall(r"`(\w+)`", group)
        ]
        found.append((packages, modules))
    return found


def test_the_map_has_the_floors_of_the_import_contract():
    assert [packages for packages, _ in floors()] == layers("treecdf")
    assert len(floors()) <= 8


def test_the_map_has_the_order_inside_training():
    (modules,) = [modules for packages, modules in floors() if packages == ["training"]]
    assert modules == [name for layer in layers("treecdf.training") for name in layer]


def test_modules_of_the_map_exist():
    named = [(package, name) for packages, modules in floors() for package in packages for name in modules]
    assert len(named) > 30
    for package, name in named:
        place = ROOT / "src/treecdf" / package / name
        assert place.with_suffix(".py").exists() or place.is_dir(), f"{package}.{name}"


def test_contributing_is_one_page():
    assert len(CONTRIBUTING.splitlines()) <= 100


CONFIGURATION = [
    *(ROOT / ".github").rglob("*.yml"),
    ROOT / ".pre-commit-config.yaml",
    ROOT / "CITATION.cff",
]


@pytest.mark.parametrize("path", CONFIGURATION, ids=lambda path: path.name)
def test_configuration_is_valid_yaml(path):
    assert isinstance(yaml.safe_load(path.read_text()), dict)


def test_workflows_run_the_scripts_that_there_are_on_the_versions_that_are_promised():
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    commands = [step["run"].split()[0] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert sorted(commands) == [".ci/build", ".ci/oldest", ".ci/run"]
    assert all(os.access(ROOT / command, os.X_OK) for command in commands)
    classifiers = PROJECT["project"]["classifiers"]
    promised = [version for each in classifiers for version in re.findall(r"Python :: (3\.\d+)$", each)]
    assert jobs["run"]["strategy"]["matrix"]["python"] == promised
    assert PROJECT["project"]["requires-python"] == f">={promised[0]}"


def test_issue_forms_have_what_github_asks_for():
    for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text())
        if path.name == "config.yml":
            continue
        assert {"name", "description", "body"} <= set(form)
        ids = [field["id"] for field in form["body"]]
        assert len(set(ids)) == len(ids)
        assert all(field["type"] in ("textarea", "input", "dropdown") for field in form["body"])
        assert all("label" in field["attributes"] for field in form["body"])
