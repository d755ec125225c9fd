"""The first hour of a new user: `python -m tests.first_hour` runs README and every page as they are written.

Each page runs in a directory and a process of its own: its Python blocks one after the other, then its commands, on
the tables that README writes. Every block and command is printed with its seconds. With `--fresh DIRECTORY` a virtual
environment is made there first, with what the first command of README installs and nothing else.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
INSTALL = ["install", f"{ROOT}[plots,cli]"]
PAGES = (
    "README",
    "docs/index",
    "docs/tables",
    "docs/command-line",
    "docs/scikit-learn",
    "docs/gallery",
    "docs/settings",
)
TIMED = """
import sys, time, json
import matplotlib; matplotlib.use("Agg")
names = {}
for block in json.load(sys.stdin):
    begin = time.perf_counter()
    exec(compile(block, "page", "exec"), names)
    first = next(line for line in block.splitlines() if line and not line.startswith(("import", "from")))
    print(f"SECONDS {time.perf_counter() - begin:.2f} {first}")
"""


def blocks(page, language):
    """The blocks of a page in this language."""
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / f"{page}.md").read_text(), re.DOTALL)


def run_blocks(python, page, directory, say):
    """Run the Python blocks of a page in one process, and say how long each took."""
    import json

    ended = subprocess.run(
        [python, "-c", TIMED], input=json.dumps(blocks(page, "python")), cwd=directory, capture_output=True, text=True
    )
    for line in re.findall(r"^SECONDS (.*)$", ended.stdout, re.MULTILINE):
        seconds, first = line.split(" ", 1)
        say(f"{float(seconds):8.2f} s  {first}")
    if ended.returncode:
        raise SystemExit(f"{page}.md: a block failed\n{ended.stderr[-2000:]}")


def run_commands(python, page, directory, say):
    """Run the commands of a page that call treecdf, and say how long each took."""
    for line in "\n".join(blocks(page, "sh")).splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] != ["treecdf"]:
            continue
        begin = time.perf_counter()
        ended = subprocess.run([python, "-m", *words], cwd=directory, capture_output=True, text=True)
        say(f"{time.perf_counter() - begin:8.2f} s  {shlex.join(words)}")
        if ended.returncode:
            raise SystemExit(f"{page}.md: {line}\n{ended.stderr[-2000:]}")


def fresh(directory, say):
    """The Python of a new virtual environment with what README's first command installs."""
    begin = time.perf_counter()
    venv.create(directory, with_pip=True)
    python = str(Path(directory) / ("Scripts" if os.name == "nt" else "bin") / "python")
    subprocess.run([python, "-m", "pip", "--quiet", *INSTALL], check=True)
    say(f"{time.perf_counter() - begin:8.2f} s  pip install .[plots,cli]")
    for name in ("PYTHONPATH", "NUMBA_CACHE_DIR"):  # the environment is to be a new one in every way
        os.environ.pop(name, None)
    return python


def main():
    """Walk the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fresh", metavar="DIRECTORY", help="where to make a virtual environment")
    parser.add_argument("--pages", nargs="+", default=PAGES, help="default: all")
    options = parser.parse_args()
    say = lambda text: print(text, flush=True)  # noqa: E731, T201
    begin = time.perf_counter()
    python = sys.executable if options.fresh is None else fresh(options.fresh, say)
    tables = tempfile.mkdtemp()
    for page in options.pages:
        say(f"{page}.md")
        run_blocks(python, page, tables, say)
        run_commands(python, page, tables, say)
    say(f"{time.perf_counter() - begin:8.2f} s  in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
