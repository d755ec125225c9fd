"""Command line: learn from tables, ask the models; see `treecdf --help`."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import treecdf

_EXAMPLE = """a session, from a table to answers:
  treecdf fit houses.csv --outcome price --out houses.tcdf
  treecdf score houses.tcdf new.csv
  treecdf quantiles houses.tcdf new.csv --levels .05 .5 .95 --out quantiles.csv
  treecdf sample houses.tcdf new.csv --n 100 --out draws.parquet
  treecdf plot houses.tcdf new.csv --kind intervals --out intervals.png
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code: 0 done, 1 it could not be done, 2 wrong arguments, 130 interrupted."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.command is None:
        parser.print_help()
        return 2
    try:
        return int(args.run(args) or 0)
    except KeyboardInterrupt:
        goes_on = "; run the same command again to go on" if getattr(args, "checkpoint", None) else ""
        print(f"treecdf {args.command}: interrupted{goes_on}", file=sys.stderr)
        return 130
    except OSError as error:
        print(f"treecdf {args.command}: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    except (ValueError, TypeError, ImportError) as error:
        print(f"treecdf {args.command}: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="treecdf",
        description="Learn the whole conditional distribution p(y | x) of one or several outcomes on a table.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"treecdf {treecdf.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command")
    _add_fit(commands)
    _add_questions(commands)
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
        help="compile all kernels now, for example when an image is built",
        description="Compile every kernel and keep the machine code on disk, so that no later process waits for it.",
    )
    warmup.set_defaults(run=_warmup)
    return parser


def _add_fit(commands: Any) -> None:
    fit = commands.add_parser(
        "fit",
        help="learn a model from a CSV or Parquet table",
        description="Learn the distribution of the outcomes given all other columns. Text columns are categories; gaps "
        "are welcome except in outcomes, where they leave the row out.",
    )
    fit.add_argument("table", type=Path, help="CSV with a header, or Parquet")
    fit.add_argument("--outcome", action="append", required=True, metavar="COLUMN", help="may be repeated")
    fit.add_argument("--out", type=Path, required=True, metavar="MODEL", help="model file, for example model.tcdf")
    fit.add_argument("--drop", nargs="+", default=[], metavar="COLUMN", help="columns that are no covariates")
    fit.add_argument("--categorical", nargs="+", default=[], metavar="COLUMN", help="numbers that are names of levels")
    fit.add_argument("--weight", metavar="COLUMN", help="how many rows each row counts for")
    fit.add_argument(
        "--bounds",
        action="append",
        default=[],
        metavar="LOW,HIGH",
        help="ends of an outcome's support, an empty end for none: --bounds 0, (one for all outcomes or one for each)",
    )
    fit.add_argument("--effort", choices=("fast", "default", "best"), default="default", help="default: %(default)s")
    fit.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    fit.add_argument("--jobs", type=int, default=-1, help="threads or processes, -1 for all cores (default)")
    fit.add_argument(
        "--checkpoint",
        type=Path,
        metavar="PATH",
        help="directory for what has been trained so far: after an interrupt or a crash the same command goes on",
    )
    fit.set_defaults(run=_command("fit"))


def _add_questions(commands: Any) -> None:
    score = _question(commands, "score", "mean log density, CRPS and coverage of a table with outcomes")
    score.add_argument("--out", type=Path, metavar="TABLE", help="log density of every row (CSV or Parquet)")
    sample = _question(commands, "sample", "draws of the outcomes, one line each")
    sample.add_argument("--n", type=_positive, default=100, help="draws for each row (default: %(default)s)")
    sample.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    sample.add_argument("--out", type=Path, required=True, metavar="TABLE", help="CSV or Parquet")
    quantiles = _question(commands, "quantiles", "quantiles of every outcome")
    quantiles.add_argument("--levels", type=_level, nargs="+", default=[0.05, 0.5, 0.95], help="default: .05 .5 .95")
    quantiles.add_argument("--out", type=Path, required=True, metavar="TABLE", help="CSV or Parquet")
    plot = _question(commands, "plot", "a picture of what was learnt", needs_table=False)
    plot.add_argument("--kind", choices=_PLOTS, default="density", help="default: %(default)s")
    plot.add_argument("--rows", type=int, nargs="+", default=[0, 1, 2], help="for density (default: 0 1 2)")
    plot.add_argument("--covariate", metavar="COLUMN", help="for fan: the covariate that runs")
    plot.add_argument("--out", type=Path, required=True, metavar="PICTURE", help="PNG, PDF, SVG or JPG")
    info = commands.add_parser("info", help="what is in a model file", description="Say what is in a model file.")
    info.add_argument("model", type=Path, help="file that `treecdf fit` wrote")
    info.set_defaults(run=_command("info"))


_PLOTS = ("density", "fan", "pit", "calibration", "intervals", "importance", "history")


def _question(commands: Any, name: str, text: str, needs_table: bool = True) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=text,
        description=f"{text[0].upper()}{text[1:]}. The table may have more columns than the model asks.",
    )
    parser.add_argument("model", type=Path, help="file that `treecdf fit` wrote")
    parser.add_argument("table", type=Path, nargs=None if needs_table else "?", help="CSV with a header, or Parquet")
    parser.set_defaults(run=_command(name))
    return parser


def _command(name: str) -> Callable[[argparse.Namespace], None]:
    """The command of that name, whose imports wait until it runs."""

    def run(args: argparse.Namespace) -> None:
        if importlib.util.find_spec("pandas") is None:
            raise ImportError("tables need pandas: pip install 'treecdf[cli]'")
        from treecdf.cli import commands

        getattr(commands, name)(args)

    return run


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number of at least 1; got {text!r}")
    return int(text)


def _level(text: str) -> float:
    try:
        level = float(text)
    except ValueError:
        level = -1.0
    if not 0 < level < 1:
        raise argparse.ArgumentTypeError(f"expected a level between 0 and 1; got {text!r}")
    return level


def _demo(args: argparse.Namespace) -> int:
    picture: Path | None = args.out
    if importlib.util.find_spec("matplotlib") is None:
        print("no picture: matplotlib is missing (pip install 'treecdf[plots]')", file=sys.stderr)
        picture = None
    elif complaint := _not_a_picture(args.out):
        print(f"treecdf demo: {complaint}", file=sys.stderr)
        return 1
    from treecdf.cli.demo import run_demo

    run_demo(picture)
    return 0


def _not_a_picture(path: Path) -> str | None:
    """Why no picture can be written to `path`, found out before the work is done."""
    if not path.resolve().parent.is_dir():
        return f"there is no directory {path.resolve().parent}"
    if path.is_dir():
        return f"{path} is a directory, not a picture"
    if path.suffix.lower() not in (".png", ".pdf", ".svg", ".jpg"):
        return f"the picture's name should end in .png, .pdf, .svg or .jpg; got {path.name}"
    return None


def _warmup(args: argparse.Namespace) -> int:
    from treecdf.cli.warmup import warm_up

    start = time.perf_counter()
    warm_up()
    print(f"kernels ready in {time.perf_counter() - start:.1f} s")
    return 0
