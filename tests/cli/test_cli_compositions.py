"""Compositions on the command line: the answers are those of the library."""

import numpy as np
import pandas as pd
import pytest

from treecdf import load_model
from treecdf.cli.main import main

TAXA = ["bifido", "ecoli", "dorea"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reads")
    rng = np.random.default_rng(0)
    age = rng.uniform(0, 900, 60).round()
    share = rng.dirichlet([3.0, 2.0, 0.3], 60)
    reads = np.array([rng.multinomial(n, row) for n, row in zip(rng.integers(50, 500, 60), share, strict=True)])
    table = pd.DataFrame({"infant": [f"i{k // 4}" for k in range(60)], "age": age, "milk": ["a", "b"] * 30})
    table = table.join(pd.DataFrame(reads, columns=TAXA))
    table.to_csv(folder / "reads.csv", index=False)
    table.assign(reads=300).to_csv(folder / "new.csv", index=False)
    shares = table.copy()
    shares[TAXA] = shares[TAXA].div(shares[TAXA].sum(axis=1), axis=0)
    shares.drop(columns=["infant", "milk"]).to_csv(folder / "shares.csv", index=False)
    arguments = [
        "--composition",
        "counts",
        "--covariates",
        "age",
        "milk",
        "--subject",
        "infant",
        "--time",
        "age",
        "--jobs",
        "1",
    ]
    assert main(["fit", str(folder / "reads.csv"), *arguments, "--out", str(folder / "m.tcdf")]) == 0
    return folder


def test_fit_and_info_say_what_was_learnt(folder, capsys):
    assert main(["info", str(folder / "m.tcdf")]) == 0
    told = capsys.readouterr().out
    assert "taxa, abundant and steady ones first: bifido, ecoli, dorea" in told
    assert "covariates: age, milk" in told
    assert "reads a sample" in told
    assert "samples of one subject are alike" in told
    assert load_model(folder / "m.tcdf").taxa_ == tuple(TAXA)


def test_score_equals_the_library(folder, capsys):
    out = folder / "scores.csv"
    assert main(["score", str(folder / "m.tcdf"), str(folder / "reads.csv"), "--id", "infant", "--out", str(out)]) == 0
    table, scores = pd.read_csv(folder / "reads.csv"), pd.read_csv(out)
    expected = load_model(folder / "m.tcdf").log_prob(table[["age", "milk"]], table[TAXA])
    np.testing.assert_allclose(scores["log_density"], expected)
    assert list(scores["infant"]) == list(table["infant"])
    assert f"{expected.mean():.4f}" in capsys.readouterr().out


@pytest.mark.parametrize("depth", ["300", "reads"])
def test_sample_equals_the_library(folder, depth):
    out = folder / "drawn.csv"
    arguments = f"--n 2 --depth {depth} --subject infant --time age --seed 3".split()
    assert main(["sample", str(folder / "m.tcdf"), str(folder / "new.csv"), *arguments, "--out", str(out)]) == 0
    table, drawn = pd.read_csv(folder / "new.csv"), pd.read_csv(out)
    given = {"subject": table["infant"].to_numpy(), "time": table["age"].to_numpy()}
    expected = load_model(folder / "m.tcdf").sample(table[["age", "milk"]], 2, 3, depth=300, **given)
    np.testing.assert_array_equal(drawn[TAXA], expected.to_numpy())
    assert (drawn[TAXA].sum(axis=1) == 300).all()
    assert list(drawn.columns) == ["row", "draw", *TAXA]


def test_a_weight_is_no_taxon(folder):
    out = folder / "weighted.tcdf"
    arguments = ["--composition", "counts", "--covariates", "age", "milk", "--drop", "infant", "--weight", "reads"]
    assert main(["fit", str(folder / "new.csv"), *arguments, "--jobs", "1", "--out", str(out)]) == 0
    assert load_model(out).taxa_ == tuple(TAXA)


def test_shares(folder, capsys):
    arguments = ["--composition", "shares", "--covariates", "age", "--jobs", "1", "--out", str(folder / "s.tcdf")]
    assert main(["fit", str(folder / "shares.csv"), *arguments]) == 0
    assert "60 samples of 3 taxa, 1 covariate(s)" in capsys.readouterr().out
    assert main(["sample", str(folder / "s.tcdf"), str(folder / "new.csv"), "--n", "1", "--depth", "9"]) == 1
    assert "depth is for a model of counts" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("--composition counts", "--composition needs --covariates"),
        ("--composition counts --covariates age --outcome ecoli", "--outcome does not go with --composition"),
        ("--composition counts --covariates age --time age", "--time goes with --subject"),
        ("--composition counts --covariates age milk --drop ecoli dorea infant", "at least 2 columns of taxa"),
        ("--composition counts --covariates age --drop milk", "column 'infant'"),
        ("--composition counts --covariates age --subject age", "--subject names 'age'"),
        ("--covariates age --outcome ecoli", "--covariates is for compositions"),
        ("--effort fast", "--outcome is missing"),
    ],
)
def test_complaints(folder, arguments, complaint, capsys):
    out = str(folder / "never.tcdf")
    assert main(["fit", str(folder / "reads.csv"), *arguments.split(), "--out", out]) == 1
    assert complaint in capsys.readouterr().err
    assert not (folder / "never.tcdf").exists()


def test_options_of_compositions_are_refused_elsewhere(folder, capsys):
    out = str(folder / "one.tcdf")
    arguments = ["--outcome", "ecoli", "--drop", "infant", "--effort", "fast", "--jobs", "1"]
    assert main(["fit", str(folder / "reads.csv"), *arguments, "--out", out]) == 0
    assert main(["sample", out, str(folder / "new.csv"), "--depth", "9"]) == 1
    assert "--depth is for compositions" in capsys.readouterr().err
