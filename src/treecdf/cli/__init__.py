"""The command line `treecdf`."""

from treecdf.cli.main import main

__all__ = ["main"]
