"""What a request, a score and a row cost: the figures behind `pinocchio capacity`.

    scripts/bench capacity [--rounds 5] [--json] [-o proxy/capacity/costs.json]
    scripts/bench capacity --check      and a mixed run beside what the simulation says of it

CPU time of the proxy's process and of the database's, at a fixed rate of requests that nobody
waits for, less what both take without any. Each figure is a difference of two kinds of run: of
short and long replies, whole and as streams, with and without a score, with and without a record.
All kinds take turns, so that other work on the machine falls on all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench_http import CHAT, chunk, completion, event, json_reply
from bench_load import Job, Paced, Sample, run
from bench_process import cpu_s, memory_mb
from bench_servers import Server, proxy_config, start
from bench_table import say, table

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

COMMAND = "scripts/bench capacity"
PER_S = 20.0
DELAY_S = 0.2
TOKENS_PER_S = 80.0  # of a stream: each token is an event that comes alone
WORD = "minutes "  # about a token
QUIET_S = 4.0
WAITING = 200  # streams whose memory is looked at


# --- upstream ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kind:
    """A request by what upstream does with it; its model's name says so."""

    tokens: int
    is_stream: bool = False

    @property
    def delay_s(self) -> float:
        """Until the reply, or all of a stream."""
        return self.tokens / TOKENS_PER_S if self.is_stream else DELAY_S

    @property
    def model(self) -> str:
        return f"t{self.tokens}-d{self.delay_s:g}"

    def request(self) -> bytes:
        question = "When does the train arrive, and on what day? " * 4
        asked = {"model": self.model, "messages": [{"role": "user", "content": question}]}
        body = json.dumps(asked | {"stream": True} if self.is_stream else asked).encode()
        head = (
            f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer bench\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)


class Upstream(asyncio.Protocol):
    """Answers after a time, or writes a stream evenly over it; one request at a time."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.loop = asyncio.get_running_loop()
        self.read = b""

    def data_received(self, data: bytes) -> None:
        self.read += data
        head, found, body = self.read.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
        if not found or len(body) < length:
            return
        self.read = b""
        asked = json.loads(body)
        tokens, delay = asked["model"].removeprefix("t").split("-d")
        if asked.get("stream"):
            self._stream(int(tokens), float(delay))
        else:
            reply = json_reply(completion(WORD * int(tokens)))
            self.loop.call_later(float(delay), self.transport.write, reply)

    def _stream(self, tokens: int, over_s: float) -> None:
        begins = self.loop.time()
        self.transport.write(STREAM_HEAD + chunk(event({"role": "assistant", "content": ""})))
        word, each_s = chunk(event({"content": WORD})), over_s / tokens

        def write(done: int) -> None:
            if done < tokens:
                self.transport.write(word)
                self.loop.call_at(begins + (done + 1) * each_s, write, done + 1)
            else:
                end = chunk(event({}, "stop")) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
                self.transport.write(end)

        self.loop.call_at(begins + each_s, write, 0)


async def serve_upstream() -> None:
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await server.serve_forever()


@contextmanager
def started_upstream() -> Iterator[str]:
    """Its URL; it has no `/readyz`, so that the greeting is all there is to wait for."""
    import subprocess

    from bench_process import launched

    command = [sys.executable, str(Path(__file__)), "--upstream"]
    with launched(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        yield process.stdout.readline().decode().strip()


# --- the load ------------------------------------------------------------------------------------


class Irregular(Paced):
    """Requests that know nothing of each other: times between them are exponential.

    `kinds` are drawn from; each request's number of tokens and way is its kind's.
    """

    def __init__(self, port: int, per_s: float, kinds: Mapping[Kind, float], seed: int) -> None:
        super().__init__(Job(port, b"", b""), per_s, most=2_000)
        self.requests = [each.request() for each in kinds]
        self.weights = [*kinds.values()]
        self.chance = random.Random(seed)

    def ready(self, connection: Any) -> None:
        [request] = self.chance.choices(self.requests, self.weights)
        self.job = Job(self.job.port, request, b"")
        super().ready(connection)

    def _ask(self) -> None:
        if self.idle:
            [request] = self.chance.choices(self.requests, self.weights)
            self.job = Job(self.job.port, request, b"")
        super()._ask()

    def _tick(self, due_s: float) -> None:
        if self.is_stopped or self.ended.done():
            return
        self._ask()
        next_s = max(due_s + self.chance.expovariate(self.per_s), time.monotonic())
        self.loop.call_at(next_s, self._tick, next_s)


@dataclass(slots=True)
class Measured:
    """Runs of one kind together: CPU without what the process takes when nobody asks."""

    served: int = 0
    took_s: float = 0.0
    cpu_s: float = 0.0
    database_s: float = 0.0
    times_ms: list[float] = field(default_factory=list)

    @property
    def ms(self) -> float:
        """CPU of a request."""
        return self.cpu_s / self.served * 1_000


@dataclass(slots=True)
class Target:
    """A proxy and what it takes of a core without requests; its database's likewise."""

    server: Server
    database: Callable[[], float] = lambda: 0.0
    idle: float = 0.0
    database_idle: float = 0.0

    def look(self) -> None:
        before, began = (self.server.cpu_s(), self.database()), time.monotonic()
        time.sleep(QUIET_S)
        took_s = time.monotonic() - began
        self.idle = (self.server.cpu_s() - before[0]) / took_s
        self.database_idle = (self.database() - before[1]) / took_s

    @property
    def port(self) -> int:
        return int(self.server.url.rsplit(":", 1)[1].partition("/")[0])

    def ask(self, kinds: Mapping[Kind, float], for_s: float, into: Measured, seed: int) -> None:
        """Adds a run."""

        async def load() -> Sample:
            paced = Irregular(self.port, PER_S, kinds, seed)
            asyncio.get_running_loop().call_later(for_s, paced.stop)
            return await paced.run()

        before = self.server.cpu_s(), self.database()
        sample = run(load())
        into.served += sample.served
        into.took_s += sample.took_s
        into.cpu_s += self.server.cpu_s() - before[0] - self.idle * sample.took_s
        into.database_s += self.database() - before[1] - self.database_idle * sample.took_s
        into.times_ms += sample.times_ms


