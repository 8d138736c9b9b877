"""Buckets that several processes share let through as many requests as one would."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from typing import NoReturn

import pytest

from proxy.gate.rate_limits import SLOTS, Buckets, SharedBuckets, TakesRequests

PROCESSES, EACH = 4, 400
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.mark.parametrize("make", [Buckets, lambda clock: SharedBuckets(clock=clock)])
def test_shared_ones_do_as_those_of_one_process(
    make: Callable[[Callable[[], float]], TakesRequests],
) -> None:
    """A shared bucket allows a minute's worth at once, then one at intervals."""
    now = [1_000.0]
    buckets = make(lambda: now[0])
    both = [("key", 60), ("team", 2)]
    assert [buckets.take(both) for _ in range(2)] == [0, 0]
    assert buckets.take(both) == pytest.approx(30)
    assert [buckets.take([("key", 60)]) for _ in range(58)] == [0] * 58
    assert buckets.take([("key", 60)]) == pytest.approx(1)
    now[0] += 30.0
    assert buckets.take(both) == 0
    assert buckets.take(both) == pytest.approx(30)


def test_processes_together_take_what_there_is() -> None:
    """With 1,000 requests a minute allowed, four processes that ask 1,600
    times at once get 1,000, and those that the time meanwhile adds.
    """
    buckets, started = SharedBuckets(), time.monotonic()
    reads, write = os.pipe()
    for _ in range(PROCESSES):
        if not os.fork():
            _take(buckets, write)
    os.close(write)
    with os.fdopen(reads, "rb") as pipe:
        taken = pipe.read().count(b"1")
    for _ in range(PROCESSES):
        os.wait()
    came_s = time.monotonic() - started
    assert 1_000 <= taken <= min(PROCESSES * EACH, 1_000 + came_s * 1_000 / 60 + 1)


def _take(buckets: SharedBuckets, write: int) -> NoReturn:
    for _ in range(EACH):
        os.write(write, b"0" if buckets.take([("key", 1_000)]) else b"1")
    os._exit(0)


def test_one_that_dies_keeps_nobody_waiting() -> None:
    """A process that is killed while it holds the lock does not block the others."""
    buckets = SharedBuckets()
    reads, write = os.pipe()
    pid = os.fork()
    if not pid:
        fcntl.lockf(buckets._lock, fcntl.LOCK_EX)
        os.write(write, b".")
        time.sleep(60)
        os._exit(0)
    os.read(reads, 1)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    assert buckets.take([("key", 1)]) == 0
    for end in (reads, write):
        os.close(end)


def test_too_many_buckets_push_out_the_oldest() -> None:
    """A full table drops its oldest buckets, and all slots are free a minute later."""
    now = [1_000.0]
    buckets = SharedBuckets(slots=32, clock=lambda: now[0])
    for number in range(1_000):
        now[0] += 0.001
        assert buckets.take([(f"key {number}", 1)]) == 0
        assert buckets.take([(f"key {number}", 1)]) > 0
    now[0] += 60
    assert buckets.take([("key 999", 1)]) == 0
    assert SLOTS >= 100_000
