"""The targets between load and upstream, and a check that they relay correctly."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench_http import (
    ANSWER,
    CHAT,
    LAST_SENTENCE,
    MESSAGES,
    SHORT,
    SPACED,
    VARIANTS,
    VARIED,
    WORDS,
    request,
)
from bench_load import Job, LoadError, ask
from bench_process import Cores, cpu_s, launched

READY_S: Final = 300  # seconds, enough on a busy machine


@dataclass(frozen=True, slots=True)
class Place:
    """The places of a run: the tree to measure, peers' environments, scratch, upstream's port."""

    root: Path
    peers: Path
    scratch: Path
    cores: Cores
    upstream: int

    @property
    def upstream_url(self) -> str:
        return f"http://127.0.0.1:{self.upstream}"


@dataclass(frozen=True, slots=True)
class Launch:
    """The start of one target on `port`, and the bytes that its clients send and expect."""

    port: int
    command: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    headers: tuple[tuple[str, str], ...] = ()
    must_hold: bytes = LAST_SENTENCE.encode()
    must_hold_once_ready: bytes | None = None  # None: the same
    records: Path | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """A running target."""

    name: str
    pid: int
    launch: Launch

    @property
    def is_ours(self) -> bool:
        return self.name.startswith("ours")

    def cpu_s(self) -> float:
        return cpu_s(self.pid)

    def job(
        self,
        model: str = SHORT,
        *,
        path: str = CHAT,
        messages: int = MESSAGES,
        is_stream: bool = False,
        is_stamped: bool = False,
        must_hold: bytes | None = None,
    ) -> Job:
        """Return a job with the same request for all targets, but for headers that a peer needs.

        `messages` is the conversation's length. Without `must_hold` it is the launch's, or b"" for
        the streams of peers.
        """
        head = request(
            path, model, messages=messages, is_stream=is_stream, headers=self.launch.headers
        )
        if must_hold is None:
            has_mark = not is_stream or self.is_ours
            must_hold = self.launch.must_hold if has_mark else b""
        return Job(self.launch.port, head, must_hold, is_stream, is_stamped)

    def varied_job(self) -> Job:
        """Return a job of conversations in other words each time; ours must score every reply."""
        first, *others = (
            request(CHAT, VARIED, headers=self.launch.headers, variant=number)
            for number in range(VARIANTS)
        )
        must_hold = self.launch.must_hold_once_ready or self.launch.must_hold
        return Job(self.launch.port, first, must_hold, others=tuple(others))


@contextmanager
def running(
    name: str, place: Place, launch: Launch, cores: frozenset[int] | None = None
) -> Iterator[Target]:
    """Run the target until the block ends, pinned to its core or to `cores`, and yield it.

    Raises RuntimeError with the end of its log if it does not come up.
    """
    log_path = place.scratch / f"{name}.log"
    with (
        log_path.open("wb") as log,
        launched(
            launch.command,
            stdout=log,
            stderr=log,
            env=launch.env,
            cwd=launch.cwd,
            cores=place.cores.target if cores is None else cores,
        ) as process,
    ):
        target = Target(name, process.pid, launch)
        error = wait_until_it_answers(target, lambda: process.poll() is None)
        if error is not None:
            raise RuntimeError(f"{name} did not come up: {error}\n{log_path.read_text()[-2_000:]}")
        yield target


def wait_until_it_answers(
    target: Target, is_alive: Callable[[], bool], pause_s: float = 0.05
) -> Exception | None:
    """Return None once it relays a completion correctly, or else the last error.

    It gives up when `is_alive` returns False or after `READY_S` seconds.
    """
    job = target.job(must_hold=target.launch.must_hold_once_ready)
    deadline = time.monotonic() + READY_S
    error: Exception | None = RuntimeError("the process ended")
    while is_alive() and time.monotonic() < deadline:
        try:
            job.check(*ask(job.port, job.request))
            return None
        except (OSError, ValueError, LoadError) as found:
            error = found
        time.sleep(pause_s)
    return error


def verify(target: Target) -> None:
    """Ask the target, and raise LoadError if it changes upstream's completion or streams.

    Other errors of the connection are raised too.
    """
    job = target.job()
    head, body = ask(job.port, job.request)
    job.check(head, body)
    content = json.loads(body)["choices"][0]["message"]["content"]
    if content != ANSWER:
        raise LoadError(f"{target.name} changed the completion: {content!r}")
    for model in (SHORT, SPACED):
        job = target.job(model, is_stream=True)
        head, body = ask(job.port, job.request)
        job.check(head, body)
        lines = [line[6:] for line in body.decode().splitlines() if line.startswith("data: {")]
        deltas = [choice["delta"] for line in lines for choice in json.loads(line)["choices"]]
        content = "".join(delta.get("content") or "" for delta in deltas)
        if content.rpartition("@")[2] != "".join(WORDS):
            raise LoadError(f"{target.name} changed the stream: {content!r}")
