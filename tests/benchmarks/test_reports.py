"""Comparisons, pictures, the quick check, scaling and time limits of the benchmarks, on rows made up here."""

import json
import re
import time
from dataclasses import asdict

import numpy as np
import pytest

from benchmarks import (
    cli,
    complexity,
    generations,
    paper_page,
    pictures,
    quick,
    readme,
    report,
    rows,
    scaling,
    tables,
)
from benchmarks.comparisons import Score, compared, figure_of, mean_ranks, side_by_side, verdict, win_tie_loss
from benchmarks.machine import RESULTS
from benchmarks.rows import Run, Store
from benchmarks.simulations import SIMULATIONS
from benchmarks.tables import EXPERIMENTS
from treecdf.flows.tree import NODE

LIKELIHOOD = Score("log_lik", "test log-likelihood")
LOSS = Score("crps", "CRPS", higher_is_better=False)


def row(dataset, split, method, seconds=1.0, **metrics):
    told = {"settings": {}, "seconds": {"fit": seconds, "fit_cpu": seconds, "sample": 0.5}, "commit": "c"}
    return asdict(Run(dataset, split, method, split)) | told | {"metrics": metrics}


def series(method, values, dataset="yacht", key="log_lik"):
    return [row(dataset, k, method, **{key: value}) for k, value in enumerate(values)]


def test_verdict_pairs_the_splits():
    noise = np.array([5.0, -7.0, 3.0, 0.0])
    one, other = series("a", noise + np.array([0.2, 0.3, 0.25, 0.25])), series("b", noise)
    assert verdict(one, other, LIKELIHOOD) == "win"
    assert verdict(other, one, LIKELIHOOD) == "loss"
    assert verdict(one, list(reversed(other)), LIKELIHOOD) == "win"
    assert verdict(series("a", noise + np.array([0.2, -0.3, 0.25, -0.1])), other, LIKELIHOOD) == "tie"
    assert verdict(other, other, LIKELIHOOD) == "tie"
    assert verdict(one[:1], other, LIKELIHOOD) is None
    assert verdict(None, other, LIKELIHOOD) is None
    low, high = series("a", [1.0, 1.1], key="crps"), series("b", [2.0, 2.2], key="crps")
    assert verdict(low, high, LOSS) == "win"


def test_matrix_counts_sets():
    groups = {
        ("yacht", "a"): series("a", [1.0, 1.1]),
        ("yacht", "nsf"): series("nsf", [0.0, 0.1]),
        ("wine", "a"): series("a", [1.0, 1.1], "wine"),
        ("wine", "nsf"): series("nsf", [3.0, 3.1], "wine"),
        ("boston", "a"): series("a", [1.0, 2.0], "boston"),
        ("boston", "treeffuser"): series("treeffuser", [1.0, 2.0], "boston", "crps"),
    }
    header, lines = win_tie_loss(groups, LIKELIHOOD)
    assert header[1:] == ["ours: a", "nsf"]
    assert lines == [["ours: a", "", "1/0/1"], ["nsf", "1/0/1", ""]]


def test_ranks_share_equal_places_and_skip_missing_sets():
    means = {"a": {"s": 1.0, "t": 5.0}, "b": {"s": 1.0}, "c": {"s": 0.0, "t": 6.0}}
    assert mean_ranks(means, ["s", "t"], True) == {"a": (1.5 + 2) / 2, "b": 1.5, "c": (3 + 1) / 2}
    assert mean_ranks(means, ["s"], False) == {"a": 2.5, "b": 2.5, "c": 1.0}


def test_best_mean_is_bold_and_the_paper_stands_beside():
    groups = {
        ("yacht", "treecdf"): series("treecdf", [1.0, 2.0]),
        ("yacht", "quantile_forest"): series("quantile_forest", [0.3], key="crps"),
    }
    header, lines = side_by_side(groups, LIKELIHOOD, {"Ours": {"yacht": (-0.45, 0.07), "boston": (1.0, None)}})
    assert header == ["method", "yacht", "mean rank (sets)"]
    assert lines == [
        ["ours: treecdf", "**1.500 ± 0.500**", "1.0 (1)"],
        ["paper: Ours", "-0.45 ± 0.07", "2.0 (1)"],
    ]
    assert side_by_side(groups, LOSS)[1] == [["quantile_forest", "**0.300**", "1.0 (1)"]]