# --- what each costs -----------------------------------------------------------------------------


@contextmanager
def proxy(
    upstream_url: str, folder: Path, checkpoint: str, store: str = "", keep_days: int = 30
) -> Iterator[Server]:
    """`pinocchio serve` with one thread of the calibrator, which has all the time that it wants."""
    name = f"{checkpoint.partition(':')[0]}-{keep_days}-{'pg' if store else 'lite'}"
    calibrator = {"checkpoint": checkpoint, "threads": 1, "timeout_s": 20.0}
    config = proxy_config(upstream_url, calibrator, folder / f"{name}.db")
    config |= {"records": {"keep_days": keep_days}, "limits": {"stream_wait_ms": 20_000}}
    if store:
        config["store"] = store
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(config))
    with start(["-m", "pinocchio", "serve", "--config", str(path), "--port", "0"]) as server:
        yield server


PLAIN, LONG = Kind(100), Kind(8_100)
FEW, MANY = Kind(20, True), Kind(220, True)
ANSWER, LONGER = Kind(100), Kind(600)
MIX = {Kind(200): 2.0, Kind(1_000): 1.0, Kind(40, True): 1.0, Kind(120, True): 2.0}
"""Requests of the mixed run, each by its weight."""


def waiting_kb(target: Target) -> float:
    """Memory of a request that waits for upstream, in a process that has just begun."""

    async def load() -> float:
        job = Job(target.port, Kind(400, True).request(), b"")
        paced = Paced(job, 0.01, at_first=20, most=20 + WAITING)
        running = asyncio.create_task(paced.run())
        await asyncio.sleep(1.0)
        before = memory_mb(target.server.pid)
        for _ in range(WAITING):
            paced._ask()
        await asyncio.sleep(2.0)
        after = memory_mb(target.server.pid)
        paced.stop()
        await running
        return (after - before) / WAITING * 1_000

    return run(load())


