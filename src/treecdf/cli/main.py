"""Command line: learn from tables, ask the models; see `treecdf --help`.

What a command needs is imported when it runs, so that help comes at once and Ctrl-C ends every import in one sentence.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import treecdf
from treecdf.cli.terminal import printable, safe_terminal

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction["_Parser"]

_EXAMPLE = """a session, from a table to answers:
  treecdf fit houses.csv --outcome price --out houses.tcdf
  treecdf score houses.tcdf new.csv
  treecdf predict houses.tcdf new.csv --id address --out predictions.csv
  treecdf quantiles houses.tcdf new.csv --levels .05 .5 .95 --out quantiles.csv
  treecdf sample houses.tcdf new.csv --n 100 --out draws.parquet
  treecdf plot houses.tcdf new.csv --kind intervals --out intervals.png
  treecdf fit reads.csv --composition counts --covariates age --subject infant --time age --out infants.tcdf
  treecdf sample infants.tcdf ages.csv --n 10 --depth 20000 --out synthetic.csv

Tables are CSV, Parquet or Excel files (.csv, .tsv, .txt, .csv.gz, .parquet, .xlsx), or - for the standard input.
The first fit of an installation compiles for about ten seconds on two cores; `treecdf warmup` does that beforehand.
"""
_TABLE = "CSV with a header, Parquet or Excel (.csv, .tsv, .txt, .csv.gz, .parquet, .xlsx); - for the standard input"
# The module of each command
_MODULES = {
    "fit": "commands",
    "info": "commands",
    "score": "questions",
    "predict": "questions",
    "quantiles": "questions",
    "sample": "questions",
    "plot": "pictures",
    "serve": "serve",
}
# What commands need beside treecdf itself, and the extra that brings it
_NEEDS = {"serve": (("starlette", "uvicorn"), "serving needs starlette and uvicorn: pip install 'treecdf[serve]'")}
_TABLES_NEED = (("pandas", "pyarrow"), "tables need pandas and pyarrow: pip install 'treecdf[cli]'")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, default None
        The arguments; None for those of the process.

    Returns
    -------
    int
        The exit code: 0 done, 1 it could not be done, 2 wrong arguments, 130 interrupted, 141 nobody reads the output.

    Examples
    --------
    >>> from treecdf.cli import main
    >>> main(["info", "missing.tcdf"])
    1
    """
    with safe_terminal() as terminal:
        code = _run(sys.argv[1:] if argv is None else list(argv))
    return terminal.exit_code(code)


def _run(argv: list[str]) -> int:
    """Run the command line and turn errors into sentences; returns the exit code."""
    parser = _parser()
    args = parser.parse_args(_with_joined_bounds(argv))
    if args.command is None:
        parser.print_help()
        return 2
    try:
        args.run(args)
    except KeyboardInterrupt:
        goes_on = "; run the same command again to go on" if getattr(args, "checkpoint", None) else ""
        print(f"treecdf {args.command}: interrupted{goes_on}", file=sys.stderr)
        return 130
    except Exception as error:  # a command line ends in a sentence, whatever it was
        if args.debug:
            traceback.print_exc()
        print(f"treecdf {args.command}: {printable(_complaint(error))}", file=sys.stderr)
        return 1
    return 0


def _complaint(error: Exception) -> str:
    """A sentence about an error, which distinguishes mistakes of the user from bugs of treecdf."""
    if isinstance(error, MemoryError):
        return f"there is not enough memory ({error})" if str(error) else "there is not enough memory"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, (OSError, ValueError, ImportError)):
        return str(error)
    what = f"{type(error).__name__}: {error}"
    return f"unexpected error ({what}); run again with --debug for the traceback"


def _with_joined_bounds(argv: Sequence[str]) -> list[str]:
    """Arguments with `--bounds=-50,50` for `--bounds -50,50`, because argparse takes -50,50 for an option."""
    joined: list[str] = []
    for part in argv:
        is_after_bounds = bool(joined) and len(joined[-1]) > 2 and "--bounds".startswith(joined[-1])
        if is_after_bounds and part.startswith("-") and "," in part:
            joined[-1] += f"={part}"
        else:
            joined.append(part)
    return joined