def test_labels_are_spread_and_bad_values_do_not_stretch_the_axis():
    moved = pictures.spread(np.array([0.0, 0.01, 0.5, 0.99, 1.0]), 0.1)
    assert np.all(np.diff(moved) >= 0.1 - 1e-12)
    assert moved[0] == 0.05
    assert moved[2] == 0.5
    assert np.isclose(moved[-1], 0.95)
    low, high = pictures.shown_range(np.array([-500.0, -1.0, 0.0, 0.5, 1.0]), True)
    assert -4 < low < -1
    assert 1 < high < 2
    assert pictures.shown_range(np.array([-np.inf, 0.0, 1.0]), True) == pictures.shown_range(np.array([0.0, 1.0]), True)
    low, high = pictures.shown_range(np.array([1.0, 2.0, 900.0]), False)
    assert low < 1
    assert 2 < high < 10


@pytest.mark.parametrize(
    ("values", "theirs", "higher_is_better", "expected"),
    [
        ([1.02, 1.04], (1.0, 0.05), True, "within"),  # above, by less than either error
        ([0.96, 0.98], (1.0, 0.05), True, "within"),
        ([1.0, 1.2], (1.0, 0.05), True, "within"),  # above by more than the paper's error, less than both together
        ([0.8, 1.0], (1.0, 0.05), True, "within"),
        ([1.1, 1.14], (1.0, 0.05), True, "better"),
        ([0.86, 0.9], (1.0, 0.05), True, "worse"),
        ([0.86, 0.9], (1.0, 0.05), False, "better"),
        ([1.1, 1.14], (1.0, 0.05), False, "worse"),
        ([1.04], (1.0, 0.05), True, "within"),  # one run: the paper's error alone
        ([1.06], (1.0, 0.05), True, "better"),
        ([0.94], (1.0, 0.05), True, "worse"),
        ([0.98, 1.2], (1.0, None), True, "within"),  # our error alone
        ([1.1, 1.12], (1.0, None), True, "better"),
        ([-np.inf, 1.0], (1.0, 0.05), True, "worse"),
    ],
)
def test_verdicts_are_symmetric(values, theirs, higher_is_better, expected):
    assert compared(figure_of(np.array(values)), theirs, higher_is_better) == expected
    opposite = {"better": "worse", "worse": "better", "within": "within"}[expected]
    assert compared(theirs, figure_of(np.array(values)), higher_is_better) == opposite


def test_page_counts_the_verdicts_of_a_method(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "Store", lambda name: Store(name, tmp_path))
    told = {"boston": [-2.44, -2.42], "concrete": [-2.5, -2.52], "energy": [-0.9, -0.92], "naval": [6.29]}
    for dataset, values in told.items():  # the paper has -2.44, -2.72, -0.72, 6.29
        for one in series("paper", values, dataset) + series("nsf", values, dataset):
            tables.Store("univariate").append(one)
    page = report.experiment_page("univariate", tmp_path)
    cells = [line.split(" | ") for line in page]
    verdicts = [line[6] for line in cells if len(line) > 6 and line[1] == "paper"]
    assert verdicts == ["within", "better", "worse", "within"]
    assert [line for line in page if " cells" in line] == [
        '- `paper` against "Ours": 1 better, 2 within, 1 worse of 4 cells'
    ]
    assert "KMN+ and MDN+ were run by the paper" in "\n".join(page)


def test_dots_are_drawn_of_sets_that_the_subject_has(tmp_path):
    figures = {
        "ours: paper": {"yacht": (1.0, 0.1), "wine": (2.0, None)},
        "paper: A": {"yacht": (-90.0, 0.1), "boston": (1.0, None)},
        "paper: B": {"yacht": (1.1, 0.1), "wine": (-3.0, None)},
    }
    assert not pictures.draw_dots(figures, "ours: treecdf", tmp_path / "none.png")
    assert not list(tmp_path.iterdir())
    assert pictures.draw_dots(figures, "ours: paper", tmp_path / "dots.png")
    assert 5_000 < (tmp_path / "dots.png").stat().st_size < 150_000
    axis = pictures.pyplot().figure().subplots()
    pictures._dot_panel(axis, [figures[name]["yacht"] for name in figures], 0)
    assert [text.get_text() for text in axis.texts] == ["\N{MINUS SIGN}90"]
    assert [line.get_color() for line in axis.lines if line.get_marker() in "<oD"] == [
        pictures.VERDICT_COLORS[verdict] for verdict in ("within", "better", "within")
    ]
    pictures.pyplot().close("all")


