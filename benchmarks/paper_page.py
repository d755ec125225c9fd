"""The tables of docs/paper.md, which stand between two marks of that page: each of the paper's, ours beside it."""

from pathlib import Path

from benchmarks.against_paper import count_of_verdicts
from benchmarks.comparisons import Groups, compared, figure_of, markdown_table, mean_se, metric, published
from benchmarks.tables import EXPERIMENTS, Experiment, groups_of

BEGIN = "<!-- Written by `python -m benchmarks report` from the rows. -->"
END = "<!-- End of what is written from the rows. -->"

# Heading, experiment and methods of each table of the paper.
TABLES = (
    ("One outcome", "univariate", ("paper", "exhaustive")),
    ("Ablation of split search and node classifiers", "ablation", ("full", "middle", "lr", "mlp")),
    ("Constant and scale-dependent rates", "gamma", ("gamma0", "paper")),
    ("Simulations", "simulations", ("paper", "rotated")),
    ("Several outcomes", "multivariate", ("paper", "rotated", "rotated_eta01")),
    ("Partitions of the covariates", "regions", ("regions4", "rotated_eta01", "regions_hdbscan")),
    ("Rates c0 and gamma", "c0gamma", ("paper", "c0_05_gamma_1", "c0_1_gamma_1")),
)


def write_paper_page(page: Path) -> None:
    """Write the tables into the page if there is one; the rest of it stays."""
    if page.exists():
        page.write_text(rebuilt(page.read_text()))


def rebuilt(page: str) -> str:
    """The text of the page with its tables made of the rows."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    lines = [line for heading, name, methods in TABLES for line in _section(heading, name, methods)]
    return before + "\n".join([BEGIN, "", *lines, END]) + after


def _section(heading: str, name: str, methods: tuple[str, ...]) -> list[str]:
    """A heading, the table and how many of its cells are better or worse."""
    experiment = EXPERIMENTS[name]
    groups = {key: rows for key, rows in groups_of(name).items() if key[1] in methods and key[0] in experiment.datasets}
    if not groups:
        return []
    way = "higher" if experiment.higher_is_better else "lower"
    return [
        f"### {heading}",
        "",
        f"{experiment.title}; {way} is better. [All measures](results/{name}.md).",
        "",
        *markdown_table(*_table(experiment, groups, methods)),
        "",
        *count_of_verdicts(experiment, groups),
    ]


def _table(experiment: Experiment, groups: Groups, methods: tuple[str, ...]) -> tuple[list[str], list[list[str]]]:
    """For each method a line of ours, of the paper's, and of the runs if some are missing."""
    sets = [name for name in experiment.datasets if any(dataset == name for dataset, _ in groups)]
    lines = []
    for method in methods:
        theirs = experiment.paper[experiment.reference[method]]
        runs = [len(groups.get((name, method), ())) for name in sets]
        lines.append([f"`{method}`", *(_ours(experiment, groups.get((n, method), []), theirs.get(n)) for n in sets)])
        lines.append([f"the paper, {experiment.reference[method]}", *(published(theirs[n]) for n in sets)])
        if any(count < experiment.n_runs(name) for count, name in zip(runs, sets, strict=True)):
            lines.append(["runs so far", *map(str, runs)])
    return ["", *sets], lines


def _ours(experiment: Experiment, rows: list[dict], theirs) -> str:
    """Our mean with its standard error and the verdict, empty without rows."""
    values = metric(rows, experiment.metric)
    if not len(values):
        return ""
    return f"{mean_se(values)}, {compared(figure_of(values), theirs, experiment.higher_is_better)}"
