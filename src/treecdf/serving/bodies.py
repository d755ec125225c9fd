"""JSON of requests, read strictly, and JSON of answers, in which every number is finite or null."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from treecdf.serving.limits import Refusal, listed, shown

LARGEST = 1.7976931348623157e308  # of float64


def read_object(body: bytes) -> dict[str, Any]:
    """The object in a body; NaN, infinities, duplicate names and too deep nesting are refused."""
    try:
        found = json.loads(body, parse_constant=_refuse_constant, object_pairs_hook=_object)
    except RecursionError:
        raise Refusal("the body is nested too deeply") from None
    except UnicodeDecodeError:
        raise Refusal("the body is no UTF-8") from None
    except json.JSONDecodeError as error:
        raise Refusal(f"the body is no JSON: {error.msg} at character {error.pos}") from None
    except ValueError:  # integers of thousands of digits
        raise Refusal("the body holds a number of too many digits") from None
    if not isinstance(found, dict):
        raise Refusal(f"expected an object; got {shown(found)}")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise Refusal(f"{name} is no JSON: write null for a missing value")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of the names and values in the text."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Refusal(f"the name {shown(twice)} comes twice in an object")
    return found


def check_fields(given: Mapping[str, Any], known: tuple[str, ...], where: str = "the body") -> None:
    """Refuse unknown names in an object: most of them are typing errors."""
    for name in given:
        if name not in known:
            raise Refusal(f"{where} has the unknown field {shown(name)}; expected {listed(known)}")


def read_number(value: Any, where: str) -> float:
    """A finite number."""
    if type(value) not in (int, float) or not -LARGEST <= value <= LARGEST:
        raise Refusal(f"{where}: expected a finite number; got {shown(value)}")
    return float(value)


def read_whole(value: Any, where: str, low: int, high: int) -> int:
    """A whole number from `low` to `high`."""
    if type(value) is not int or not low <= value <= high:
        raise Refusal(f"{where}: expected a whole number from {low} to {high}; got {shown(value)}")
    return value


def encode(answer: Any) -> str:
    """An answer as JSON: mappings, arrays, lists and texts. NaN and numbers beyond float64 are null.

    Arrays are written row by row: a single call for a million numbers would block all other requests.
    """
    if isinstance(answer, Mapping):
        return "{" + ",".join(f"{json.dumps(name)}:{encode(value)}" for name, value in answer.items()) + "}"
    if isinstance(answer, list):
        return "[" + ",".join(map(encode, answer)) + "]"
    if isinstance(answer, np.ndarray):
        return _encode_array(answer)
    return json.dumps(answer, allow_nan=False)


def _encode_array(values: NDArray[np.float64]) -> str:
    if values.ndim > 1:
        return "[" + ",".join(map(_encode_array, values)) + "]"
    numbers = [value if isfinite(value) else None for value in values.tolist()]
    return json.dumps(numbers, separators=(",", ":"))
