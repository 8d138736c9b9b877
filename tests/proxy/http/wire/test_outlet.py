"""Writes of many connections are sent together, those of few at once."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from proxy.http.wire.outlet import FEW, LOOK_EVERY, MANY, SMALL, Bursts, Outlet


@asynccontextmanager
async def outlets(number: int) -> AsyncIterator[tuple[Bursts, list[tuple[Outlet, socket.socket]]]]:
    """Yield several outlets of one server, each with the other end of its connection."""
    loop, bursts, found = asyncio.get_running_loop(), Bursts(), []
    for _ in range(number):
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
        found.append((Outlet(transport, bursts), theirs))
    yield bursts, found
    for outlet, theirs in found:
        outlet.transport.abort()
        theirs.close()
    await asyncio.sleep(0)


def arrived(theirs: socket.socket) -> bytes:
    """Return the bytes that have arrived already."""
    try:
        return theirs.recv(2**16)
    except BlockingIOError:
        return b""


async def turns(number: int, work: Callable[[], None]) -> None:
    """Do the work once in each of this many turns of the loop."""
    for _ in range(number):
        work()
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def test_few_writes_leave_at_once() -> None:
    """A single connection's writes are sent at once, however many there are."""
    async with outlets(1) as (bursts, [(outlet, theirs)]):
        for number in range(5 * LOOK_EVERY):
            outlet.write_alone(b"%d" % number)
            assert arrived(theirs) == b"%d" % number
            await asyncio.sleep(0)
        assert not bursts.is_gathering


async def test_many_writes_wait_for_the_next_turn_until_they_are_few_again() -> None:
    """Where a turn writes for many connections, their writes are sent in the next one."""
    async with outlets(LOOK_EVERY + MANY) as (bursts, all_of_them):

        def write_all() -> None:
            for outlet, _ in all_of_them:
                outlet.write_alone(b"a")

        await turns(1, write_all)
        assert bursts.is_gathering
        assert [arrived(theirs) for _, theirs in all_of_them] == [b"a"] * len(all_of_them)
        write_all()
        assert [arrived(theirs) for _, theirs in all_of_them] == [b""] * len(all_of_them)
        assert all(outlet.is_waiting() for outlet, _ in all_of_them)
        await asyncio.sleep(0)
        assert [arrived(theirs) for _, theirs in all_of_them] == [b"a"] * len(all_of_them)

        few = all_of_them[: FEW - 1]

        def write_few() -> None:
            for outlet, _ in few:
                outlet.write_alone(b"b")

        await turns(SMALL - 1, write_few)
        assert bursts.is_gathering  # a few small turns may be chance
        await turns(1, write_few)
        assert not bursts.is_gathering
        assert [arrived(theirs) for _, theirs in few] == [b"b" * SMALL] * len(few)


async def test_what_is_written_keeps_its_order() -> None:
    """Parts, large replies and a connection's end are sent after what waited before them."""
    async with outlets(1) as (_, [(outlet, theirs)]):
        outlet.write(b"1")
        outlet.write_alone(b"2")
        outlet.write(b"")
        outlet.write_large([b"3", memoryview(b"4")])
        outlet.write(b"5")
        outlet.close()
        assert arrived(theirs) == b"12345"
        outlet.write(b"6")  # too late
        await asyncio.sleep(0)
        assert arrived(theirs) == b""


async def test_what_waits_is_dropped_with_its_connection() -> None:
    """What waits for a closed transport is dropped, and other connections get theirs."""
    async with outlets(2) as (_, [(lost, gone), (outlet, theirs)]):
        lost.write(b"1")
        outlet.write(b"2")
        lost.transport.abort()
        await asyncio.sleep(0)
        assert (arrived(gone), arrived(theirs)) == (b"", b"2")


async def test_a_transport_that_fails_keeps_nobody_from_writing() -> None:
    """A transport that fails is reported by the loop; those behind it are sent one turn later."""
    messages: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, of: messages.append(str(of["exception"]))
    )
    async with outlets(3) as (_, [(first, one), (faulty, _), (last, three)]):
        for outlet in (first, faulty, last):
            outlet.write(b"a")
        faulty.transport.write_eof()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (arrived(one), arrived(three)) == (b"a", b"a")
        assert len(messages) == 1
        assert "write_eof" in messages[0]