# The committed pages


@pytest.mark.parametrize("name", report.PAGES)
def test_committed_page_is_made_of_the_committed_rows_alone(name, tmp_path):
    written = report.write_reports([name], tmp_path)
    committed = RESULTS / f"{name}.md"
    assert bool(written) == committed.exists()
    if written:
        page = (tmp_path / committed.name).read_text()
        assert page == committed.read_text(), f"run `python -m benchmarks report {name}`"
        # Commands of their own draw these.
        drawn_from_fits = {f"{name}.png" for name in (*SIMULATIONS, "shapes", "flights")}
        linked = set(re.findall(r"\]\((\w+\.png)\)", page)) - drawn_from_fits
        assert {path.name for path in tmp_path.glob("*.png")} == linked


def test_the_tables_of_the_papers_page_are_made_of_the_committed_rows():
    page = (RESULTS.parent / "paper.md").read_text()
    assert paper_page.rebuilt(page) == page, "run `python -m benchmarks report`"
    emptied = paper_page.BEGIN + paper_page.END
    assert "| `paper` |" in paper_page.rebuilt(emptied)


def test_every_committed_result_belongs_to_a_page():
    assert {path.stem for path in RESULTS.glob("*.md")} <= set(report.PAGES)
    pages = "".join(path.read_text() for path in RESULTS.glob("*.md"))
    for picture in RESULTS.glob("*.png"):
        assert f"({picture.name})" in pages
        assert picture.stat().st_size < 500_000


@pytest.fixture
def rows_of_libraries(tmp_path, monkeypatch):
    for module in (tables, scaling):
        monkeypatch.setattr(module, "Store", lambda name: Store(name, tmp_path))
    rng = np.random.default_rng(0)
    for dataset in ("yacht", "boston"):
        for k in range(3):
            for j, method in enumerate(EXPERIMENTS["peers"].methods):
                counts = rng.multinomial(200, np.full(20, 0.05)).tolist()
                values = {"crps": 0.1 * j + rng.random(), "pit_counts": counts}
                if method != "treeffuser":
                    values["log_lik"] = rng.normal() - 10.0 ** (j - 9)
                tables.Store("peers").append(row(dataset, k, method, 2.0**j, **values))
    missing = asdict(Run("protein", 0, "pgbm", 0)) | {"error": "stopped after the limit of 9 s"}
    tables.Store("peers").append(missing)
    return tmp_path


def test_page_of_libraries_has_tables_and_small_pictures(rows_of_libraries):
    assert report.write_reports(["peers"], rows_of_libraries) == ["peers"]
    page = (rows_of_libraries / "peers.md").read_text()
    for name in ("peers_log_lik", "peers_crps", "peers_pit"):
        assert f"({name}.png)" in page
        assert 5_000 < (rows_of_libraries / f"{name}.png").stat().st_size < 150_000
    likelihood = page[page.index("## Test log-likelihood") : page.index("## CRPS")]
    assert "treeffuser" not in likelihood
    assert "treeffuser" in page[page.index("## CRPS") :]
    assert "wins/ties/losses" in page
    assert "- protein, split 0, pgbm: stopped after the limit of 9 s" in page
    assert "`python -m benchmarks peers`" in page
    seconds = 2 * 3 * sum(2.0**j + 0.5 for j in range(len(EXPERIMENTS["peers"].methods)))
    assert f"{seconds:.0f} s of fitting" in page
    assert "nan" not in page


def test_scaling_page_has_the_slope(rows_of_libraries):
    for run in scaling.scaling_runs():
        ndq = np.prod([float(part) for part in run.dataset.split(",")])
        scaling.Store("scaling").append(
            asdict(run) | {"seconds": {"fit_cpu": 1e-6 * ndq**0.7, "fit": 1.0}, "metrics": {}}
        )
    assert len({run.dataset for run in scaling.scaling_runs()}) == len(scaling.SIZES)
    assert report.write_reports(["scaling"], rows_of_libraries) == ["scaling"]
    assert "**0.70** (target: at most 1.1, met)" in (rows_of_libraries / "scaling.md").read_text()
    assert (rows_of_libraries / "ndq.png").stat().st_size < 150_000


