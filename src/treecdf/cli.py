"""Command line: `treecdf demo` and `treecdf warmup`."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import treecdf


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.command is None:
        parser.print_help()
        return 2
    return int(args.run(args))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="treecdf",
        description="Learn the whole conditional distribution p(y | x) of one or several outcomes on a table.",
    )
    parser.add_argument("--version", action="version", version=f"treecdf {treecdf.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command")
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


def _demo(args: argparse.Namespace) -> int:
    picture: Path | None = args.out
    if importlib.util.find_spec("matplotlib") is None:
        print("no picture: matplotlib is missing (pip install 'treecdf[plots]')", file=sys.stderr)
        picture = None
    elif complaint := _not_a_picture(args.out):
        print(f"treecdf demo: {complaint}", file=sys.stderr)
        return 1
    from treecdf.demo import run_demo

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
    from treecdf.warmup import warm_up

    start = time.perf_counter()
    warm_up()
    print(f"kernels ready in {time.perf_counter() - start:.1f} s")
    return 0
