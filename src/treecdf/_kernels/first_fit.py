"""Kernels of a first default fit and of the first questions after it, with the types of their arguments.

`python -m tests.record_kernels` writes this file: in the order in which the kernels are used; `type:n` is an array of n
axes. What is not here, or no longer true, costs time at the first fit and nothing else.
"""

# ruff: noqa: E501

FIRST_FIT: tuple[tuple[str, str, str], ...] = (
    ("mixtures", "mixture_loss", "float64:1 float64:2 float64:2 int64 float64 float64:1 float64:2 float64:2"),
    ("binned_trees", "fill_codes", "float64:2 float64:2 int64:1 uint8:2"),
    (
        "histogram",
        "grow",
        "uint8:2 int64:1 float64:2 float64:2 float64:1 int64:1 int64 float64 float64 int64:1 int64:1 int64:1 float64:2",
    ),
    ("binned_trees", "add_trees", "uint8:2 int64:2 uint8:2 uint8:2 float64:3 float64 float64:2"),
    ("processes", "add_process", "float64:2 float64:2 float64:1 float64:1"),
    ("mixtures", "mixture_forward", "float64:2 float64:2 float64:2 float64:2 int64:1 float64:2 float64:2 float64:2"),
    (
        "rows",
        "search_sums",
        "float64:2 float64:2 float64:1 int64:1 int64:1 int64:1 float64:1 int64:1 float64:3 float64:3 float64:4 float64:3",
    ),
    (
        "node_trees",
        "begin_round",
        "uint8:2 float64:2 float64:1 int64:1 int64:1 float64:3 int64:1 int64:1 float64:1 bool:1 float64:1 int64 int64:2 int64:2 int64:2 float64:1 float64:4",
    ),
    ("splits", "best_splits", "float64:4 int64 int64:1 float64 float64 int64:2 int64:2 int64:2"),
    (
        "node_trees",
        "next_level",
        "uint8:2 float64:2 float64:1 int64:1 int64:1 float64:3 int64:1 bool:1 int64 int64:2 int64:2 int64:2 float64:4",
    ),
    ("splits", "sums_of_children", "float64:4 int64:2 int64:2 int64:2"),
    ("rows", "descend", "float64:2 int64:1 int64:1 int64:1 float64:1 int64:2 int64:1 int64:1"),
    ("transform", "forward", "node:1 float64:2 int64:1 int64:1 float64:2 int64 float64:2 float64:1"),
    (
        "distances",
        "fill_excess",
        "float64:2 float64:1 float64:2 float64:2 float64:2 float64:2 float64 float64 float64:1",
    ),
)

FIRST_QUESTIONS: tuple[tuple[str, str, str], ...] = (
    ("transform", "inverse", "node:1 float64:2 int64:1 int64:1 float64:2 int64 float64:2"),
    ("mixtures", "mixture_inverse", "float64:2 int64:2 float64:2 float64:2 float64:2 int64:1 float64:2"),
)