class _Parser(argparse.ArgumentParser):
    """A parser whose error explains why a file name after an option with several values is missing."""

    def error(self, message: str) -> NoReturn:
        """End with a complaint about the arguments."""
        if message.startswith("the following arguments are required") and self.prog.count(" "):
            message += " (options such as --outcome and --id take all words behind them: name the files first)"
        super().error(message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="treecdf",
        description="Learn the whole conditional distribution p(y | x) of one or several outcomes on a table.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_debug(parser, default=False)
    parser.add_argument("--version", action="version", version=f"treecdf {treecdf.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command")
    _add_fit(commands)
    _add_questions(commands)
    _add_serve(commands)
    demo = commands.add_parser(
        "demo",
        help="fit an embedded example in seconds and draw what was learnt",
        description="Fit 3000 rows of an example whose truth is known; print log-likelihood, CRPS, coverage and times, "
        "and draw the learnt conditional density beside the true one.",
    )
    demo.add_argument("--out", type=Path, default=Path("treecdf-demo.png"), help="the picture (default: %(default)s)")
    demo.set_defaults(run=_demo)
    warmup = commands.add_parser(
        "warmup",
        help="compile all kernels now, for example when a container image is built",
        description="Compile every kernel and keep the machine code on disk, so that no later process waits for it.",
    )
    warmup.set_defaults(run=_warmup)
    for command in commands.choices.values():
        # What is given after the command must not be undone by the default of a missing option.
        _add_debug(command, default=argparse.SUPPRESS)
    return parser


def _add_debug(parser: argparse.ArgumentParser, default: bool | str) -> None:
    """Give a parser the option --debug."""
    parser.add_argument(
        "--debug", action="store_true", default=default, help="show the traceback if something goes wrong"
    )


def _add_fit(commands: Commands) -> None:
    fit = commands.add_parser(
        "fit",
        help="learn a model from a table",
        description="Learn the distribution of the outcomes given all other columns. A column is numbers if every "
        "value of it is a plain decimal number, dates if every value is a date such as 2026-01-31, else a category. "
        "Values may be missing; a row without an outcome is left out.",
    )
    _add_table(fit)
    fit.add_argument(
        "--outcome",
        nargs="+",
        action="extend",
        default=[],
        metavar="COLUMN",
        help="the outcome, or several outcomes to learn together; needed except with --composition",
    )
    _add_composition(fit)
    fit.add_argument("--out", type=Path, required=True, metavar="MODEL", help="model file, for example model.tcdf")
    fit.add_argument("--drop", nargs="+", action="extend", default=[], metavar="COLUMN", help="columns to leave out")
    fit.add_argument(
        "--categorical",
        nargs="+",
        action="extend",
        default=[],
        metavar="COLUMN",
        help="columns whose numbers are names, such as postcodes",
    )
    fit.add_argument("--weight", metavar="COLUMN", help="weights: how many rows each row counts for; no covariate")
    _add_exposure(fit)
    fit.add_argument(
        "--groups",
        metavar="COLUMN",
        help="groups of rows that belong together, such as the rows of one person; no covariate",
    )
    fit.add_argument(
        "--bounds",
        action="append",
        default=[],
        metavar="LOW,HIGH",
        help="lowest and highest possible outcome, empty where there is no bound: --bounds 0, or --bounds -50,50 (once "
        "for all outcomes, or once for each)",
    )
    fit.add_argument(
        "--atoms",
        nargs="+",
        default=[],
        metavar="VALUE",
        help="values with a probability of their own, such as exact zeros: --atoms 0, or auto to find them",
    )
    fit.add_argument(
        "--resolution",
        nargs="+",
        default=[],
        metavar="STEP",
        help="step that outcomes were rounded to: --resolution 0.5 (one for all outcomes, or one for each); auto finds "
        "it; none is a plain density. Default: outcomes of few values, such as grades, have a probability for each "
        "value",
    )
    fit.add_argument("--forget-rows", action="store_true", help="leave all training rows out of the model file")
    fit.add_argument(
        "--effort",
        choices=("fast", "default", "best"),
        default="default",
        help="how much is tried: fast for a first look, best for the most accurate model (default: %(default)s)",
    )
    fit.add_argument(
        "--seed", type=int, default=0, help="seed of random numbers; the same seed gives the same model (default: 0)"
    )
    fit.add_argument("--jobs", type=int, default=-1, help="threads or processes (default: -1, all cores)")
    fit.add_argument(
        "--checkpoint",
        type=Path,
        metavar="PATH",
        help="directory for what has been trained so far: after an interrupt or a crash the same command resumes there",
    )
    fit.set_defaults(run=_command("fit"))


def _add_composition(fit: argparse.ArgumentParser) -> None:
    """Give `fit` the options of compositions."""
    fit.add_argument(
        "--composition",
        choices=("counts", "shares", "parts"),
        help="learn compositions, such as microbiomes: every column that no other option names is a taxon. Rows are "
        "counts of reads, shares that sum to one, or parts with any sum",
    )
    fit.add_argument(
        "--covariates",
        nargs="+",
        action="extend",
        default=[],
        metavar="COLUMN",
        help="with --composition: covariates that the taxa depend on",
    )
    _add_subject(fit)


def _add_subject(parser: argparse.ArgumentParser) -> None:
    """Give a parser the options that say whose samples the rows are."""
    parser.add_argument("--subject", metavar="COLUMN", help="for compositions: subject that each sample is from")
    parser.add_argument("--time", metavar="COLUMN", help="for compositions: time at which each sample was taken")


def _add_questions(commands: Commands) -> None:
    result = "CSV or Parquet file; - for CSV on the standard output (default)"
    score = _question(commands, "score", "mean log density, CRPS and coverage of a table with outcomes")
    score.add_argument("--out", type=Path, metavar="TABLE", help="CSV or Parquet file for the log density of every row")
    predict = _question(commands, "predict", "mean, standard deviation and an interval of every outcome")
    predict.add_argument(
        "--interval", type=_level, default=0.9, help="probability inside the interval (default: %(default)s)"
    )
    predict.add_argument("--out", type=Path, default=Path("-"), metavar="TABLE", help=result)
    quantiles = _question(commands, "quantiles", "quantiles of every outcome")
    quantiles.add_argument(
        "--levels",
        type=_level,
        nargs="+",
        default=[0.05, 0.5, 0.95],
        help="levels of the quantiles, between 0 and 1 (default: .05 .5 .95)",
    )
    quantiles.add_argument("--out", type=Path, default=Path("-"), metavar="TABLE", help=result)
    sample = _question(commands, "sample", "random draws of the outcomes, one line per draw")
    sample.add_argument("--n", type=_positive, default=100, help="draws for each row (default: %(default)s)")
    sample.add_argument("--seed", type=int, default=0, help="seed; the same seed gives the same draws (default: 0)")
    sample.add_argument("--depth", metavar="READS", help="for counts: reads per sample, a number or a column")
    _add_subject(sample)
    sample.add_argument("--out", type=Path, default=Path("-"), metavar="TABLE", help=result)
    _add_plot(commands)
    info = commands.add_parser("info", help="describe a model file", description="Describe the model in a file.")
    info.add_argument("model", type=Path, help="file that `treecdf fit` wrote")
    info.set_defaults(run=_command("info"))


_PLOTS = ("density", "fan", "effect", "pit", "calibration", "intervals", "importance", "history")


def _add_plot(commands: Commands) -> None:
    plot = _question(commands, "plot", "a picture of what was learnt", needs_table=False)
    plot.add_argument(
        "--kind",
        choices=_PLOTS,
        default="density",
        help="density: at some rows; fan, effect: along a covariate; pit, calibration, intervals: compared with the "
        "table's outcomes; importance: of the covariates; history: of the training (default: %(default)s)",
    )
    plot.add_argument("--outcome", metavar="COLUMN", help="which of several outcomes: its name, or 0, 1, ...")
    plot.add_argument("--rows", type=int, nargs="+", help="for density: rows, counted from 0 (default: the first 3)")
    plot.add_argument("--covariate", metavar="COLUMN", help="for fan and effect: covariate on the x-axis")
    plot.add_argument("--out", type=Path, required=True, metavar="PICTURE", help="PNG, PDF, SVG or JPG")


def _add_serve(commands: Commands) -> None:
    serve = commands.add_parser(
        "serve",
        help="answer questions about a model over HTTP, on this machine by default",
        description="Answer over HTTP: density, CDF, quantiles, intervals, mean and samples as plain JSON, and the "
        "Open Inference Protocol. There are no passwords and no encryption: to open it to others, put it behind a "
        "proxy that has both.",
    )
    serve.add_argument("model", type=Path, help="file that `treecdf fit` wrote")
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    serve.add_argument("--port", type=int, default=8000, help="0 for any free port (default: %(default)s)")
    serve.add_argument("--name", help="name of the model in addresses (default: the file's, without its ending)")
    serve.add_argument("--threads", type=_positive, help="requests computed at the same time (default: all cores)")
    for flag, default, text in (
        ("body", 4_000_000, "bytes in a request"),
        ("rows", 1_000, "rows in a request"),
        ("draws", 1_000, "draws for each row"),
        ("levels", 100, "levels of quantiles, or outcomes for each row"),
        ("values", 1_000_000, "numbers in an answer"),
        ("waiting", 256, "requests at the same time, waiting ones included"),
    ):
        told = f"most {text} (default: %(default)s)"
        serve.add_argument(f"--max-{flag}", type=_positive, default=default, metavar="N", help=told)
    told = "time from a signal to stop until no new requests are accepted (default: %(default)s)"
    serve.add_argument("--notice", type=_seconds, default=1.0, metavar="SECONDS", help=told)
    serve.set_defaults(run=_command("serve"))


def _question(commands: Commands, name: str, text: str, needs_table: bool = True) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=text,
        description=f"{text[0].upper()}{text[1:]}. Columns of the table that the model does not use are ignored.",
    )
    parser.add_argument("model", type=Path, help="file that `treecdf fit` wrote")
    _add_table(parser, needs_table)
    if needs_table:
        parser.add_argument(
            "--id",
            nargs="+",
            action="extend",
            default=[],
            metavar="COLUMN",
            help="columns to copy into the result, after the number of the row in the file, counted from 0",
        )
        _add_exposure(parser)
    parser.set_defaults(run=_command(name))
    return parser


