"""Results of training: fitted flows with their history, and families of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from treecdf._common.typing import Array
from treecdf.bases.conditional import Conditional
from treecdf.flows.flow import TreeFlow
from treecdf.flows.mixture import Flow
from treecdf.flows.regions import Regions

# What is known of every tree that was grown, by name: the fields of a History, and columns of `history_`.
HISTORY_COLUMNS: dict[str, DTypeLike] = {
    "stage": np.int64,
    "train": np.float64,
    "validation": np.float64,
    "kept": np.bool_,
    "too_dense": np.bool_,
}


@dataclass(frozen=True)
class Family:
    """Members that were trained with equal settings, and their log densities of left-out rows."""

    name: str
    members: tuple[Flow, ...]
    left_out: Array  # (n,): log densities of rows by members that did not see them; NaN for rows that all saw
    log_weights: Array  # (regions + 1, members)
    regions: Regions | None = None


@dataclass
class History:
    """Mean log-likelihood after every tree that was grown, dropped ones included; one entry for each tree."""

    stage: list[int] = field(default_factory=list)
    train: list[float] = field(default_factory=list)
    validation: list[float] = field(default_factory=list)  # NaN without validation rows
    kept: list[bool] = field(default_factory=list)  # False for trees that early stopping rolled back
    # True for a tree that made a training row too dense, if its stage ended for that reason alone
    too_dense: list[bool] = field(default_factory=list)

    def columns(self) -> dict[str, NDArray[Any]]:
        """The fields as arrays (trees,), by name."""
        return {name: np.array(getattr(self, name), dtype=kind) for name, kind in HISTORY_COLUMNS.items()}


@dataclass(frozen=True)
class EndedStage:
    """A stage of a family's flows that ended because a training row became too dense."""

    family: str
    number: int
    n_trees: tuple[int, int]  # that the flows kept of it: the fewest and the most


@dataclass(frozen=True)
class Fitted:
    """The result of a training job: flows that share a base, and their history."""

    flows: tuple[TreeFlow, ...]
    history: History
    left_out: Array | None = None  # (n,): log densities of rows that the flows were not trained on
    is_whole: bool = True  # False if it was interrupted before it had all its trees


def without_reach_of_last(family: Family) -> Family:
    """The family with bases for which any value of the last covariate is within the training range."""
    new: dict[int, Conditional] = {}  # flows share bases, and go on sharing them
    members: list[Flow] = []
    for flow in family.members:
        base = flow.base if isinstance(flow, TreeFlow) else None
        if isinstance(flow, TreeFlow) and isinstance(base, Conditional):
            own = new.setdefault(id(base), replace(base, reach=base.reach.without_last()))
            flow = replace(flow, base=own)
        members.append(flow)
    return replace(family, members=tuple(members))


def history_table(histories: Sequence[History]) -> dict[str, NDArray[Any]]:
    """The histories of several members as columns: `member`, then those of `HISTORY_COLUMNS`."""
    member = np.repeat(np.arange(len(histories)), [len(history.stage) for history in histories])
    parts = [history.columns() for history in histories]
    return {"member": member} | {name: np.concatenate([part[name] for part in parts]) for name in HISTORY_COLUMNS}


def ended_stages(family: str, histories: Sequence[History]) -> list[EndedStage]:
    """The stages of a family that ended because a training row became too dense, in one or more of its histories."""
    n_trees: dict[int, list[int]] = {}
    for columns in (history.columns() for history in histories):
        for stage in columns["stage"][columns["too_dense"]].tolist():
            n_trees.setdefault(stage, []).append(int((columns["kept"] & (columns["stage"] == stage)).sum()))
    return [EndedStage(family, stage, (min(counts), max(counts))) for stage, counts in sorted(n_trees.items())]
