"""Processes of the benchmarks: pinned to cores, measured through /proc, ended with the block."""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
MB = 10**6
PROCESS_CLOCK = 2  # CPUCLOCK_SCHED of Linux: nanoseconds of all threads, ended ones included
STOP_S = 10
_AWAKE = "import os; os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\nwhile True: pass"


@dataclass(frozen=True, slots=True)
class Cores:
    """The cores of each process; load and upstream share one where there are fewer than four."""

    target: frozenset[int]
    load: frozenset[int]
    upstream: frozenset[int]
    spare: frozenset[int]  # for scoring; empty on two cores

    @property
    def all(self) -> frozenset[int]:
        """All cores of the bench."""
        return self.target | self.load | self.upstream | self.spare

    def __str__(self) -> str:
        places = {"target": self.target, "load": self.load, "upstream": self.upstream}
        spare = f"scoring {sorted(self.spare)}" if self.spare else "none to spare for scoring"
        return ", ".join([*(f"{who} {sorted(on)}" for who, on in places.items()), spare])


def share_cores() -> Cores:
    """Return one core for the target and others for load, upstream and scoring, if there are any.

    All are empty where the system cannot pin processes. Below four cores load and upstream share
    one.
    """
    if not hasattr(os, "sched_getaffinity"):
        return Cores(frozenset(), frozenset(), frozenset(), frozenset())
    available = sorted(os.sched_getaffinity(0))
    target, load = frozenset(available[:1]), frozenset(available[1:2] or available)
    if len(available) < 4:
        return Cores(target, load, load, frozenset(available[2:]))
    return Cores(target, load, frozenset(available[2:3]), frozenset(available[3:]))


def pin(cores: Iterable[int]) -> None:
    """Bind this process to the cores; do nothing where there are none."""
    if cores := set(cores):
        os.sched_setaffinity(0, cores)


@contextmanager
def launched(
    command: Sequence[str],
    *,
    stdout: int | IO[bytes],
    stderr: int | IO[bytes],
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    cores: frozenset[int] = frozenset(),
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process until the block ends, and end it with its children.

    It leads a session of its own, is bound to `cores` if there are any, and has `env` added to this
    environment.
    """
    process = subprocess.Popen(
        command,
        stdout=stdout,
        stderr=stderr,
        env={**os.environ, **(env or {})},
        cwd=cwd,
        start_new_session=True,
        preexec_fn=lambda: pin(cores),
    )
    try:
        yield process
    finally:
        _stop(process)


@contextmanager
def kept_awake(cores: Iterable[int]) -> Iterator[list[int]]:
    """Keep the cores awake in the block, and yield the ids of the processes that do it.

    Each runs an empty loop at the lowest priority (SCHED_IDLE), which gives way at once. A virtual
    core that sleeps takes a tenth of a millisecond to wake, and longer on a busy host. Every target
    would have that in its latency several times a request. Without SCHED_IDLE nothing is run.
    """
    on = [frozenset({core}) for core in cores] if hasattr(os, "SCHED_IDLE") else []
    # They stay in this session, as Linux gives each session its share of a core at any priority.
    loops = [
        subprocess.Popen([sys.executable, "-c", _AWAKE], preexec_fn=partial(pin, core))
        for core in on
    ]
    try:
        yield [loop.pid for loop in loops]
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a process with its children and wait; after 10 s it is killed."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def tree(pid: int) -> list[int]:
    """Return the ids of the process and of all its descendants, its own first."""
    found = [pid]
    for parent in found:
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found += map(int, children.read_text().split())
            except OSError:  # a thread that has just ended
                continue
    return found


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process, its threads and descendants, so far.

    The result is nan where they are unreadable.
    """
    try:
        return sum(time.clock_gettime((~each << 3) | PROCESS_CLOCK) for each in tree(pid))
    except (OSError, OverflowError):
        return math.nan


def memory_mb(pid: int) -> float:
    """Return the resident memory in MB of a process and its descendants, nan if unreadable.

    Shared pages count in each.
    """
    try:
        pages = [Path(f"/proc/{each}/statm").read_text().split()[1] for each in tree(pid)]
    except OSError:
        return math.nan
    return sum(map(int, pages)) * PAGE / MB


@dataclass(frozen=True, slots=True)
class Others:
    """The use of `cores` by other processes than this one and `pids`, from here to `share`."""

    cores: frozenset[int]
    pids: tuple[int, ...]
    busy_s: float
    ours_s: float
    at_s: float

    @classmethod
    def watch(cls, cores: frozenset[int], pids: Iterable[int]) -> Others:
        """Begin to watch the use of the cores by others than this process and `pids`."""
        own = tuple(pids)
        return cls(cores, own, _busy_s(cores), _ours_s(own), time.monotonic())

    def share(self) -> float:
        """Return the CPU time of others divided by the time that the cores had, 0 to 1."""
        took = (time.monotonic() - self.at_s) * max(1, len(self.cores))
        foreign = _busy_s(self.cores) - self.busy_s - (_ours_s(self.pids) - self.ours_s)
        return max(0.0, foreign / took)


def _ours_s(pids: Iterable[int]) -> float:
    """Return the CPU seconds of this process and of the processes given, so far."""
    return time.process_time() + sum(map(cpu_s, pids))


def _busy_s(cores: frozenset[int]) -> float:
    """Return the seconds since boot that the cores were not idle, stolen time included.

    The result is nan where the system does not say.
    """
    try:
        lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
    except OSError:
        return math.nan
    wanted = {f"cpu{core}" for core in cores}
    ticks = 0
    for name, *values in lines:
        if name in wanted:
            user, nice, system, _, _, irq, softirq, steal = map(int, values[:8])
            ticks += user + nice + system + irq + softirq + steal
    return ticks / TICKS_PER_S


def free_port() -> int:
    """Return a port of loopback that is free at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
    return port
