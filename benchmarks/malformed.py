"""Requests that nobody should send: good bodies with parts replaced, removed or doubled, or with changed bytes."""

import copy
import json
import random
from collections.abc import Iterator, Mapping
from typing import Any

# Values that stand where others are expected.
STRANGE = [None, True, -1, 0, 1e308, -1e308, 5e-324, 10**300, 2**64, "", "\ud800", "NaN", [], {}, [[]], {"": None}]
STRANGE += ["2026-13-45", "9999-12-31T23:59:59", "0000-01-01", "x" * 1000, [None] * 3, 0.5]


def malformed(good: Mapping[str, dict[str, Any]], rng: random.Random) -> tuple[str, bytes]:
    """An address, one of those of the good bodies, and a body that is most probably wrong."""
    path = rng.choice(list(good))
    body = json.loads(json.dumps(good[path]))
    for _ in range(rng.randint(1, 3)):
        _change(body, rng)
    text = bytearray(json.dumps(body).encode())
    if rng.random() < 0.3:
        for _ in range(rng.randint(1, 5)):
            text[rng.randrange(len(text))] = rng.randrange(256)
    if rng.random() < 0.1:
        text = text[: rng.randrange(len(text))]
    return path, bytes(text)


def _change(body: dict[str, Any], rng: random.Random) -> None:
    """Replace, remove or double one part of a body, if it has any."""
    paths = [path for path in _places(body) if path]
    if not paths:
        return
    *holders, key = rng.choice(paths)
    holder: Any = body
    for own in holders:
        holder = holder[own]
    act = rng.randrange(4)
    if act == 0:
        del holder[key]
    elif act == 1 and isinstance(holder, list):
        holder.insert(0, copy.deepcopy(holder[key]))
    elif act == 1:
        holder[f"{key}\x00"] = copy.deepcopy(holder[key])
    else:
        holder[key] = copy.deepcopy(rng.choice(STRANGE))  # a list that is changed later must not hold itself


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to all parts of a body."""
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from _places(part, (*path, key))
