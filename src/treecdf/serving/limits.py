"""Limits of requests, and the refusal of requests that exceed them or cannot be read."""

from __future__ import annotations

from dataclasses import dataclass

# Longest name or value that a refusal repeats.
_MOST_SHOWN = 60
# Names that a refusal lists.
_MOST_LISTED = 10


@dataclass(frozen=True)
class Limits:
    """Limits of a single request, and of the number of waiting requests."""

    body: int = 4_000_000  # bytes of a request
    rows: int = 1_000
    draws: int = 1_000  # for each row
    levels: int = 100  # of quantiles, or outcomes at a row
    values: int = 1_000_000  # numbers in an answer
    waiting: int = 256  # requests that are read, wait or are worked on
    seconds: float = 30.0  # for a request's body to arrive


class Refusal(Exception):
    """A request that is not answered, with the HTTP status and the sentence of the response."""

    def __init__(self, sentence: str, status: int = 400) -> None:
        super().__init__(sentence)
        self.sentence, self.status = sentence, status


def shown(value: object) -> str:
    """A name or value for a refusal: short, without control characters; of lists and objects only the type."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    if isinstance(value, int) and value.bit_length() > 1100:  # whose digits would fill the sentence
        return "an integer beyond the range of float64"
    text = value if isinstance(value, str) else str(value)
    text = text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."
    return repr(text) if isinstance(value, str) else text


def listed(names: tuple[str, ...]) -> str:
    """Names for a refusal, the first few of them."""
    more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    return ", ".join(shown(name) for name in names[:_MOST_LISTED]) + more
