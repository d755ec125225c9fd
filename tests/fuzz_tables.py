"""Tables that were made at random, through the command line: `python -m tests.fuzz_tables --count 5000 --seed 0`.

A small model is asked for scores and quantiles of CSV files with all sorts of values, quotes, ragged lines, encodings,
huge fields, names and line ends. The answer for a row must not depend on the other rows: it is compared with that for
the row alone. A refusal must be one sentence with the line and the column where there is one. Nothing else may happen.
"""

import argparse
import contextlib
import importlib
import io
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from unittest import mock

import numpy as np

NUMBERS = ["0", "1", "-3", "+2", "0.5", ".5", "5.", "1e5", "1E-3", "-0", " 2", "3 ", "12345678901234567890", "0.1"]
MISSING = ["", "NA", "nan", "NULL", " ", "None", "#N/A", "N/A"]
NAMES = [
    "01",
    "1",
    "true",
    "hill",
    "TRUE",
    "False",
    "1.0",
    "01.50",
    "größe",
    "a,b",
    'a"b',
    "a\nb",
    "a\r\nb",
    "\x1b[31m",
]
NAMES += [
    "x\0",
    "\0",
    "'",
    "=1+1",
    "2020-01-01",
    "0x1F",
    "1_000",
    "１２",
    "\u202eabc",
    "\ud7ff",
    "inf",
    "日本",
    "-",
    "e",
]
CODES = ["3", "4", "12", "3.0", "4.00", "03", "+3", "x", "3e0", "12.5"]
NO_NUMBERS = ["x", "01", "true", "1,5", "12kg", "inf", "-Infinity", "1e999", "1_0", "--1", "\x1b[2J", "9" * 400, "½"]
COLUMNS = ("size", "zone", "code", "y")
# Faults that must be refused; the others may be answered.
FATAL = {"no number", "ragged", "not text", "twice", "no column", "open quote", "after quote"}


def quoted(field, rng):
    """A field as CSV, in quotes if it must be or by chance."""
    if any(c in field for c in ',"\r\n') or rng.random() < 0.1:
        return '"' + field.replace('"', '""') + '"'
    return field


def value(column, rng):
    """A field that is fine in this column."""
    if rng.random() < 0.1 and column != "y":
        return str(rng.choice(MISSING))
    if column == "zone":
        return NAMES[rng.integers(len(NAMES))] if rng.random() < 0.95 else "z" * int(rng.integers(1, 200_000))
    if column == "code":
        return CODES[rng.integers(len(CODES))]
    return NUMBERS[rng.integers(len(NUMBERS))] if rng.random() < 0.5 else repr(float(rng.normal()))


def make(rng):
    """A table: its bytes, its rows as (line, text), the header's text, its fault and the line and column of that."""
    columns = [*COLUMNS, *(f"more {k}" for k in range(rng.integers(3)))]
    rng.shuffle(columns)
    fault = ["none", "none", "no number", "ragged", "not text", "twice", "no column", "open quote", "after quote"][
        rng.integers(9)
    ]
    if rng.random() < 0.1:
        columns.append("")
    if fault == "twice":
        columns.append(columns[rng.integers(4)] or "size")
    if fault == "no column":
        columns.remove("size")
    end = ["\n", "\r\n", "\r"][rng.integers(3)]
    header = ",".join(quoted(name, rng) for name in columns)
    n = int(rng.integers(1, 6))
    bad_row, place = int(rng.integers(n)), (None, None)
    text, line, rows = header + end, 2, []
    for k in range(n):
        while rng.random() < 0.1:
            text, line = text + [end, "  " + end][rng.integers(2)], line + 1
        fields = [quoted(value(name, rng), rng) for name in columns]
        if k == bad_row and fault in FATAL:
            place = _spoil(fields, columns, fault, line, rng)
        row = ",".join(fields)
        rows.append((line, row))
        text += row + (end if k < n - 1 or rng.random() < 0.5 else "")
        line += 1 + len(re.findall("\r\n|\r|\n", row))
    if fault in ("twice", "no column"):
        place = (1, None) if fault == "twice" else (None, "size")
    data = text.encode("utf-8-sig" if rng.random() < 0.2 else "utf-8")
    return data.replace("\ue000".encode(), b"\xff"), rows, header, fault, place


