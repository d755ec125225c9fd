"""What training gives: fitted flows with their history, and families of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treecdf._common.typing import Array
from treecdf.flows.flow import TreeFlow
from treecdf.flows.mixture import Flow
from treecdf.flows.regions import Regions


@dataclass(frozen=True)
class Family:
    """Members of equal settings and what is known of them."""

    name: str
    members: tuple[Flow, ...]
    left_out: Array  # (n,): log densities of rows by members that did not see them; NaN for rows that all saw
    log_weights: Array  # (regions + 1, members)
    regions: Regions | None = None


@dataclass
class History:
    """Mean log-likelihood after every tree that was grown, also those rolled back; one entry for each tree."""

    stage: list[int] = field(default_factory=list)
    train: list[float] = field(default_factory=list)
    validation: list[float] = field(default_factory=list)  # NaN without validation rows
    kept: list[bool] = field(default_factory=list)  # False for trees that early stopping rolled back


@dataclass(frozen=True)
class Fitted:
    """What one training job gives: flows that share a base, and their history."""

    flows: tuple[TreeFlow, ...]
    history: History
    left_out: Array | None = None  # (n,): log densities of rows that the flows were not trained on
    is_whole: bool = True  # False if it was interrupted before it had all its trees


def history_table(histories: Sequence[History]) -> dict[str, NDArray[Any]]:
    """The histories of several members as columns: member, stage, train, validation, kept."""
    member = np.repeat(np.arange(len(histories)), [len(history.stage) for history in histories])

    def column(name: str, kind: type) -> NDArray[Any]:
        return np.concatenate([np.array(getattr(history, name), dtype=kind) for history in histories])

    kinds = {"stage": int, "train": float, "validation": float, "kept": bool}
    return {"member": member} | {name: column(name, kind) for name, kind in kinds.items()}
