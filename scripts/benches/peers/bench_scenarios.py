"""The scenarios of the peer benchmark that all targets go through, and those of ours alone.

Every function measures one round of one scenario and puts its figures on the board, for one target
or for all in short turns. CPU is that of the target's processes, read once the record of exchanges
has settled, so that writing it counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from bench_board import LOADED, Board, quantile
from bench_http import BIG, SPACED
from bench_launches import BARE, DIRECT, ENFORCE, INFO, OBSERVE
from bench_load import Job, LoadError, Sample, ask, closed_loop, run
from bench_process import Others, cpu_s, kept_awake, launched, memory_mb
from bench_records import Records
from bench_targets import Launch, Place, Target, wait_until_it_answers

AT_ONCE, STREAMS_AT_ONCE, BIG_AT_ONCE = 64, 16, 8
LONG_MESSAGES = 200
IS_STREAMING_MS = 20  # least time from the first to the last of 60 deltas, about 1 ms apart
SETTLE_S = 0.25  # seconds for the peers' work after a reply
TURNS = 5  # turns of each target in a round of latencies


@dataclass(frozen=True, slots=True)
class Plan:
    """The lengths and numbers of measurements."""

    rounds: int
    turns: int  # turns of each target in a round of JSON
    warm_up_s: float
    latency_s: float
    load_s: float
    streams_s: float
    starts: int


FULL = Plan(rounds=5, turns=5, warm_up_s=0.7, latency_s=3, load_s=5, streams_s=6, starts=3)
QUICK = Plan(rounds=4, turns=1, warm_up_s=0.2, latency_s=0.6, load_s=0.6, streams_s=0.6, starts=1)


@dataclass(frozen=True, slots=True)
class Measured:
    sample: Sample
    cpu_ms: float  # CPU of the target for each request
    load_share: float  # use of load's and upstream's cores, 0 to 1


@dataclass(slots=True)
class Bench:
    """One run of the benchmark: its places, its plan and its results."""

    place: Place
    plan: Plan
    upstream_pid: int
    board: Board = field(default_factory=Board)
    records: dict[int, Records] = field(default_factory=dict)  # by the target's process

    def measure(self, target: Target, what: str, job: Job, at_once: int, for_s: float) -> Measured:
        """Measure a closed loop after a warm-up of the same kind, and check its records.

        `what` names the measurement, such as `round 1 ours: streams`; `at_once` is the number of
        clients. It is noted on the board if the load limited it.
        """
        self.recorded(target)
        warm = run(closed_loop(job, at_once, self.plan.warm_up_s))
        measured = self.watched(target, what, lambda: closed_loop(job, at_once, for_s))
        if at_once > 1 and target.name != DIRECT and measured.load_share > LOADED:
            self.board.limited.add(what)
        self.check_records(target, what, warm.served + measured.sample.served)
        return measured

    def watched(
        self, target: Target, what: str, work: Callable[[], Coroutine[Any, Any, Sample]]
    ) -> Measured:
        """Run the work; return its sample with the target's CPU and the load's use of its cores.

        Others' use of the machine is noted on the board under `what`.
        """
        before, load_before = target.cpu_s(), self.load_cpu_s()
        with self.an_eye_on(what, [target]):
            sample = run(work())
        load = (self.load_cpu_s() - load_before) / sample.took_s
        self.settle(target)
        cpu_ms = (target.cpu_s() - before) * 1_000 / sample.served
        return Measured(
            sample, cpu_ms, load / len(self.place.cores.load | self.place.cores.upstream)
        )

    @contextmanager
    def an_eye_on(
        self, what: str, targets: Sequence[Target], awake: Sequence[int] = ()
    ) -> Iterator[None]:
        """Note on the board how busy others kept the cores during the block.

        The processes that keep the cores `awake` belong to the bench.
        """
        cores, pids = self.place.cores, {self.upstream_pid, *awake, *(t.pid for t in targets)}
        others = Others.watch(cores.target | cores.load | cores.upstream, pids)
        yield
        self.board.busy[what] = others.share()

    def load_cpu_s(self) -> float:
        """Return the CPU seconds of the load and of upstream so far."""
        return time.process_time() + cpu_s(self.upstream_pid)

    def settle(self, target: Target) -> None:
        """Wait until the served requests are recorded, or for a moment where nothing is."""
        records = self.records.get(target.pid)
        if records is None or not records.is_kept:
            time.sleep(SETTLE_S)
        else:
            records.settle()

    def recorded(self, target: Target) -> None:
        """Begin to count the rows of a target of ours; do nothing for a peer or the second time."""
        if target.launch.records is not None and target.pid not in self.records:
            self.records[target.pid] = records = Records(target.launch.records)
            if not records.is_kept:
                self.board.note("no records yet: this version of the proxy has no exchanges table")

    def check_records(self, target: Target, what: str, served: int) -> None:
        """Note on the board if `served` requests have not given as many rows."""
        records = self.records.get(target.pid)
        if records is not None and (missing := records.missing(served)):
            self.board.unrecorded.append(
                f"{what}: {served} requests served, {served - missing} rows written"
            )

    def failed(self, target: Target, number: int, error: Exception) -> None:
        """Note a peer that failed under load, without figures in this round.

        Raises the error if the target is ours.
        """
        if target.is_ours:
            raise error
        self.board.note(f"round {number}: {target.name} failed under load: {error}")

    def connections(self) -> int:
        """Return how many connections upstream has accepted so far."""
        _, body = ask(self.place.upstream, b"GET /stats HTTP/1.1\r\n\r\n")
        return int(body.split(b'"connections": ')[1].split(b",")[0])


@dataclass(slots=True)
class Turns:
    """The results of one target's turns, without the first, which warms up."""

    times_ms: list[float] = field(default_factory=list)
    served: int = 0
    cpu_s: float = 0.0
    load_s: float = 0.0  # CPU of load and upstream
    took_s: float = 0.0
    reconnects: int = 0
    upstream_connections: int = 0
    rows: int = 0  # rows that the record has to hold, those of the first turn included


