"""`python -m treecdf` is the command line."""

import sys

from treecdf.cli import main

if __name__ == "__main__":
    sys.exit(main())
