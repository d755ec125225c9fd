"""The first hour of a new user: `python -m tests.first_hour` runs README and every page as they are written.

Each page runs in a process of its own: its Python blocks one after the other, then its commands, on the tables and
models that README writes. Every block and command is printed with its seconds. `treecdf serve` stays up for the
requests after it. Commands of Docker and pip are named, not run. With `--fresh DIRECTORY` a virtual environment is
made there first, with what the first command of README installs; a page that needs an extra has it installed first.
"""

import argparse
import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
INSTALL = ["install", f"{ROOT}[plots,cli]"]
FIRST = ("README", "docs/index", "docs/tables", "docs/command-line", "docs/scikit-learn", "docs/gallery")
EXTRAS = {"docs/scaling": "dask", "docs/serving": "serve", "docs/skpro": "skpro"}
ADDRESS = "http://127.0.0.1:8000"
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


def pages():
    """README and all pages with blocks, in the order in which a newcomer reads them."""
    found = sorted(str(path.relative_to(ROOT).with_suffix("")) for path in (ROOT / "docs").glob("*.md"))
    found += sorted(str(path.relative_to(ROOT).with_suffix("")) for path in (ROOT / "docs/contributing").glob("*.md"))
    return [*FIRST, *(page for page in found if page not in FIRST and (blocks(page, "python") or blocks(page, "sh")))]


def run_blocks(python, page, directory, say):
    """Run the Python blocks of a page in one process, and say how long each took."""
    ended = subprocess.run(
        [python, "-c", TIMED], input=json.dumps(blocks(page, "python")), cwd=directory, capture_output=True, text=True
    )
    for line in re.findall(r"^SECONDS (.*)$", ended.stdout, re.MULTILINE):
        seconds, first = line.split(" ", 1)
        say(f"{float(seconds):8.2f} s  {first}")
    if ended.returncode:
        raise SystemExit(f"{page}.md: a block failed\n{ended.stderr[-2000:]}")


def run_commands(python, page, directory, say):
    """Run the commands of a page, and say how long each took."""
    with contextlib.ExitStack() as servers:
        for line in commands("\n".join(blocks(page, "sh"))):
            words = shlex.split(line, comments=True)
            if words[0] not in ("treecdf", "curl"):
                say(f"   not run  {words[0]} {words[1]} ...")
                continue
            begin = time.perf_counter()
            if words[:2] == ["treecdf", "serve"]:
                servers.enter_context(server(python, words, directory))
            else:
                call = [python, "-m", *words] if words[0] == "treecdf" else [words[0], "--fail", *words[1:]]
                ended = subprocess.run(call, cwd=directory, capture_output=True, text=True)
                if ended.returncode:
                    raise SystemExit(f"{page}.md: {line}\n{ended.stdout[-1000:]}{ended.stderr[-2000:]}")
            say(f"{time.perf_counter() - begin:8.2f} s  {' '.join(shlex.join(words).split())[:100]}")


def commands(text):
    """The commands of a block: lines, joined where a line ends in a backslash or an open quotation mark."""
    whole = ""
    for line in text.splitlines():
        whole += line.removesuffix("\\") if line.endswith("\\") else f"{line}\n"
        with contextlib.suppress(ValueError):  # a quotation mark is open
            if not line.endswith("\\") and shlex.split(whole, comments=True):
                yield whole
            if not line.endswith("\\"):
                whole = ""


@contextlib.contextmanager
def server(python, words, directory):
    """A server that answers, until the page ends."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen([python, "-m", *words], cwd=directory, stdout=log, stderr=log)
        try:
            for _ in range(600):
                with contextlib.suppress(OSError), urllib.request.urlopen(f"{ADDRESS}/v2/health/ready", timeout=5):
                    break
                if process.poll() is not None:
                    log.seek(0)
                    raise SystemExit(f"the server ended\n{log.read()[-2000:].decode()}")
                time.sleep(0.1)
            yield
        finally:
            process.terminate()
            process.wait()


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
    parser.add_argument("--pages", nargs="+", default=pages(), help="default: all")
    options = parser.parse_args()
    say = lambda text: print(text, flush=True)  # noqa: E731, T201
    begin = time.perf_counter()
    python = sys.executable if options.fresh is None else fresh(options.fresh, say)
    tables = tempfile.mkdtemp()
    for page in options.pages:
        say(f"{page}.md")
        if options.fresh is not None and page in EXTRAS:
            subprocess.run([python, "-m", "pip", "--quiet", "install", f"{ROOT}[plots,cli,{EXTRAS[page]}]"], check=True)
        run_blocks(python, page, tables, say)
        run_commands(python, page, tables, say)
    say(f"{time.perf_counter() - begin:8.2f} s  in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