def in_turns(
    bench: Bench,
    targets: Sequence[Target],
    number: int,
    at_once: int,
    for_s: float,
    turns: int,
    job_of: Callable[[Target], Job] = Target.job,
) -> dict[str, Turns]:
    """Measure all targets in short turns; return their results by name.

    Each turn has `at_once` requests at a time for `for_s` seconds; a disturbance that lasts for a
    while then affects all alike. A first turn warms up. A peer that fails is left out.
    """
    found = {target.name: Turns() for target in targets}
    jobs = {target.name: job_of(target) for target in targets}
    running = {target.name: target for target in targets}
    for target in targets:
        bench.recorded(target)
    for turn in range(turns + 1):
        for name, target in [*running.items()]:
            so_far, connections = found[name], bench.connections()
            before, load_before = target.cpu_s(), bench.load_cpu_s()
            try:
                sample = run(closed_loop(jobs[name], at_once, for_s))
            except (LoadError, TimeoutError) as error:
                bench.failed(target, number, error)
                del running[name], found[name]
                continue
            load_s = bench.load_cpu_s() - load_before
            if at_once > 1:
                bench.settle(target)
            so_far.rows += sample.served
            so_far.upstream_connections += bench.connections() - connections - 1
            if not turn:
                continue
            so_far.times_ms += sample.times_ms[at_once:]  # without those that opened connections
            so_far.served += sample.served
            so_far.cpu_s += target.cpu_s() - before
            so_far.load_s += load_s
            so_far.took_s += sample.took_s
            so_far.reconnects += sample.reconnects
    for name, target in running.items():
        what = f"round {number} {name}: JSON, {at_once} at once"
        bench.check_records(target, what, found[name].rows)
    return found


def latency_round(bench: Bench, targets: Sequence[Target], number: int) -> None:
    """Measure latency with one request at a time, on cores that stay awake, for the board.

    `number` is the round's. Added latency is against the direct way.
    """
    targets = [target for target in targets if target.name != INFO]
    what = f"round {number} all: JSON, 1 at once"
    with kept_awake(bench.place.cores.all) as awake, bench.an_eye_on(what, targets, awake):
        found = in_turns(bench, targets, number, 1, bench.plan.latency_s / TURNS, TURNS)
    medians = {name: quantile(turns.times_ms, 0.5) for name, turns in found.items()}
    for name, median in medians.items():
        bench.board.add(number, name, latency_ms=median)
        if name != DIRECT:
            bench.board.add(number, name, added_ms=median - medians[DIRECT])


