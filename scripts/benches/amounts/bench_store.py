"""The store under load: a long queue, many exchanges a second, and the latency it adds to replies.

queue     100,000 held replies: the first page, a verdict, and a writer during the sweep of
          100,000 replies that have expired; on SQLite and PostgreSQL
records   2,000 exchanges a second for a minute, written in batches: CPU, rows lost
latency   the proxy at 200 requests a second with a record and without, against no proxy
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import sqlalchemy as sa
from bench_http import CHAT, SHORT, request
from bench_load import Job, Paced, Sample, run
from bench_servers import SERVERS, Server, proxy_config, start
from bench_table import say, shown, table

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))  # for the tests' PostgreSQL, where no server is named

from proxy.exchange.exchange import new_request_id  # noqa: E402
from proxy.store.chain.chain import KEY_VARIABLE  # noqa: E402
from proxy.store.database import open_engine  # noqa: E402
from proxy.store.record.writer import COLUMNS, Records, exchanges  # noqa: E402
from proxy.store.retention import Retention  # noqa: E402
from proxy.store.reviews.held_replies import HELD, RELEASED, HeldReply, Store, held_replies, row_of  # noqa: E402
from proxy.store.reviews.queue import ReviewQueue  # noqa: E402
from proxy.store.verdicts.verdicts import Findings  # noqa: E402

QUEUE = 100_000
PAGE = 50
VERDICTS = 100
PER_S = 2_000
RATE = 200
WARM_UP_S = 2.0
BODY = json.dumps({"text": "It leaves ten minutes before midnight. " * 25}).encode()


def p(times_ms: list[float], percent: int) -> float:
    return statistics.quantiles(times_ms, n=100)[percent - 1]


# --- a long queue --------------------------------------------------------------------------------


def fill(url: str, expires_at: float) -> None:
    """Fill the queue with replies of 1 KB to requests of 1 KB, some without a score."""
    template = HeldReply(
        "", "k" * 64, "review", "gpt", "p/r@1", 0.0, "c@1", "why? " * 40, BODY, 0.0, expires_at
    )
    engine = open_engine(url, is_durable=False)
    with engine.begin() as connection:
        for first in range(0, QUEUE, 1_000):
            rows = [
                row_of(
                    replace(
                        template,
                        id=f"chatcmpl-held-{number:032x}",
                        confidence=None if number % 50 == 0 else number * 7_919 % 9_973 / 9_973,
                        created_at=1e9 + number,
                        request_id=f"req_{number:032x}",
                        request=BODY,
                    )
                )
                for number in range(first, first + 1_000)
            ]
            connection.execute(held_replies.insert(), rows)
    if engine.dialect.name == "postgresql":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(sa.text("VACUUM ANALYZE held_replies"))
            connection.execute(sa.text("CHECKPOINT"))  # so that the filling costs nothing later
    engine.dispose()


async def timed(work: Callable[[int], Awaitable[object]], times: int) -> list[float]:
    """Return the milliseconds of each call."""
    found = []
    for number in range(times):
        started = time.perf_counter()
        await work(number)
        found.append((time.perf_counter() - started) * 1_000)
    return found


async def queue(url: str) -> dict[str, float]:
    """Return the milliseconds of pages, verdicts and holds."""
    store = Store(url, max_held=2 * QUEUE)
    await store.open()

    desk = ReviewQueue(url)
    started = time.perf_counter()
    desk.rehearse()  # as a proxy's desk does for its first visitor
    rehearsal_ms = (time.perf_counter() - started) * 1_000

    def decided(number: int) -> bool:
        held = desk.get(f"chatcmpl-held-{number:032x}")
        return held is not None and desk.decide(held, RELEASED, "alice") is not None

    async def page(_: int) -> None:
        assert len(await asyncio.to_thread(desk.page, HELD, PAGE)) == PAGE

    async def decide(number: int) -> None:
        assert await asyncio.to_thread(decided, number)

    async def hold(number: int) -> None:
        held = await store.get(f"chatcmpl-held-{QUEUE - 1:032x}")
        assert held is not None
        await store.hold(replace(held, id=f"new-{number}"))

    holds = await timed(hold, 20)
    first = await timed(page, 1)
    pages, verdicts = await timed(page, 20), await timed(decide, VERDICTS)
    desk.close()
    await store.aclose()
    return {
        "the desk opens": rehearsal_ms,
        "first page, cold": first[0],
        "first page, median": statistics.median(pages),
        "first page, longest": max(pages),
        "verdict, median": statistics.median(verdicts),
        "verdict, longest": max(verdicts),
        "hold, median": statistics.median(holds),
    }


async def sweep(url: str) -> dict[str, float]:
    """Return the milliseconds that another writer waits while the whole queue expires."""
    retention, is_over = Retention(url, 0, 30), threading.Event()
    waits: list[float] = []

    def write() -> None:
        findings = Findings(url)
        while not is_over.wait(0.01):
            started = time.perf_counter()
            findings.give_verdict("req_1", is_correct=True)
            waits.append((time.perf_counter() - started) * 1_000)
        findings.close()

    writer = threading.Thread(target=write)
    writer.start()
    started = time.perf_counter()
    await asyncio.to_thread(retention.expire)
    took_s = time.perf_counter() - started
    is_over.set()
    writer.join()
    retention.close()
    return {
        "sweep of all, s": took_s,
        "writer beside it, median": statistics.median(waits),
        "writer beside it, longest": max(waits),
    }


# --- many exchanges ------------------------------------------------------------------------------


def records(url: str, for_s: float) -> dict[str, float]:
    """Add rows at a steady rate and return CPU and counts. Raises RuntimeError if a row is lost."""
    kept = Records(url)
    kept.open()
    values = {
        "key_hash": "k" * 64,
        "path": CHAT,
        "upstream": "bench",
        "model": "gpt",
        "is_stream": 0,
        "status": 200,
        "confidence": 0.7312,
        "confidence_status": "scored",
        "action": "deliver",
        "policy": "observe/default@1a2b3c4d",
        "calibrator": "embedded@3f2a",
        "total_ms": 812.4,
        "overhead_ms": 0.4,
        "score_ms": 2.6,
        "facts": '[{"finish_reason":"stop","length":412}]',
    }
    template = [values.get(name) for name in COLUMNS]
    sent, started, cpu = 0, time.perf_counter(), time.process_time()
    longest_queue = 0
    while (passed := time.perf_counter() - started) < for_s:
        while sent < passed * PER_S:
            kept.add((new_request_id(), time.time(), *template[2:]))
            sent += 1
        longest_queue = max(longest_queue, len(kept._rows))
        time.sleep(0.005)
    kept.close()
    cpu = time.process_time() - cpu
    engine = open_engine(url)
    with engine.connect() as connection:
        there = connection.execute(sa.select(sa.func.count()).select_from(exchanges)).scalar_one()
    engine.dispose()
    if kept.shed or there != sent:
        raise RuntimeError(f"{sent} rows were sent, {there} are there, {kept.shed} were shed")
    return {
        "rows": sent,
        "rows lost": sent - there,
        "longest queue, rows": longest_queue,
        "CPU us a row": cpu / sent * 1e6,
    }


# --- waiting time of a reply ---------------------------------------------------------------------


@contextmanager
def proxy(upstream: Server, folder: Path, keep_days: int) -> Iterator[Server]:
    path = folder / f"keep-{keep_days}.yaml"
    config = proxy_config(
        upstream.url, {"checkpoint": "fake:0.73"}, folder / f"keep-{keep_days}.db"
    )
    path.write_text(json.dumps({**config, "records": {"keep_days": keep_days}}))
    with start(["-m", "pinocchio", "serve", "--config", str(path), "--port", "0"]) as server:
        yield server


async def paced(server: Server, for_s: float) -> Sample:
    port = int(server.url.rsplit(":", 1)[1].partition("/")[0])
    job = Job(port, request(CHAT, SHORT), b"")
    loads = Paced(job, RATE)
    asyncio.get_running_loop().call_later(for_s, loads.stop)
    return await loads.run()


def latency(folder: Path, rounds: int, for_s: float) -> dict[str, float]:
    """Return the milliseconds added to the direct way, as medians over rounds.

    Each round visits the direct way, and the proxy with and without a record.
    """
    added: dict[str, dict[str, list[float]]] = {"with": {}, "without": {}}
    with ExitStack() as stack:
        direct = stack.enter_context(start([str(SERVERS), "upstream"]))
        ways = {
            "direct": direct,
            "without": stack.enter_context(proxy(direct, folder, 0)),
            "with": stack.enter_context(proxy(direct, folder, 30)),
        }
        for server in ways.values():
            run(paced(server, WARM_UP_S))
        for number in range(rounds):
            say(f"latency, round {number + 1} of {rounds} ...")
            found = {name: run(paced(server, for_s)).times_ms for name, server in ways.items()}
            for name, figures in added.items():
                for label, percent in (("median", 50), ("p99", 99)):
                    more = p(found[name], percent) - p(found["direct"], percent)
                    figures.setdefault(label, []).append(more)
    told = {
        f"added {label}, {name} a record": statistics.median(values)
        for name, figures in added.items()
        for label, values in figures.items()
    }
    told["p99, with over without"] = (
        told["added p99, with a record"] / told["added p99, without a record"]
    )
    return told


# --- output --------------------------------------------------------------------------------------


@contextmanager
def databases(folder: Path, postgres: str | None) -> Iterator[dict[str, list[str]]]:
    """Yield two empty databases of each kind, by its name."""
    with ExitStack() as stack:
        if postgres is None:
            from tests.running.postgres import PostgresServer

            server = stack.enter_context(PostgresServer(is_durable=True))
            urls = [server.new_database() for _ in range(2)]
        else:
            urls = postgres.split(",")
        lite = [f"sqlite:///{folder}/{number}.db" for number in range(2)]
        yield {"SQLite": lite, "PostgreSQL": urls}


def main() -> None:
    assert __doc__ is not None
    os.environ.setdefault(KEY_VARIABLE, "of a bench")  # so that PostgreSQL has a chain too
    parser = argparse.ArgumentParser(
        prog="scripts/bench store",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the time")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of tables")
    parser.add_argument(
        "--only", choices=("queue", "records", "latency"), help="one of the three parts"
    )
    parser.add_argument(
        "--postgres", metavar="URL,URL", help="two empty databases, in place of a server of its own"
    )
    options = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if options.only in (None, "queue"):
            with databases(folder, options.postgres) as each:
                for name, (full, late) in each.items():
                    say(f"queue of {QUEUE:,} on {name} ...")
                    fill(full, 4e9)
                    found[f"queue, {name}, ms"] = asyncio.run(queue(full))
                    fill(late, 1.0)
                    found[f"queue, {name}, ms"] |= asyncio.run(sweep(late))
        if options.only in (None, "records"):
            for_s = 6 if options.quick else 60
            say(f"{PER_S:,} exchanges a second for {for_s} s ...")
            found["records, SQLite"] = records(f"sqlite:///{folder}/records.db", for_s)
        if options.only in (None, "latency"):
            rounds, for_s = (3, 2) if options.quick else (5, 10)
            found[f"latency at {RATE}/s, ms"] = latency(folder, rounds, for_s)
    if options.json:
        print(json.dumps({"machine": platform.platform(), **found}, indent=1))
        return
    for title, figures in found.items():
        print(table([[title, ""], *([name, shown(value)] for name, value in figures.items())]))
        print()


if __name__ == "__main__":
    main()
