"""The command that serves a model over HTTP."""

from __future__ import annotations

import argparse
import sys

from treecdf.cli.terminal import printable, quoted
from treecdf.estimators.loading import load_model
from treecdf.estimators.regressor import TreeFlowRegressor
from treecdf.serving.app import Application
from treecdf.serving.limits import Limits
from treecdf.serving.running import listen, run


def serve(args: argparse.Namespace) -> None:
    """Serve the model in a file until a signal comes."""
    name = args.model.stem if args.name is None else args.name
    if not name or "/" in name:
        raise ValueError(f"expected --name to be a name without slashes; got {quoted(name)}")
    model = load_model(args.model)
    if not isinstance(model, TreeFlowRegressor):
        kind = type(model).__name__
        raise ValueError(f"{args.model} holds a {kind}, and only a TreeFlowRegressor can be served")
    limits = Limits(
        body=args.max_body,
        rows=args.max_rows,
        draws=args.max_draws,
        levels=args.max_levels,
        values=args.max_values,
        waiting=args.max_waiting,
    )
    application = Application(model, name, limits, args.threads)
    listening = listen(args.host, args.port)
    print(f"serving the model {printable(name)}", file=sys.stderr)
    run(application, listening, notice=args.notice)
