"""The effect of a saturated calibrator on requests that wait for no score.

The embedded calibrator gets twice as many chat completions as it can score. Beside them run
embeddings, which are relayed unscored, and streams, whose first delta must not wait for anything.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from bench_board import quantile
from bench_http import EMBED, EMBEDDING, SPACED
from bench_launches import EMBEDDED
from bench_load import Job, Paced, Sample, beside, closed_loop, run
from bench_scenarios import Bench
from bench_targets import Target

AT_ONCE = 8
OVERLOAD = 2
SATURATED_AFTER_S = 1.0  # seconds until scores are waiting
SCORED = ("scored", "truncated")


def scoring_rounds(bench: Bench, target: Target, rounds: int) -> None:
    """Measure embeddings' throughput and p99 and streams' first deltas, idle and saturated.

    First it measures how many completions are scored a second. All goes to the board.
    """
    plan, job = bench.plan, target.job()
    bench.recorded(target)
    alone = run(closed_loop(job, AT_ONCE, plan.load_s))
    bench.check_records(target, f"{EMBEDDED}: capacity", alone.served)
    bench.board.add(1, EMBEDDED, capacity_per_s=alone.per_s)
    embed = target.job(EMBEDDING, path=EMBED, must_hold=b'"usage"')
    stream = target.job(SPACED, is_stream=True, is_stamped=True)
    for number in range(1, rounds + 1):
        what = f"round {number} {EMBEDDED}:"
        idle = bench.measure(target, f"{what} embeddings", embed, AT_ONCE, plan.load_s).sample
        busy = _saturated(bench, target, f"{what} embeddings, scoring", alone.per_s, embed, AT_ONCE)
        quiet = bench.measure(target, f"{what} streams", stream, 1, plan.load_s).sample
        loud = _saturated(bench, target, f"{what} streams, scoring", alone.per_s, stream, 1)
        bench.board.add(
            number,
            EMBEDDED,
            idle_per_s=idle.per_s,
            scoring_per_s=busy.per_s,
            lost_share=1 - busy.per_s / idle.per_s,
            idle_p99_ms=quantile(idle.times_ms, 0.99),
            scoring_p99_ms=quantile(busy.times_ms, 0.99),
            added_p99_ms=quantile(busy.times_ms, 0.99) - quantile(idle.times_ms, 0.99),
            first_idle_ms=quantile(quiet.transit_ms, 0.5),
            first_scoring_ms=quantile(loud.transit_ms, 0.5),
        )


def _saturated(
    bench: Bench, target: Target, what: str, capacity: float, job: Job, at_once: int
) -> Sample:
    """Return the job's sample while more scores are asked for than are possible.

    `capacity` is the number of scores possible a second. Scores and replies without one go to the
    board.
    """
    paces: list[Sample] = []
    work = _overloading(target, capacity, job, at_once, bench.plan.load_s, paces)
    sample = bench.watched(target, what, work).sample
    (pace,) = paces
    bench.check_records(target, what, sample.served + pace.served)
    scored = sum(pace.statuses[status] for status in pace.statuses if _is_scored(status))
    shed = {status: n for status, n in sorted(pace.statuses.items()) if not _is_scored(status)}
    bench.board.add(
        len(bench.board.values["scores_per_s"][EMBEDDED]) + 1,  # two a round
        EMBEDDED,
        scores_per_s=scored / pace.took_s,
        shed_share=sum(shed.values()) / pace.served,
    )
    for status, count in shed.items():
        bench.board.shed[status] += count
    return sample


def _overloading(
    target: Target, capacity: float, job: Job, at_once: int, for_s: float, paces: list[Sample]
) -> Callable[[], Coroutine[Any, Any, Sample]]:
    """Return a function that runs the job beside too many completions, and returns its sample.

    It appends the sample of the completions to `paces`.
    """

    async def work() -> Sample:
        """Run the job beside the paced completions."""
        paced = Paced(target.job(), OVERLOAD * capacity, at_first=2 * AT_ONCE)
        sample, pace = await beside(
            lambda: closed_loop(job, at_once, for_s), paced, SATURATED_AFTER_S
        )
        paces.append(pace)
        return sample

    return work


def _is_scored(status: str) -> bool:
    """Return whether a status means that there is a score.

    It does for `scored` and `truncated/..`, but not for `skipped/queue_full`.
    """
    return status.partition("/")[0] in SCORED