def _add_exposure(parser: argparse.ArgumentParser) -> None:
    """Give a parser the option --exposure."""
    parser.add_argument(
        "--exposure",
        metavar="COLUMN",
        help="time at risk, area or the like to which the outcome is proportional; no covariate",
    )


def _add_table(parser: argparse.ArgumentParser, needs_table: bool = True) -> None:
    """Give a parser the table that it reads, and how that is written."""
    parser.add_argument("table", type=Path, nargs=None if needs_table else "?", help=_TABLE)
    parser.add_argument(
        "--separator",
        type=_separator,
        metavar="CHARACTER",
        help="separator of CSV fields: a character, or tab (default: found automatically)",
    )
    parser.add_argument(
        "--encoding", help="encoding of a CSV file, such as latin-1 (default: UTF-8, or UTF-16 if marked)"
    )


def _separator(text: str) -> str:
    """A single character; tab may be written as a word."""
    separator = {"tab": "\t", r"\t": "\t"}.get(text, text)
    if len(separator) != 1 or separator in '"\r\n':
        raise argparse.ArgumentTypeError(f"expected one character, or tab; got {text!r}")
    return separator


def _command(name: str) -> Callable[[argparse.Namespace], None]:
    """The command of that name, whose imports wait until it runs."""

    def run(args: argparse.Namespace) -> None:
        packages, complaint = _NEEDS.get(name, _TABLES_NEED)
        if any(importlib.util.find_spec(package) is None for package in packages):
            raise ImportError(complaint)
        getattr(importlib.import_module(f"treecdf.cli.{_MODULES[name]}"), name)(args)

    return run


def _positive(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number of at least 1; got {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    """A number of seconds from 0 to 3600."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"expected seconds from 0 to 3600; got {text!r}")
    return seconds


def _level(text: str) -> float:
    """A probability between 0 and 1, both left out."""
    try:
        level = float(text)
    except ValueError:
        level = -1.0
    if not 0 < level < 1:
        raise argparse.ArgumentTypeError(f"expected a level between 0 and 1; got {text!r}")
    return level


def _demo(args: argparse.Namespace) -> None:
    """Fit and draw the example; without matplotlib there is no picture."""
    picture: Path | None = args.out
    if importlib.util.find_spec("matplotlib") is None:
        print("no picture: matplotlib is missing (pip install 'treecdf[plots]')", file=sys.stderr)
        picture = None
    else:
        from treecdf.cli.output import PICTURES, check_output

        check_output(args.out, [], PICTURES)
    from treecdf.cli.demo import run_demo

    run_demo(picture)


def _warmup(args: argparse.Namespace) -> None:
    """Compile every kernel."""
    from treecdf.cli.warmup import warm_up

    start = time.perf_counter()
    warm_up()
    print(f"kernels ready in {time.perf_counter() - start:.1f} s")