def on_disk(url: str) -> tuple[float, int]:
    """Kilobytes of all that PostgreSQL keeps for a store, and the rows of its record."""
    import psycopg

    query = (
        "select sum(pg_total_relation_size(c.oid)), (select count(*) from exchanges) "
        "from pg_class c join pg_namespace n on n.oid = relnamespace "
        "where relkind = 'r' and nspname = 'public'"
    )
    time.sleep(1)
    with psycopg.connect(url) as connection:
        [total, rows] = connection.execute(query).fetchone() or [0, 0]
    return float(total) / 1_000, int(rows)


class Bench:
    """All kinds of run in turn, round after round; then the costs, and a mixed run to compare."""

    def __init__(self, for_s: float, rounds: int, checks: bool) -> None:
        self._for_s, self._rounds, self._checks = for_s, rounds, checks
        self.runs: dict[str, Measured] = {}
        self._memory: dict[str, float] = {}

    def run(self) -> dict[str, float]:
        with ExitStack() as stack:
            from tests.running.postgres import PostgresServer

            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            up = stack.enter_context(started_upstream())
            postgres = stack.enter_context(PostgresServer(is_durable=True))
            urls = [postgres.new_database() for _ in range(3)]

            def database() -> float:
                return cpu_s(postgres.pid)

            bare = Target(stack.enter_context(proxy(up, folder, "none", keep_days=0)))
            process_kb = memory_mb(bare.server.pid) * 1_000
            stream_kb = waiting_kb(bare)
            scoring = Target(stack.enter_context(proxy(up, folder, "embedded", keep_days=0)))
            calibrator_kb = memory_mb(scoring.server.pid) * 1_000 - process_kb
            without = Target(stack.enter_context(proxy(up, folder, "fake:0.7", urls[0], 0)))
            kept = Target(stack.enter_context(proxy(up, folder, "fake:0.7", urls[1])), database)
            works: dict[str, tuple[Target, Mapping[Kind, float]]] = {
                "plain": (bare, {PLAIN: 1}),
                "long": (bare, {LONG: 1}),
                "few": (bare, {FEW: 1}),
                "many": (bare, {MANY: 1}),
                "scored": (scoring, {ANSWER: 1}),
                "scored long": (scoring, {LONGER: 1}),
                "without a row": (without, {PLAIN: 1}),
                "with a row": (kept, {PLAIN: 1}),
            }
            if self._checks:
                # rows go where the costs of a row are from: SQLite writes in the proxy's process
                whole = Target(stack.enter_context(proxy(up, folder, "embedded", urls[2])))
                works["mixed"] = whole, MIX
            empty_kb, _ = on_disk(urls[1])
            self._take_turns(works)
            full_kb, rows = on_disk(urls[1])
            row_kb = (full_kb - empty_kb) / rows
        return self._costs() | {
            "row_kb": row_kb,
            "held_kb": row_kb + 2 * len(WORD) * ANSWER.tokens / 1_000,
            "process_kb": process_kb,
            "calibrator_kb": calibrator_kb,
            "stream_kb": stream_kb,
        }

    def _take_turns(self, works: Mapping[str, tuple[Target, Mapping[Kind, float]]]) -> None:
        for target, kinds in works.values():
            target.ask(kinds, 1.0, Measured(), 0)
        for target in {id(target): target for target, _ in works.values()}.values():
            target.look()
        for number in range(self._rounds):
            say(f"round {number + 1} of {self._rounds} ...")
            for name, (target, kinds) in works.items():
                into = self.runs.setdefault(name, Measured())
                target.ask(kinds, self._for_s, into, number)

    def _costs(self) -> dict[str, float]:
        ms = {name: each.ms for name, each in self.runs.items()}

        def split(few: Kind, many: Kind, few_ms: float, many_ms: float) -> tuple[float, float]:
            """What a request costs without its tokens, and each of them."""
            each = max(0.0, (many_ms - few_ms) / (many.tokens - few.tokens))
            return max(0.0, few_ms - few.tokens * each), each

        plain, token = split(PLAIN, LONG, ms["plain"], ms["long"])
        stream, stream_token = split(FEW, MANY, ms["few"], ms["many"])
        score, score_token = split(ANSWER, LONGER, ms["scored"], ms["scored long"])
        kept = self.runs["with a row"]
        return {
            "plain_ms": plain,
            "plain_token_ms": token,
            "stream_ms": stream,
            "stream_token_ms": stream_token,
            "score_ms": max(0.0, score - plain),
            "score_token_ms": max(0.0, score_token - token),
            "row_ms": max(0.0, ms["with a row"] - ms["without a row"]),
            "row_database_ms": kept.database_s / kept.served * 1_000,
        }