def json_round(bench: Bench, targets: Sequence[Target], number: int) -> None:
    """Measure CPU and throughput with 64 requests at a time, for the board.

    `number` is the round's.
    """
    targets = [target for target in targets if target.name != DIRECT]
    plan, cores = bench.plan, bench.place.cores
    with bench.an_eye_on(f"round {number} all: JSON, {AT_ONCE} at once", targets):
        found = in_turns(bench, targets, number, AT_ONCE, plan.load_s / plan.turns, plan.turns)
    for name, turns in found.items():
        if turns.load_s / turns.took_s / len(cores.load | cores.upstream) > LOADED:
            bench.board.limited.add(f"round {number} {name}: JSON, {AT_ONCE} at once")
        bench.board.add(
            number,
            name,
            cpu_ms=turns.cpu_s * 1_000 / turns.served,
            per_s=turns.served / turns.took_s,
            upstream_connections=turns.upstream_connections,
            reconnects=turns.reconnects,
        )


def stream_round(bench: Bench, target: Target, number: int) -> None:
    """Measure streams of one target for the board: CPU, first deltas and throughput.

    The deltas of a spaced stream are 1 ms apart; throughput is of streams in one write. A target
    that buffers streams gets a note. Does nothing for `ours-info`.
    """
    plan, board, name = bench.plan, bench.board, target.name
    if name == INFO:
        return
    what = f"round {number} {name}: streams"
    job = target.job(SPACED, is_stream=True, is_stamped=True)
    alone = bench.measure(target, f"{what}, 1 at once", job, 1, plan.latency_s).sample
    board.add(number, name, first_alone_ms=quantile(alone.transit_ms, 0.5))
    spans = [t - f for t, f in zip(alone.times_ms, alone.first_ms, strict=True)]
    if name != ENFORCE and quantile(spans, 0.5) < IS_STREAMING_MS:
        board.note(f"{name} buffers streams: the first delta comes with the last one")
    spaced = bench.measure(target, what, job, STREAMS_AT_ONCE, plan.streams_s)
    first = spaced.sample.first_ms
    board.add(number, name, first_ms=quantile(first, 0.5))
    if name == DIRECT:
        return
    if name != ENFORCE:  # its rules buffer a stream until it is scored
        direct = board.values["first_ms"][DIRECT][number]
        added = {"first_p50_ms": quantile(first, 0.5), "first_p99_ms": quantile(first, 0.99)}
        board.add(number, name, **{figure: value - direct for figure, value in added.items()})
    job = target.job(is_stream=True)
    burst = bench.measure(target, f"{what} in one write", job, STREAMS_AT_ONCE, plan.streams_s / 2)
    board.add(
        number,
        name,
        stream_cpu_ms=spaced.cpu_ms,
        burst_cpu_ms=burst.cpu_ms,
        streams_per_s=burst.sample.per_s,
    )


def size_round(bench: Bench, target: Target, number: int) -> None:
    """Measure the cost of a long conversation and of a large reply, for the board.

    Does nothing unless the target is `ours`.
    """
    plan = bench.plan
    if target.name != OBSERVE:
        return
    what = f"round {number} {OBSERVE}:"
    short = bench.measure(target, f"{what} 10 messages", target.job(), AT_ONCE, plan.load_s)
    job = target.job(messages=LONG_MESSAGES)
    long = bench.measure(target, f"{what} 200 messages", job, AT_ONCE, plan.load_s)
    big = bench.measure(target, f"{what} 1 MB reply", target.job(BIG), BIG_AT_ONCE, plan.load_s)
    bench.board.add(
        number,
        OBSERVE,
        short_cpu_ms=short.cpu_ms,
        long_cpu_ms=long.cpu_ms,
        long_ratio=long.cpu_ms / short.cpu_ms,
        big_cpu_ms=big.cpu_ms,
    )


def start_up(bench: Bench, name: str, launch: Launch, number: int) -> None:
    """Measure the seconds from exec to the first relayed reply, and the memory then.

    A target that does not start gets a note.
    """
    with ExitStack() as stack:
        log = stack.enter_context((bench.place.scratch / f"{name}-start.log").open("wb"))
        started = time.monotonic()
        process = stack.enter_context(
            launched(
                launch.command,
                stdout=log,
                stderr=log,
                env=launch.env,
                cwd=launch.cwd,
                cores=bench.place.cores.target,
            )
        )
        target = Target(name, process.pid, launch)
        error = wait_until_it_answers(target, lambda: process.poll() is None, pause_s=0.005)
        took = time.monotonic() - started
        if error is not None:
            bench.board.note(f"{name} did not start: {error}")
            return
        shown_as = OBSERVE if name == BARE else name
        bench.board.add(number, shown_as, start_s=took, start_mb=memory_mb(process.pid))
