"""The load of the peer benchmark: keep-alive clients that check every reply and cost little.

A `ClosedLoop` asks again as soon as it is answered; `Paced` asks at a fixed rate, whatever the
answers are. Both end by waiting for all requests under way, so that the numbers of requests sent,
served and recorded have to be the same.
"""

from __future__ import annotations

import asyncio
import gc
import re
import socket
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, TypeVar, cast

import uvloop
from bench_http import STAMP, Reader

T = TypeVar("T")

GRACE_S = 60  # seconds for requests under way at the end
TAIL = 4_096  # bytes at the end of a body that are searched for `must_hold`
DONE = b"data: [DONE]"
_STAMP = re.compile(rb"@(\d{%d})@" % (len(STAMP % 0) - 2))
_STATUS = re.compile(rb"x-pinocchio-confidence-status: (\S+)")
_REASON = re.compile(rb"x-pinocchio-confidence-reason: (\S+)")


class LoadError(RuntimeError):
    """An error for an unexpected reply, a broken connection, or no reply at all."""


@dataclass(frozen=True, slots=True)
class Job:
    """One kind of request, its port, and the bytes that every reply must hold near its end."""

    port: int
    request: bytes
    must_hold: bytes
    is_stream: bool = False
    is_stamped: bool = False  # upstream writes the time into the first delta
    others: tuple[bytes, ...] = ()  # requests sent in turns with `request`

    def check(self, head: bytes, body: bytes | bytearray) -> None:
        """Raise LoadError for a reply that is not this job's answer.

        It must have the status 200 (`head` is in lower case), end completely if it is a stream, and
        hold `must_hold` near its end.
        """
        is_whole = not self.is_stream or body.rstrip().endswith(DONE)
        has_it = body.find(self.must_hold, max(0, len(body) - TAIL)) >= 0
        if not head.startswith(b"http/1.1 200") or not is_whole or not has_it:
            text = f"{head.decode(errors='replace')}\n...{bytes(body[-800:])!r}"
            raise LoadError(
                f"not the answer that was asked for, without {self.must_hold!r}: {text}"
            )


@dataclass(slots=True)
class Sample:
    """The results of one run."""

    times_ms: list[float] = field(default_factory=list)
    first_ms: list[float] = field(default_factory=list)  # request sent to first delta
    transit_ms: list[float] = field(default_factory=list)  # first delta written to received
    statuses: Counter[str] = field(default_factory=Counter)  # Paced only: statuses of scores
    reconnects: int = 0
    took_s: float = 0.0

    @property
    def served(self) -> int:
        return len(self.times_ms)

    @property
    def per_s(self) -> float:
        return self.served / self.took_s


class Run(ABC):
    """Connections that share a job; `ready` of a subclass gives a free one its next task."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.requests = cycle((job.request, *job.others))
        self.sample = Sample()
        self.loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self.loop.create_future()

    @abstractmethod
    def ready(self, connection: Connection) -> None:
        """Give a free connection its next task, or close it."""

    @abstractmethod
    def lost(self, connection: Connection) -> None:
        """Handle the loss of a connection without a request under way."""

    async def connect(self) -> None:
        """Open one more connection, which asks `ready` for its first task."""
        await self.loop.create_connection(lambda: Connection(self), "127.0.0.1", self.job.port)

    def reconnect(self) -> None:
        """Count a closed connection, and open another in its place."""
        self.sample.reconnects += 1
        self.loop.create_task(self.connect())

    def fail(self, error: Exception) -> None:
        """End the run with this error, unless it has ended."""
        if not self.ended.done():
            self.ended.set_exception(error)

    def end(self) -> None:
        """End the run, unless it has ended."""
        if not self.ended.done():
            self.ended.set_result(None)

    def take(self, connection: Connection) -> None:
        """Check a connection's complete reply and add its times to the sample. Raises LoadError."""
        now, sample, reader = time.monotonic_ns(), self.sample, connection.reader
        self.job.check(reader.head, reader.body)
        sample.times_ms.append((now - connection.sent_ns) / 1e6)
        if self.job.is_stamped:
            sample.first_ms.append((connection.first_ns - connection.sent_ns) / 1e6)
            sample.transit_ms.append((connection.first_ns - connection.stamp_ns) / 1e6)


