"""The cost of the proxy, as ratios to the same upstream without it and to a minimal pass-through.

There are four ways to the same canned completion, each server in its own process on loopback:
directly, through Starlette + httpx, through the proxy with scoring off, and with scoring on. Every
round visits all of them, so that other work on the machine affects all alike; the output has
medians over the rounds. The load comes from this process, which competes for the same CPUs, so only
the ratios are meaningful, not the absolute numbers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import aiohttp
from bench_calibrator import FOLDER, score_ms, score_table
from bench_http import QUESTION
from bench_servers import SERVERS, Server, start, start_proxy
from bench_table import number_text, say, table

DIRECT, HTTPX, OFF, ON = "direct", "httpx", "off", "on"  # names of the columns
CONCURRENCIES = (1, 8)
REQUEST = json.dumps({"model": "bench", "messages": [{"role": "user", "content": QUESTION}]})
HEADERS = {"content-type": "application/json", "authorization": "Bearer bench"}


@dataclass(frozen=True, slots=True)
class Plan:
    """The amount of measurements; a measurement ends at `requests` or `at_most_s`."""

    rounds: int
    requests: int
    at_most_s: float
    scores: int
    score_at_most_s: float  # for one length


FULL = Plan(rounds=3, requests=300, at_most_s=15, scores=40, score_at_most_s=8)
QUICK = Plan(rounds=3, requests=80, at_most_s=2, scores=10, score_at_most_s=1.5)
FEWEST_FOR_P95 = 20


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one way at one concurrency; `added` is against the direct way in the round."""

    requests: float
    latency_ms: float
    latency_p95_ms: float
    requests_per_s: float
    cpu_ms: float  # CPU of the server for each request; nan where it cannot be read
    added_ms: float = math.nan
    added_p95_ms: float = math.nan


LABELS = {
    "added_ms": "added latency, median ms",
    "added_p95_ms": "added latency, p95 ms",
    "latency_ms": "latency, median ms",
    "latency_p95_ms": "latency, p95 ms",
    "requests_per_s": "requests per second",
    "cpu_ms": "CPU ms per request",
    "requests": "requests measured",
}


@contextmanager
def running(checkpoint: str, folder: Path) -> Iterator[dict[str, Server]]:
    """Start the four servers, and yield them by name until the block ends.

    The names are `direct`, `httpx`, `off` and `on`.
    """
    with ExitStack() as stack:
        direct = stack.enter_context(start([str(SERVERS), "upstream"]))
        yield {
            DIRECT: direct,
            HTTPX: stack.enter_context(start([str(SERVERS), "pass-through", direct.url])),
            OFF: stack.enter_context(start_proxy(direct.url, "none", folder)),
            ON: stack.enter_context(start_proxy(direct.url, checkpoint, folder)),
        }


async def measure(server: Server, concurrency: int, plan: Plan, must_score: bool) -> Figures:
    """Ask a server with `concurrency` workers after a warm-up, and return the figures.

    Each worker sends one request at a time over an open connection. Raises RuntimeError for an
    unexpected answer.
    """
    url = server.url + "/chat/completions"
    connector = aiohttp.TCPConnector(limit=concurrency)
    async with aiohttp.ClientSession(connector=connector, headers=HEADERS) as session:
        await _load(session, url, concurrency, 2 * concurrency, plan.at_most_s, must_score)
        cpu, started = server.cpu_s(), time.perf_counter()
        times = await _load(session, url, concurrency, plan.requests, plan.at_most_s, must_score)
        took, cpu_after = time.perf_counter() - started, server.cpu_s()
    return Figures(
        requests=len(times),
        latency_ms=statistics.median(times),
        latency_p95_ms=p95(times),
        requests_per_s=len(times) / took,
        cpu_ms=(cpu_after - cpu) * 1_000 / len(times),
    )


def p95(times: list[float]) -> float:
    """Return the 95th percentile, or nan for fewer than 20 times."""
    return statistics.quantiles(times, n=20)[-1] if len(times) >= FEWEST_FOR_P95 else math.nan


async def _load(
    session: aiohttp.ClientSession,
    url: str,
    concurrency: int,
    count: int,
    at_most_s: float,
    must_score: bool,
) -> list[float]:
    """Send up to `count` requests for at most `at_most_s` seconds; return their milliseconds.

    Raises RuntimeError for another status than 200, or whose score is there or missing against
    `must_score`.
    """
    times: list[float] = []
    numbers = iter(range(count))
    deadline = time.perf_counter() + at_most_s

    async def work() -> None:
        """Send one request after another until the count or the time is used up."""
        for _ in numbers:
            started = time.perf_counter()
            async with session.post(url, data=REQUEST) as reply:
                await reply.read()
            ended = time.perf_counter()
            times.append((ended - started) * 1_000)
            is_scored = "x-pinocchio-confidence" in reply.headers
            if reply.status != 200 or is_scored != must_score:
                raise RuntimeError(f"{url}: {reply.status} {dict(reply.headers)}")
            if ended > deadline:
                return

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(work())
    return times


