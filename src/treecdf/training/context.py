"""What a training job is given besides its data: threads, somebody to report to, and its steps."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field

from treecdf._common.steps import Steps
from treecdf.flows.results import History


@dataclass(frozen=True)
class News:
    """How far a fit is: the history of a flow so far and its validation score, and which flow of how many it is.

    what: what is being trained, in words. doing: what begins now; the history says nothing then.
    """

    history: History
    score: float
    flow: int = 0
    n_flows: int = 1
    what: str = ""
    doing: str = ""

    @staticmethod
    def of_beginning(doing: str) -> News:
        """That something begins."""
        return News(History(), float("nan"), doing=doing)


Report = Callable[[News], None]


def silent(news: News) -> None:
    """Report to nobody."""


@dataclass(frozen=True)
class TrainingContext:
    """Threads for passes over the rows (None: this one only), who hears of progress, and what keeps or stops steps."""

    pool: Executor | None = None
    report: Report = silent
    steps: Steps = field(default_factory=Steps)