class Connection(asyncio.Protocol):
    """One client, with at most one request under way."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.reader = Reader()
        self.is_waiting = False
        self.sent_ns = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport and ask the run for a task."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is not derived from it
        self.run.ready(self)

    def send(self) -> None:
        """Send the next request and remember the time."""
        self.is_waiting = True
        self.first_ns = self.stamp_ns = 0
        self.sent_ns = time.monotonic_ns()
        self.transport.write(next(self.run.requests))

    def data_received(self, data: bytes) -> None:
        """Read data; with a whole reply, check it and ask the run for the next task.

        A wrong reply ends the run with its error. A connection that the server closes is replaced.
        """
        now = time.monotonic_ns() if self.run.job.is_stamped else 0
        try:
            is_whole = self.reader.feed(data)
            if now and not self.first_ns and (found := _STAMP.search(self.reader.body)):
                self.first_ns, self.stamp_ns = now, int(found[1])
            if not is_whole:
                return
            self.run.take(self)
        except (ValueError, LoadError) as error:
            self.run.fail(error)
            self.transport.close()
            return
        self.is_waiting = False
        is_last = b"\r\nconnection: close" in self.reader.head
        self.reader.reset()
        if is_last:
            self.transport.close()
            self.run.reconnect()
        else:
            self.run.ready(self)

    def connection_lost(self, error: Exception | None) -> None:
        """End the run with a LoadError if a request is under way; otherwise tell the run."""
        if self.is_waiting:
            self.run.fail(LoadError(f"the connection broke under a request: {error}"))
        else:
            self.run.lost(self)


class ClosedLoop(Run):
    """A fixed number of clients, each asking again as soon as it is answered."""

    async def run(self, concurrency: int, for_s: float) -> Sample:
        """Ask with `concurrency` clients for `for_s` seconds; return the sample.

        Requests under way at the end are waited for. Raises LoadError, or TimeoutError after
        `GRACE_S` more seconds.
        """
        self.open = concurrency
        started = time.monotonic()
        self.deadline_s = started + for_s
        for _ in range(concurrency):
            await self.connect()
        async with asyncio.timeout(for_s + GRACE_S):
            await self.ended
        self.sample.took_s = time.monotonic() - started
        return self.sample

    def lost(self, connection: Connection) -> None:
        """Ignore the loss, as each connection always has a request under way."""

    def ready(self, connection: Connection) -> None:
        """Send the next request, or close the connection after the deadline.

        The run ends with its last connection.
        """
        if time.monotonic() < self.deadline_s and not self.ended.done():
            connection.send()
            return
        connection.transport.close()
        self.open -= 1
        if self.open == 0:
            self.end()


class Paced(Run):
    """A load of `at_first` requests, then more at a fixed rate until `stop`.

    At most `most` are under way at a time.
    """

    def __init__(self, job: Job, per_s: float, at_first: int = 1, most: int = 512) -> None:
        super().__init__(job)
        self.per_s, self.at_first, self.most = per_s, at_first, most
        self.idle: list[Connection] = []
        self.open = 0
        self.is_stopped = False

    async def run(self) -> Sample:
        """Ask at the rate until `stop` was called and all replies have come; return the sample.

        Raises LoadError for a wrong reply or a broken connection.
        """
        started = time.monotonic()
        for _ in range(self.at_first - 1):
            self._ask()
        self._tick(started)
        await self.ended
        self.sample.took_s = time.monotonic() - started
        return self.sample

    def stop(self) -> None:
        """Send no more requests, and close the idle connections."""
        self.is_stopped = True
        for connection in self.idle:
            connection.transport.close()
        self.open -= len(self.idle)
        self.idle.clear()
        self._end_if_done()

    def _tick(self, due_s: float) -> None:
        """Send the request due at `due_s`, on the loop's clock, and schedule the next one.

        Late requests are not made up for. Does nothing after the end.
        """
        if self.is_stopped or self.ended.done():
            return
        self._ask()
        next_s = max(due_s + 1 / self.per_s, time.monotonic())
        self.loop.call_at(next_s, self._tick, next_s)

    def _ask(self) -> None:
        """Send a request on an idle connection, or on a new one.

        Skips it if `most` are open already.
        """
        if self.idle:
            self.idle.pop().send()
        elif self.open < self.most:
            self.open += 1
            self.loop.create_task(self.connect())

    def ready(self, connection: Connection) -> None:
        """Send on a new connection and keep an answered one as idle; close it after `stop`."""
        if self.is_stopped:
            connection.transport.close()
            self.open -= 1
            self._end_if_done()
        elif not connection.sent_ns:  # opened for a request that is due
            connection.send()
        else:
            self.idle.append(connection)

    def take(self, connection: Connection) -> None:
        """Check a reply and add its times to the sample, and count the status of its score.

        A status with a reason is counted as `STATUS/REASON`. Raises LoadError.
        """
        super().take(connection)
        head = connection.reader.head
        found = [pattern.search(head) for pattern in (_STATUS, _REASON)]
        self.sample.statuses["/".join(f[1].decode() for f in found if f)] += 1

    def lost(self, connection: Connection) -> None:
        """Forget an idle connection that was closed."""
        if connection in self.idle:
            self.idle.remove(connection)
            self.open -= 1

    def _end_if_done(self) -> None:
        """End the run once no connection is open."""
        if self.open == 0:
            self.end()


def ask(port: int, request: bytes, timeout_s: float = 30) -> tuple[bytes, bytes]:
    """Send one request and return the reply's (head, body); this blocks.

    Raises OSError or ValueError without a whole reply.
    """
    reader = Reader()
    with socket.create_connection(("127.0.0.1", port), timeout_s) as connection:
        connection.sendall(request)
        while not reader.feed(data := connection.recv(2**16)):
            if not data:
                raise ConnectionResetError("the connection was closed before the reply's end")
    return reader.head, bytes(reader.body)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a load on a new uvloop loop, without garbage collection; return its result."""
    gc.collect()
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(work)
    finally:
        gc.enable()


async def closed_loop(job: Job, concurrency: int, for_s: float) -> Sample:
    """Ask with `concurrency` clients for `for_s` seconds, again and again; return the sample.

    Raises LoadError for a wrong reply or a broken connection.
    """
    return await ClosedLoop(job).run(concurrency, for_s)


async def beside(
    work: Callable[[], Coroutine[Any, Any, Sample]], paced: Paced, first_s: float
) -> tuple[Sample, Sample]:
    """Run some work beside a paced load; return (the work's sample, the load's).

    The load starts `first_s` seconds before the work and stops after it. Raises LoadError, or
    TimeoutError if the load's last replies take too long.
    """
    pacing = asyncio.create_task(paced.run())
    await asyncio.sleep(first_s)
    sample = await work()
    paced.stop()
    async with asyncio.timeout(GRACE_S):
        return sample, await pacing
