"""Groups of rows that are judged together: all, and those of a benchmark, model and so on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from calibrator.metrics.metrics import Ints
from calibrator.rows.rows import Row, labels_of

NONE = "(none)"
POOLED = "pooled"
TOOLS_OFFERED = "Available functions (JSON)"  # is in every question with tools
EASY, HARD = 0.65, 0.40  # a benchmark is easy from, or hard below, this accuracy (paper J13)
_PRINTABLE = str.maketrans({code: "�" for code in (*range(32), *range(127, 160))})


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that are judged together; `at` are their positions, ascending."""

    kind: str  # pooled, benchmark, model, domain, tier or task
    name: str
    at: Ints


def printable_name(name: str | None) -> str:
    """Return a name of at most 80 characters, safe to print; `(none)` for None or an empty name.

    Control characters and lone surrogates are replaced. A longer name ends with `…`.
    """
    text = (name or NONE).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    text = text.translate(_PRINTABLE)
    return text if len(text) <= 80 else f"{text[:79]}…"


def groups_of(rows: Sequence[Row]) -> list[Group]:
    """Return the groups of rows by benchmark, model, domain, tier and task, then all rows.

    Groups of one kind come in the order of their names.
    """
    tiers = _tiers(rows)
    keys: Mapping[str, Callable[[Row], str]] = {
        "benchmark": lambda row: printable_name(row.benchmark),
        "model": lambda row: printable_name(row.model),
        "domain": lambda row: printable_name(row.domain),
        "tier": lambda row: tiers[row.benchmark],
        "task": lambda row: "tool calls" if TOOLS_OFFERED in row.question else "text",
    }
    groups = [group for kind, key in keys.items() for group in _group_by(rows, kind, key)]
    return [*groups, Group(POOLED, POOLED, np.arange(len(rows)))]


def _group_by(rows: Sequence[Row], kind: str, key: Callable[[Row], str]) -> list[Group]:
    """Return a group for each value of `key`, in the order of the values."""
    members: dict[str, list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        members[key(row)].append(i)
    return [Group(kind, name, np.array(at)) for name, at in sorted(members.items())]


def _tiers(rows: Sequence[Row]) -> dict[str | None, str]:
    """Return each benchmark's tier, `easy`, `medium` or `hard`, by its share of right replies.

    The thresholds are the paper's (J13); a missing label counts as wrong.
    """
    labels = labels_of(rows)
    members: dict[str | None, list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        members[row.benchmark].append(i)
    accuracy = {name: labels[at].mean() for name, at in members.items()}
    return {
        name: "easy" if share >= EASY else "hard" if share < HARD else "medium"
        for name, share in accuracy.items()
    }