def _spoil(fields, columns, fault, line, rng):
    """Put a fault into a row; the line and the column that the refusal has to name."""
    numbers = [j for j, name in enumerate(columns) if name in ("size", "y")]
    j = numbers[rng.integers(len(numbers))]
    before = sum(len(re.findall("\r\n|\r|\n", field)) for field in fields[:j])
    if fault == "no number":
        fields[j] = quoted(NO_NUMBERS[rng.integers(len(NO_NUMBERS))], rng)
        return line, columns[j]
    if fault == "ragged":
        if rng.random() < 0.5 and len(fields) > 2:
            del fields[j]
        else:
            fields.insert(rng.integers(len(fields) + 1), ["", "1", "x"][rng.integers(3)])
    elif fault == "not text":
        fields[j] = "\ue000"  # becomes a byte that is no UTF-8
        return line + before, None
    elif fault == "open quote":
        fields[-1] = '"never closed'
    elif fault == "after quote":
        fields[j] = '"1"x'
        return line + before, None
    return line, None


def ask(command, model, data, place, *options):
    """Exit code, what was printed as an error, and the table that came out, of one command."""
    table, out = place / "table.csv", place / "out.csv"
    table.write_bytes(data)
    out.unlink(missing_ok=True)
    from treecdf.cli.main import main

    err = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
        code = main([command, str(model), str(table), *options, "--out", str(out)])
    answer = np.loadtxt(out, delimiter=",", skiprows=1, ndmin=2)[:, 1:] if out.exists() else None  # without the row
    return code, err.getvalue(), answer


def judge(model, made, place):
    """What became of one table: "answered" or "refused"; anything else is an AssertionError."""
    data, rows, header, fault, (line, column) = made
    for command, options in (("score", ()), ("quantiles", ("--levels", ".1", ".7"))):
        code, err, answer = ask(command, model, data, place, *options)
        assert "Traceback" not in err, err
        assert "unexpected" not in err, err
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", err), err
        is_asked = column != "y" or command == "score"  # quantiles do not read the outcomes
        if fault in FATAL and is_asked:
            assert code == 1, f"{fault} was not refused"
            assert err.count("\n") == 1, err
            assert line is None or f"line {line}" in err, f"expected line {line}: {err}"
            assert column is None or f"column '{column}'" in err, f"expected column {column}: {err}"
            assert answer is None
            continue
        assert code == 0, err
        assert len(answer) == len(rows)
        for k in range(len(rows)) if command == "quantiles" else [len(data) % len(rows)]:
            _, _, alone = ask(command, model, f"{header}\n{rows[k][1]}\n".encode(), place, *options)
            np.testing.assert_allclose(alone[0], answer[k], rtol=1e-9, atol=1e-9)
    return "refused" if fault in FATAL else "answered"


def run(count, seed, directory, say=lambda text: None):
    """Judge so many tables; how often each (outcome, fault) came, and the seconds of the slowest table."""
    from tests.helpers.small_tables import small_model
    from treecdf.cli import models

    command_line = importlib.import_module("treecdf.cli.main")
    model, fitted = Path(directory) / "fuzzed.tcdf", small_model()
    fitted.save(model)
    # To load the model and to make the parser take longer than to ask.
    quick_load = mock.patch.object(models, "load_model", return_value=fitted)
    quick_parser = mock.patch.object(command_line, "_parser", return_value=command_line._parser())
    with quick_load, quick_parser:
        return _judge_all(model, count, seed, say)


def _judge_all(model, count, seed, say):
    rng = np.random.default_rng(seed)
    outcomes, slowest = Counter(), 0.0
    for number in range(count):
        made = make(rng)
        begin = time.perf_counter()
        try:
            outcomes[judge(model, made, model.parent), made[3]] += 1
        except Exception as error:
            kept = model.parent / f"failed-{seed}-{number}.csv"
            kept.write_bytes(made[0])
            raise AssertionError(f"table {number} ({made[3]}), kept as {kept}: {error!r}") from error
        slowest = max(slowest, time.perf_counter() - begin)
        if (number + 1) % 500 == 0:
            say(f"{number + 1}: {dict(outcomes)}")
    return outcomes, slowest


def main():
    """Fuzz from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    say = lambda text: print(text, flush=True)  # noqa: E731, T201
    begin = time.perf_counter()
    outcomes, slowest = run(options.count, options.seed, tempfile.mkdtemp(), say)
    for (outcome, fault), count in sorted(outcomes.items()):
        say(f"{fault:12} {outcome:9} {count}")
    say(f"{options.count} tables in {time.perf_counter() - begin:.0f} s, slowest {slowest:.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
