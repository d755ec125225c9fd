"""The parts by letter, and the run that prints and stores them."""

import time
from collections.abc import Sequence
from functools import partial

from benchmarks.machine import provenance
from benchmarks.rows import Store
from benchmarks.speed.fits import ensemble, log_density, trees_against_naive, whole_fits
from benchmarks.speed.fresh import cold_start, peak_memory
from benchmarks.speed.scaling import scaling

PARTS = {
    "a": trees_against_naive,
    "b": whole_fits,
    "c": scaling,
    "d": log_density,
    "e": peak_memory,
    "f": cold_start,
    "g": ensemble,
}


def run_parts(letters: Sequence[str], skip_naive_mlp: bool = False) -> None:
    """Measure the parts one after the other; each is printed and stored as soon as it is done."""
    parts = PARTS | {"a": partial(trees_against_naive, skip_naive_mlp)}
    for letter in letters:
        start = time.perf_counter()
        measures, raw = parts[letter]()
        row = {"part": letter, "measures": measures, "raw": raw, "seconds": time.perf_counter() - start}
        Store("speed").append(row | provenance())
        for record in measures:
            print(f"{letter}  {record['what']}: {figure(record)}{verdict(record)}", flush=True)


def latest_parts() -> dict[str, dict]:
    """The last stored row of each part, in the order of the letters."""
    rows = {row["part"]: row for row in Store("speed").read()}
    return {letter: rows[letter] for letter in PARTS if letter in rows}


def figure(record: dict) -> str:
    """Value with its unit."""
    return f"{record['value']:.3g} {record['unit']}".strip()


def verdict(record: dict) -> str:
    """Target and whether it is met, empty for a figure without one."""
    if "target" not in record:
        return ""
    return f" ({record['target']}: {'met' if record['met'] else 'missed'})"
