"""The standards for the figures: ratios to the peers, and limits of our own.

A factor says how many times better ours is: 80 means an eightieth of the cost, or 80 times the
throughput. `goal` is the wanted factor, `floor` the least accepted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bench_board import Board
from bench_launches import EMBEDDED, ENFORCE, LITELLM, NGINX, OBSERVE
from bench_process import Cores
from bench_table import number_text, table


@dataclass(frozen=True, slots=True)
class Mark:
    """A ratio to a peer, with its goal and floor."""

    figure: str
    label: str
    peer: str
    goal: float | None
    floor: float | None = None
    is_cost: bool = True


@dataclass(frozen=True, slots=True)
class Limit:
    """A figure that may not be exceeded, whatever the peers' figures are."""

    figure: str
    target: str
    label: str
    limit: float
    needs_spare_core: bool = False
    is_least: bool = False  # whether the limit is a minimum


def _marks(
    figure: str, label: str, goals: dict[str, tuple[float, float | None]], *, is_cost: bool = True
) -> list[Mark]:
    """Return a mark for each peer in `goals`, which has (goal, floor) by the peer's name."""
    return [
        Mark(figure, label, peer, goal, floor, is_cost) for peer, (goal, floor) in goals.items()
    ]


PORTKEY, HTTPX, ROUTER = "portkey", "httpx", "sglang-router"
MARKS: Final[Sequence[Mark]] = (
    *_marks(
        "cpu_ms",
        "CPU per request, 64 at once",
        {LITELLM: (80, 40), PORTKEY: (15, 7.5), HTTPX: (20, 10), ROUTER: (1, None)},
    ),
    *_marks(
        "per_s",
        "requests per second",
        {LITELLM: (60, 30), PORTKEY: (12, 6), HTTPX: (15, 10), ROUTER: (1, None)},
        is_cost=False,
    ),
    *_marks(
        "added_ms",
        "added latency, 1 at once",
        {LITELLM: (60, 30), PORTKEY: (8, 4), HTTPX: (4, None), ROUTER: (1 / 1.1, None)},
    ),
    # These are streams in one write. 1 ms apart, the system calls alone would exceed the goals.
    *_marks(
        "burst_cpu_ms",
        "CPU per stream of 60 deltas",
        {LITELLM: (100, 50), PORTKEY: (10, 5), ROUTER: (1.4, None)},
    ),
    *_marks(
        "streams_per_s",
        "streams per second",
        {LITELLM: (70, 35), PORTKEY: (9, 4.5), ROUTER: (5, None)},
        is_cost=False,
    ),
    Mark("first_p99_ms", "added time to first delta, p99", ROUTER, 8),
    Mark("cpu_ms", "share of nginx: CPU", NGINX, 0.2),
    Mark("per_s", "share of nginx: throughput", NGINX, 0.2, is_cost=False),
)
LIMITS: Final[Sequence[Limit]] = (
    Limit("long_ratio", OBSERVE, "CPU of 200 messages / of 10", 2.5),
    Limit("big_cpu_ms", OBSERVE, "CPU of a 1 MB reply, ms", 1.5),
    Limit("start_s", OBSERVE, "start to first reply, no calibrator, s", 1.0),
    Limit("start_mb", OBSERVE, "memory then, MB", 75.0),
    Limit("lost_share", EMBEDDED, "throughput lost while scoring, share", 0.2, True),
    Limit("added_p99_ms", EMBEDDED, "p99 added while scoring, ms", 5.0, True),
    Limit("scored_p99_ms_8", EMBEDDED, "p99 added to scored replies, 8 at once, ms", 20.0),
    Limit("scored_per_s_64", EMBEDDED, "scored a second, 64 at once", 500.0, is_least=True),
    Limit("first_idle_ms", EMBEDDED, "first delta, scoring idle, ms", 2.0),
    Limit("first_scoring_ms", EMBEDDED, "first delta, scoring saturated, ms", 2.0),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A mark with its measured factors; `observe` decides, `enforce` is shown beside it."""

    mark: Mark
    observe: float
    enforce: float

    @property
    def outcome(self) -> str:
        """`goal met`, `floor met` or `not met`, by the factor of `ours`."""
        if self.mark.goal is not None and self.observe >= self.mark.goal:
            return "goal met"
        if self.mark.floor is not None and self.observe >= self.mark.floor:
            return "floor met"
        return "not met"


def verdicts(board: Board) -> list[Verdict]:
    """Return the verdicts on the marks that have figures, in the order of `MARKS`."""
    found = []
    for mark in MARKS:
        ours, enforcing = (
            board.factor(mark.figure, name, mark.peer, is_cost=mark.is_cost)
            for name in (OBSERVE, ENFORCE)
        )
        if not math.isnan(ours):
            found.append(Verdict(mark, ours, enforcing))
    return found


def marks_table(board: Board) -> str:
    """Return the verdicts on the marks as a table, "" where there are none."""
    header = ["times better than", "", "ours", "ours-enforce", "goal", "floor", ""]
    rows = [
        [
            v.mark.label,
            v.mark.peer,
            _factor(v.observe),
            _factor(v.enforce),
            _factor(v.mark.goal),
            _factor(v.mark.floor),
            v.outcome,
        ]
        for v in verdicts(board)
    ]
    return table([header, *rows]) if rows else ""


@dataclass(frozen=True, slots=True)
class LimitVerdict:
    limit: Limit
    measured: float
    outcome: str


def limit_verdicts(board: Board, cores: Cores) -> list[LimitVerdict]:
    """Return the verdicts on the limits that have figures, in the order of `LIMITS`.

    An outcome is `met`, `not met`, or `no core to spare` for a limit that needs one.
    """
    found = []
    for limit in LIMITS:
        value = board.median(limit.figure, limit.target)
        is_met = value >= limit.limit if limit.is_least else value <= limit.limit
        outcome = "met" if is_met else "not met"
        if limit.needs_spare_core and not cores.spare:
            outcome = "no core to spare"
        if not math.isnan(value):
            found.append(LimitVerdict(limit, value, outcome))
    return found


def limits_table(board: Board, cores: Cores) -> str:
    """Return the verdicts on the limits as a table, "" where there are none."""
    rows = [
        [v.limit.label, number_text(v.measured), _limit(v.limit), v.outcome]
        for v in limit_verdicts(board, cores)
    ]
    return table([["limits of ours", "measured", "at most", ""], *rows]) if rows else ""


def _limit(limit: Limit) -> str:
    """Return the limit as text, such as `75`, or `at least 500` for a minimum."""
    return f"at least {number_text(limit.limit)}" if limit.is_least else number_text(limit.limit)


def _factor(value: float | None) -> str:
    """Return a factor as text with three digits, or `-` for None and nan."""
    return "-" if value is None or math.isnan(value) else f"{value:.3g}"