# --- beside the simulation -----------------------------------------------------------------------


def simulated(found: Mapping[str, float], mixed: Measured) -> dict[str, tuple[float, float]]:
    """Of the mixed run: what the simulation says, and what was measured."""
    from proxy.capacity.costs import Costs
    from proxy.capacity.queues import Process, Request, mean, simulate

    costs, chance = Costs(**found), random.Random(2)
    kinds = chance.choices([*MIX], [*MIX.values()], k=mixed.served)
    tokens = sum(each.tokens for each in kinds) / len(kinds)
    whole = [each.tokens for each in kinds if not each.is_stream]
    streamed = [each.tokens for each in kinds if each.is_stream]
    plain_s = (costs.plain_ms + costs.row_ms + costs.plain_token_ms * mean(whole)) / 1e3
    stream_s = (costs.stream_ms + costs.row_ms + costs.stream_token_ms * mean(streamed)) / 1e3
    score_s = (costs.score_ms + costs.score_token_ms * tokens) / 1_000
    process = Process(
        loop_in_s=plain_s / 2,
        loop_out_s=plain_s / 2,
        stream_out_s=stream_s - plain_s / 2,
        score_s=lambda replies: replies * score_s,
        score_timeout_s=20.0,
        stream_wait_s=20.0,
    )
    asked, at_s = [], 0.0
    for each in kinds:
        at_s += chance.expovariate(mixed.served / mixed.took_s)
        asked.append(Request(at_s, each.delay_s, each.is_stream))
    made = simulate(process, asked)
    seconds = sum(mixed.times_ms) / 1_000
    return {
        "CPU ms a request": (
            (made.busy_s + made.scoring_s) / len(asked) * 1_000,
            mixed.ms,
        ),
        "cores busy": (
            (made.busy_s + made.scoring_s) / mixed.took_s,
            mixed.cpu_s / mixed.took_s,
        ),
        "mean time of a request, ms": (mean(made.times_s) * 1_000, seconds / mixed.served * 1_000),
        "requests in flight": (made.in_flight, seconds / mixed.took_s),
    }


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        prog=COMMAND, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=8.0, help="of each run")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--check", action="store_true", help="and a mixed run")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("-o", "--output", type=Path, help="a file for the costs, as JSON")
    parser.add_argument("--upstream", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.upstream:
        asyncio.run(serve_upstream())
        return
    bench = Bench(options.seconds, options.rounds, options.check)
    found = {name: float(f"{value:.3g}") for name, value in bench.run().items()}
    cores = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    told: dict[str, Any] = {
        "command": f"{COMMAND} --seconds {options.seconds:g} --rounds {options.rounds}",
        "machine": f"{platform.machine()}, {platform.system()}, {cores}",
        "python": platform.python_version(),
        "costs": found,
    }
    if options.output:
        options.output.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    rows = [[name, f"{value:g}", ""] for name, value in found.items()]
    if options.check:
        told["check"] = beside = simulated(found, bench.runs["mixed"])
        rows += [["", "simulated", "measured"]]
        rows += [[name, *(f"{each:.3g}" for each in both)] for name, both in beside.items()]
    print(json.dumps(told, indent=1) if options.json else table(rows))


if __name__ == "__main__":
    main()