def test_scaling_row_is_a_timed_fit():
    found = scaling.score_scaling(Run("300,2,3", 0, scaling.METHOD, 0))
    assert found["seconds"]["fit"] > 0


def test_complexity_page_has_the_slopes(tmp_path, monkeypatch):
    monkeypatch.setattr(complexity, "Store", lambda name: Store(name, tmp_path))
    assert complexity.complexity_page(tmp_path) == []
    for run in complexity.complexity_runs():
        n, d, q = (float(part) for part in run.dataset.split(","))
        base = {"log_prob_base": 1e-7 * d, "sample_base": 2e-7 * d}
        trees = {"log_prob": 1e-6 * q + base["log_prob_base"], "sample": 1e-6 * n**0.5 + base["sample_base"]}
        seconds = base | trees | {"sample_many": 1e-6, "fit_cpu": 1.0}
        row = asdict(run) | {"seconds": seconds, "metrics": {"nodes_a_tree": 5.5}, "commit": "c"}
        complexity.Store("complexity").append(row)
    page = complexity.complexity_page(tmp_path)
    slopes = [line.strip("| ").split(" | ") for line in page if " to " in line and line.startswith("| ")]
    rows, outcomes, covariates, networks = (np.array([float(cell.split()[0]) for cell in line[2:]]) for line in slopes)
    assert np.allclose(rows, [0, 0, 0.5, 0.5, 0], atol=0.01)
    assert np.allclose(outcomes[[1, 3, 4]], [0, 0, 1])
    assert np.allclose(covariates[1:], [1, 0, 0, 0])
    assert np.array_equal(covariates, networks)
    assert 1 < (tmp_path / "complexity.png").stat().st_size < 150_000


def test_complexity_counts_the_nodes_on_the_way():
    nodes = np.zeros(2, NODE)
    nodes["cut"], nodes["left"], nodes["right"] = [0.5, 0.2], [1, -1], [-1, -1]
    nodes["axis"] = [0, 1]
    u = np.array([[0.1, 0.1], [0.5, 0.9], [0.6, 0.1]])
    assert complexity._nodes_passed(nodes, u) == 2 + 2 + 1
    assert complexity._nodes_passed(nodes[:0], u) == 0


def test_complexity_row_is_a_timed_flow_of_so_many_trees(monkeypatch):
    for name, value in {"TREES": 3, "POINTS": 200, "ROUNDS": 2, "FEWEST_ROUNDS": 1}.items():
        monkeypatch.setattr(complexity, name, value)
    found = complexity.score_complexity(Run("300,2,3", 0, "logistic_trees", 0))
    assert found["metrics"]["trees"] == 3
    assert 2 < found["metrics"]["nodes_a_tree"] <= 6
    assert set(complexity.TIMES) < set(found["seconds"])
    assert all(seconds > 0 for seconds in found["seconds"].values())


def quick_rows(likelihood=0.0, seconds=1.0, sets=quick.DATASETS):
    base = np.random.default_rng(0).normal(size=100)
    found = []
    for k, run in enumerate(quick.quick_runs()):
        moved = likelihood if run.dataset in sets else 0.0
        noise = 0.01 * (run.split - 1.5)
        one = row(run.dataset, run.split, run.method, seconds, log_lik=base[k] + moved + noise * bool(likelihood))
        found.append(one)
    return found


@pytest.mark.parametrize(
    ("now", "reasons"),
    [
        (quick_rows(), 0),
        (quick_rows(likelihood=0.5), 0),
        (quick_rows(seconds=1.9), 0),
        (quick_rows(likelihood=-0.0005), 0),
        (quick_rows(seconds=2.1), 3),
        (quick_rows(likelihood=-0.1), 3),
        (quick_rows(likelihood=-0.1, sets=("yacht",)), 3),
        (quick_rows(likelihood=-0.1, seconds=3.0), 6),
    ],
)
def test_quick_finds_what_became_worse(now, reasons):
    lines, worse = quick.compare(now, quick_rows())
    assert len(worse) == reasons, worse
    assert len(lines) == len(quick.DATASETS) * len(quick.METHODS)
    assert quick.table(lines).count("\n") == len(lines)


