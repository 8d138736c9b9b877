"""The latency and throughput of scored replies, beside LiteLLM's proxy without scores.

Every conversation and every reply is in other words than the one before, so that nothing is cached;
every reply of ours must carry a score.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench_board import Board, quantile
from bench_launches import DIRECT, EMBEDDED, LITELLM
from bench_scenarios import Bench, in_turns
from bench_table import number_text, table
from bench_targets import Target

AT_ONCE = (1, 8, 64)
ROWS = {
    "scored_per_s": "replies a second",
    "scored_p50_ms": "added latency, median ms",
    "scored_p99_ms": "added latency, p99 ms",
    "scored_cpu_ms": "CPU ms a reply",
}


def scored_rounds(bench: Bench, targets: Sequence[Target], number: int) -> None:
    """Measure round `number` at each number of requests at once, for the board.

    Added latency is over the direct way's median.
    """
    plan = bench.plan
    jobs = {target.name: target.varied_job() for target in targets}
    for at_once in AT_ONCE:
        with bench.an_eye_on(f"round {number} all: scored, {at_once} at once", targets):
            found = in_turns(
                bench,
                targets,
                number,
                at_once,
                plan.load_s / plan.turns,
                plan.turns,
                lambda target: jobs[target.name],
            )
        direct = quantile(found[DIRECT].times_ms, 0.5)
        for name, turns in found.items():
            values = {
                "scored_per_s": turns.served / turns.took_s,
                "scored_p50_ms": quantile(turns.times_ms, 0.5) - direct,
                "scored_p99_ms": quantile(turns.times_ms, 0.99) - direct,
                "scored_cpu_ms": turns.cpu_s * 1_000 / turns.served,
            }
            keyed = {f"{figure}_{at_once}": value for figure, value in values.items()}
            bench.board.add(number, name, **keyed)


def scored_table(board: Board) -> str:
    """Return the medians over the rounds as a table, or "" where nothing was measured."""
    names = [DIRECT, EMBEDDED, LITELLM]
    rows = [
        [f"{label}, {at_once} at once", *(number_text(board.median(key, name)) for name in names)]
        for at_once in AT_ONCE
        for figure, label in ROWS.items()
        if board.values[key := f"{figure}_{at_once}"]
    ]
    return table([["scored", *names], *rows]) if rows else ""