def run_round(servers: dict[str, Server], concurrency: int, plan: Plan) -> dict[str, Figures]:
    """Measure all servers once, and return figures by name.

    All but the direct way have the latency added to it.
    """
    found = {
        name: asyncio.run(measure(server, concurrency, plan, must_score=name == ON))
        for name, server in servers.items()
    }
    base = found[DIRECT]
    return {
        name: figures
        if name == DIRECT
        else replace(
            figures,
            added_ms=figures.latency_ms - base.latency_ms,
            added_p95_ms=figures.latency_p95_ms - base.latency_p95_ms,
        )
        for name, figures in found.items()
    }


def run_rounds(servers: dict[str, Server], plan: Plan) -> dict[int, dict[str, Figures]]:
    """Measure all rounds; return medians over them as `{concurrency: {name: figures}}`."""
    rounds = []
    for number in range(1, plan.rounds + 1):
        say(f"round {number} of {plan.rounds} ...")
        rounds.append({c: run_round(servers, c, plan) for c in CONCURRENCIES})
    return {
        c: {name: _median([found[c][name] for found in rounds]) for name in servers}
        for c in CONCURRENCIES
    }


def _median(figures: list[Figures]) -> Figures:
    """Return figures with the median of each value."""
    return Figures(
        *(statistics.median(values) for values in zip(*map(_values, figures), strict=True))
    )


def _values(figures: Figures) -> tuple[float, ...]:
    return tuple(asdict(figures).values())


# --- output --------------------------------------------------------------------------------------


NOTES = """\
Medians over {rounds} rounds of at most {requests} requests and {at_most_s:g} s.
direct: upstream alone; httpx: a minimal pass-through; off, on: the proxy by its scoring.
CPU is that of the server asked; for direct it is upstream's own.
"""


def ratio(value: float, base: float) -> float:
    """Return `value / base`, nan unless the base is positive."""
    return value / base if base > 0 else math.nan


def without_nan(figures: Figures) -> dict[str, float | None]:
    """Return the figures by name, with None for nan, which JSON does not have."""
    return {name: None if math.isnan(v) else v for name, v in asdict(figures).items()}


def http_table(concurrency: int, found: dict[str, Figures]) -> str:
    """Return the figures at one concurrency as a table, with ratios such as `on/direct`."""
    ways = (DIRECT, HTTPX, OFF, ON)
    pairs = [(way, base) for way in (OFF, ON) for base in (DIRECT, HTTPX)]
    rows = [[f"concurrency {concurrency}", *ways, *(f"{way}/{base}" for way, base in pairs)]]
    for name, label in LABELS.items():
        values = {way: getattr(figures, name) for way, figures in found.items()}
        ratios = [number_text(ratio(values[way], values[base])) for way, base in pairs]
        if name == "requests":
            ratios = [""] * len(pairs)
        rows.append([label, *(number_text(values[way]) for way in ways), *ratios])
    return table(rows)


def main() -> None:
    """Measure the four ways and one score; print tables or JSON."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer requests, under a minute")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of tables")
    options = parser.parse_args()
    plan = QUICK if options.quick else FULL
    busy = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as scratch:
        say("milliseconds of one score ...")
        scores = score_ms(plan.scores, plan.score_at_most_s)
        with running(str(FOLDER), Path(scratch)) as servers:
            http = run_rounds(servers, plan)
    machine = (
        f"{os.cpu_count()} CPUs, load before {busy:.1f}, Python {platform.python_version()}, "
        f"OMP_NUM_THREADS {os.environ.get('OMP_NUM_THREADS', 'unset')}"
    )
    if options.json:
        by_way = {c: {w: without_nan(f) for w, f in found.items()} for c, found in http.items()}
        facts = {"machine": machine, "checkpoint": FOLDER.name, "plan": asdict(plan)}
        print(json.dumps({**facts, "http": by_way, "score_ms": scores}, indent=1))
        return
    print(f"{machine}, calibrator: {FOLDER.name}")
    print(NOTES.format(**asdict(plan)))
    for concurrency, found in http.items():
        print(http_table(concurrency, found), end="\n\n")
    print(score_table(scores))


if __name__ == "__main__":
    main()
