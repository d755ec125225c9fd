"""Entry point of `python -m benchmarks`."""

import sys

from benchmarks.machine import use_one_thread

if __name__ == "__main__":
    use_one_thread()  # numpy reads these settings when it is first imported, so the rest comes after
    from benchmarks.cli import main

    sys.exit(main())
