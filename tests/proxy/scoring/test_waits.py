"""Many timeouts on one timer: each is called once, after its time, in order."""

from __future__ import annotations

import asyncio

from proxy.scoring.waits import Deadlines


async def test_each_is_called_after_its_time_and_in_order() -> None:
    """Calls happen in the order in which they were added, and none before `after_s`."""
    deadlines, called = Deadlines(0.05), list[tuple[str, float]]()
    loop = asyncio.get_running_loop()
    began = loop.time()
    for name in ("a", "b"):
        deadlines.add(lambda name=name: called.append((name, loop.time() - began)))  # type: ignore[misc]
    await asyncio.sleep(0.02)
    deadlines.add(lambda: called.append(("c", loop.time() - began)))
    done = asyncio.Event()
    deadlines.add(done.set)
    await asyncio.wait_for(done.wait(), timeout=5)
    assert [name for name, _ in called] == ["a", "b", "c"]
    assert all(after >= 0.049 for _, after in called[:2])
    assert called[2][1] >= 0.069


async def test_an_idle_queue_starts_again() -> None:
    """After the queue was empty, the next call happens as well."""
    deadlines = Deadlines(0.01)
    for _ in range(3):
        done = asyncio.Event()
        deadlines.add(done.set)
        await asyncio.wait_for(done.wait(), timeout=5)


def test_new_event_loop_starts_fresh() -> None:
    """Calls of an event loop that is closed are forgotten, and a new loop's calls happen."""
    deadlines, called = Deadlines(0.01), list[str]()

    async def add(name: str, wait_s: float) -> None:
        deadlines.add(lambda: called.append(name))
        await asyncio.sleep(wait_s)

    asyncio.run(add("lost", 0))
    asyncio.run(add("made", 0.1))
    assert called == ["made"]
