"""The simulation of queues, compared with formulas, with itself, and with a proxy that runs."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from calibrator import Item, Score
from proxy.capacity.queues import Process, Request, arriving, mean, simulate, tail
from tests.running.live_proxy import ROOT, LiveProxy, WordScorer, question
from tests.servers.faulty_upstream import FaultyUpstream

BENCHES = ROOT / "scripts" / "benches"
AGREES = 0.15


def test_one_request_takes_what_its_parts_take() -> None:
    """Nothing waits where nobody else is there."""
    process = Process(0.01, 0.02, end_s=0.03, score_s=lambda replies: 0.1 * replies)
    run = simulate(process, [Request(1.0, 0.5)])
    assert run.times_s == pytest.approx([0.01 + 0.5 + 0.02 + 0.1 + 0.03])
    assert run.own_s == pytest.approx([0.16])
    assert (run.waits_s, run.batches) == (pytest.approx([0.1]), [1])
    assert run.took_s == pytest.approx(1.66)


def test_a_loop_is_a_queue_with_one_server() -> None:
    """Mean waits of random arrivals, by Pollaczek and Khinchine: each request comes there twice,
    once with work."""
    load, time_s = 0.7, 0.01
    run = simulate(Process(time_s, 0.0), arriving(load / time_s, 60_000, 5.0))
    waits_s = (mean(run.own_s) - time_s) / 2
    assert waits_s == pytest.approx(load * time_s / (2 * (1 - load)), rel=0.08)
    assert run.busy_s / run.took_s == pytest.approx(load, rel=0.03)


def test_those_under_way_are_arrivals_times_their_time() -> None:
    """Little's law, with upstream's times in it."""
    run = simulate(Process(0.0001, 0.0002), arriving(200, 20_000, 0.2))
    assert run.in_flight == pytest.approx(200 * 0.2003, rel=0.03)
    assert mean(run.times_s) == pytest.approx(0.2003, rel=0.03)
    assert tail(run.times_s) > 2 * mean(run.times_s)


def test_a_busy_scorer_takes_all_that_wait() -> None:
    """Batches grow with the load, and what has no place or no time goes on without a score."""
    at_once = [Request(0.0, 0.0) for _ in range(10)]
    run = simulate(Process(0.0, 0.0, score_s=lambda replies: 0.9, most_at_once=4), at_once)
    assert run.batches == [1, 4, 4]
    assert run.unscored == 5  # one has no place in them, and the last four are late
    full = simulate(Process(0.0, 0.0, score_s=lambda replies: 0.9, max_queue=3), at_once)
    assert (full.unscored, full.batches) == (6, [1, 3])
    streams = [Request(0.0, 0.0, is_stream=True) for _ in range(2)]
    late = simulate(Process(0.0, 0.0, score_s=lambda replies: 0.4), streams)
    assert (late.late, late.unscored, sum(late.batches)) == (2, 0, 2)


def test_a_scorer_on_the_loops_core_has_what_is_left() -> None:
    """It gives way, as its thread does."""
    process = Process(0.0, 0.005, score_s=lambda replies: 0.01 * replies)
    alone = simulate(process, arriving(40, 4_000, 0.1))
    shared = simulate(
        Process(0.0, 0.005, score_s=process.score_s, shares_core=True), arriving(40, 4_000, 0.1)
    )
    assert mean(shared.waits_s) > 1.1 * mean(alone.waits_s)


# --- beside a proxy ------------------------------------------------------------------------------


@dataclass
class SleepingScorer(WordScorer):
    """Takes a known time for each batch, without any CPU."""

    batch_s: float = 0.02
    reply_s: float = 0.03
    sizes: list[int] = field(default_factory=list)
    slept_s: float = 0.0  # on a busy machine longer than it should

    def score_batch(self, items: Sequence[Item]) -> list[Score]:
        if items[0].answer != "warm-up":
            began = time.monotonic()
            time.sleep(self.expected_s(len(items)))
            self.sizes.append(len(items))
            self.slept_s += time.monotonic() - began
        return super().score_batch(items)

    def expected_s(self, replies: int) -> float:
        return self.batch_s + self.reply_s * replies

    def measured_s(self, replies: int) -> float:
        """What a batch of so many took, by what all of them took."""
        return self.expected_s(replies) * self.slept_s / sum(map(self.expected_s, self.sizes))


@pytest.mark.slow
async def test_replies_wait_for_a_scorer_as_the_simulation_says(
    upstream: FaultyUpstream, tmp_path: Path
) -> None:
    """Mean waits, batches and requests under way, within 15 %, of the same arrivals."""
    scorer, chance = SleepingScorer(), random.Random(7)
    options = {"scorer": scorer, "calibrator": {"timeout_s": 30}}
    proxy = LiveProxy(upstream.base_url, tmp_path, **options)
    url = f"{proxy.base_url}/chat/completions"
    asked: list[Request] = []  # with upstream's time, and the network's
    waits_ms: list[float] = []
    times_s: list[float] = []

    async def ask(client: httpx.AsyncClient, began: float) -> None:
        asked_at = time.monotonic()
        got = await client.post(url, json=question("p=0.5"))
        times_s.append(time.monotonic() - asked_at)
        waits_ms.append(float(got.headers["x-pinocchio-score-ms"]))
        own_s = float(got.headers["x-pinocchio-overhead-ms"]) / 1_000
        asked.append(Request(asked_at - began, max(0.0, times_s[-1] - own_s)))

    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        await client.post(url, json=question("p=0.5"))
        scorer.sizes.clear()
        scorer.slept_s = 0.0
        began = time.monotonic()
        asking = []
        for _ in range(400):
            asking.append(asyncio.create_task(ask(client, began)))
            await asyncio.sleep(chance.expovariate(20))
        await asyncio.gather(*asking)
        took_s = time.monotonic() - began
    proxy.stop()
    process = Process(
        0.0005,
        0.0005,
        score_s=scorer.measured_s,
        score_timeout_s=30,
    )
    made = simulate(process, asked)
    pairs = {
        "wait for a score, ms": (mean(made.waits_s) * 1_000, mean(waits_ms)),
        "replies a batch": (
            mean([float(each) for each in made.batches]),
            mean([float(each) for each in scorer.sizes]),
        ),
        "requests under way": (made.in_flight, sum(times_s) / took_s),
    }
    print({name: [round(each, 2) for each in both] for name, both in pairs.items()})
    for name, (simulated, measured) in pairs.items():
        assert simulated == pytest.approx(measured, rel=AGREES), name


@pytest.mark.slow
def test_a_mixed_run_costs_what_the_measured_costs_say() -> None:
    """`scripts/bench capacity --check`: CPU of other requests than those that were measured."""
    command = [sys.executable, str(BENCHES / "bench_capacity.py"), "--check", "--json"]
    done = subprocess.run(
        [*command, "--seconds", "5", "--rounds", "3"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (BENCHES, ROOT)))},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    print(json.dumps(told["check"]))
    for name in ("CPU ms a request", "cores busy"):
        simulated, measured = told["check"][name]
        assert simulated == pytest.approx(measured, rel=AGREES), name