def test_quick_reports_failures_and_an_empty_baseline():
    failed = quick_rows()
    failed[0] = asdict(Run.of(failed[0])) | {"error": "ValueError"}
    assert quick.compare(failed, quick_rows())[1] == ["yacht, split 0, treecdf failed: ValueError"]
    assert quick.compare(quick_rows(), [])[1] == ["no run has a counterpart in the baseline"]


def test_quick_command_exits_by_the_verdict(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(cli, "Store", lambda name, directory=tmp_path: Store(name, directory))
    assert cli.main(["quick"]) == 2
    made = {"now": quick_rows()}

    def run_quick(store, jobs, limit):
        for one in made["now"]:
            store.append(one)
        return made["now"]

    monkeypatch.setattr(cli, "run_quick", run_quick)
    assert cli.main(["quick", "--write-baseline"]) == 0
    assert cli.main(["quick"]) == 0
    assert "no worse" in capsys.readouterr().out
    made["now"] = quick_rows(likelihood=-0.2)
    assert cli.main(["quick"]) == 1
    assert "WORSE  treecdf: mean log-likelihood fell by 0.2" in capsys.readouterr().out


def slow(run):
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            time.sleep(0.01)
        except Exception:
            continue
    return {}


def test_a_run_over_its_limit_is_a_row_and_the_next_goes_on():
    start = time.monotonic()
    found = rows.attempt(slow, Run("boston", 0, "lr", 0), limit=0.2)
    assert time.monotonic() - start < 5
    assert found["error"] == "stopped after the limit of 0.2 s"
    after = rows.attempt(lambda run: {"metrics": {}}, Run("boston", 1, "lr", 1), limit=0.2)
    time.sleep(0.3)
    assert "error" not in after


def test_the_table_of_the_readme_is_made_of_the_committed_rows():
    page = (RESULTS.parent.parent / "README.md").read_text()
    assert readme.rebuilt(page) == page, "run `python -m benchmarks report`"


def test_figures_of_the_readme_are_means_of_rows():
    """The same means from the lines of the files, by nothing that the reports use."""
    table = (RESULTS.parent.parent / "README.md").read_text().split(readme.BEGIN)[1]
    found = {line.split(" | ")[0].strip("| "): line for line in table.splitlines() if line.startswith("| ")}
    last = {}
    for line in (rows.ROWS / "univariate.jsonl").read_text().splitlines():
        one = json.loads(line)
        if "error" not in one:
            last[one["method"], one["dataset"], one["split"]] = one["metrics"]
    for name in ("boston", "concrete", "energy", "power", "yacht", "protein", "kin8nm"):
        for method, column in (("treecdf", 2), ("treecdf_fast", 3)):
            values = [value["log_lik"] for key, value in last.items() if key[:2] == (method, name)]
            shown = found[name].split(" | ")[column].strip("*†")
            assert float(shown) == pytest.approx(sum(values) / len(values), rel=5.1e-3)


def test_older_models_are_named_and_measured_again_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "Store", lambda name: Store(name, tmp_path))
    of_today = {"generation": generations.GENERATIONS}
    made = [
        row("yacht", 0, "treecdf", log_lik=0.0),
        row("yacht", 1, "treecdf", log_lik=0.0) | of_today,
        row("yacht", 0, "paper", log_lik=0.0) | {"generation": {"paper": generations.GENERATIONS["paper"]}},
        row("yacht", 0, "ngboost", log_lik=0.0),
    ]
    for one in made:
        tables.Store("univariate").append(one)
    assert generations.note_on_age(made) == [
        "**Measured with an older version of the model**, and to be measured again: `treecdf` (1 of 2 runs).",
        "",
    ]
    assert generations.note_on_age(made[1:]) == []
    asked = []
    monkeypatch.setattr(tables, "run_all", lambda runs, *rest: asked.extend(runs))
    runs = [Run.of(one) for one in made]
    tables.run_experiment("univariate", runs)
    assert not asked
    tables.run_experiment("univariate", runs, again=True)
    assert asked == runs[:1]
