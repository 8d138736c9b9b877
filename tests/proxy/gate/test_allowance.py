"""Bounds on how much of large bodies is read and kept at a time."""

from __future__ import annotations

import asyncio
import gc
import time

import pytest

from proxy.errors import OverloadedError
from proxy.exchange.request import read_completion_request
from proxy.formats import CHAT
from proxy.gate.allowance import REFUSED_AFTER_S, Allowance, Share, allowance
from proxy.http.wire.caller import ANYONE, Caller
from proxy.http.wire.http import Request


async def settled() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_shares_wait_for_each_other_in_order() -> None:
    """Shares are given in the order in which they were requested, so that large ones get a turn."""
    allowance = Allowance(most=100)
    first = await allowance.take(60)
    got: list[str] = []

    async def take(name: str, size: int) -> Share:
        share = await allowance.take(size)
        got.append(name)
        return share

    large = asyncio.create_task(take("large", 80))
    small = asyncio.create_task(take("small", 10))
    await settled()
    assert got == []  # a small one does not overtake
    first.shrink_to(30)
    await settled()
    assert (got, allowance.in_use) == ([], 30)
    first.give_back()
    await settled()
    assert (got, allowance.in_use) == (["large", "small"], 90)
    (await large).give_back()
    (await small).give_back()
    first.give_back()  # a second return changes nothing
    assert allowance.in_use == 0


async def test_one_that_is_larger_than_all_is_alone() -> None:
    """A body larger than the whole allowance is read, but alone."""
    allowance = Allowance(most=100)
    share = await allowance.take(10_000)
    waiting = asyncio.create_task(allowance.take(1))
    await settled()
    assert not waiting.done()
    share.shrink_to(99)
    assert (await waiting).size == 1
    assert allowance.in_use == 100


async def test_garbage_is_released() -> None:
    """A share is given back when only the collector of cycles finds it."""
    allowance = Allowance(most=100)
    for _ in range(2):
        share = await allowance.take(100)
        share_of = [share]
        share_of.append(share_of)  # type: ignore[arg-type]  # a cycle
        del share, share_of
        gc.collect()
        await settled()
    assert allowance.in_use == 0


async def test_long_waits_and_long_queues_are_refused() -> None:
    """A request that waits too long, or behind too many, is refused and takes no share."""
    allowance = Allowance(most=100, most_waiting=2, patience_s=0.05)
    share = await allowance.take(100)
    begun = time.monotonic()
    waiting = [asyncio.create_task(allowance.take(50)) for _ in range(3)]
    with pytest.raises(OverloadedError, match="try again"):
        await waiting[2]
    assert time.monotonic() - begun >= REFUSED_AFTER_S  # slows a client that comes again
    for each in waiting[:2]:
        with pytest.raises(OverloadedError):
            await each
    share.give_back()
    assert (await allowance.take(100)).size == 100


async def test_who_leaves_takes_nothing() -> None:
    """A cancelled request takes no share, even if its turn comes at the same moment."""
    allowance = Allowance(most=100)
    share = await allowance.take(100)
    left, stays = (asyncio.create_task(allowance.take(70)) for _ in range(2))
    await settled()
    left.cancel()
    share.give_back()
    assert (await stays).size == 70
    with pytest.raises(asyncio.CancelledError):
        await left
    last = asyncio.create_task(allowance.take(100))
    await settled()
    (await stays).give_back()
    last.cancel()  # its turn comes at the same moment
    with pytest.raises(asyncio.CancelledError):
        await last
    assert allowance.in_use == 0


def asked_with(body: bytes, caller: Caller = ANYONE) -> Request:
    return Request("POST", "/v1/chat/completions", "", [], body, caller)


async def test_a_request_keeps_the_share_of_its_values_until_it_is_gone() -> None:
    """A large request holds a share for its number of values for as long as it exists."""
    prose = b'{"model": "m", "messages": [{"role": "user", "content": "%b"}]}'
    plain = prose % (b"a, b, " * 50_000)
    request = await read_completion_request(asked_with(plain), CHAT, 2**26)
    assert (request.is_large, allowance().in_use) == (False, 0)
    quoting = prose % (b'a, \\"b\\", ' * 50_000)
    request = await read_completion_request(asked_with(quoting), CHAT, 2**26)
    assert request.is_large
    assert allowance().in_use < 8_000  # signs in its text are no values
    values = b'{"model": "m", "messages": [], "x": [%b0]}' % (b"[]," * 60_000)
    many = await read_completion_request(asked_with(values), CHAT, 2**26)
    assert 60_000 < allowance().in_use < 80_000
    del request, many
    for _ in range(100):  # the thread that read it may refer to it for a moment longer
        gc.collect()  # takes seconds where many objects live: no time limit bounds it
        await asyncio.sleep(0.01)
        if not allowance().in_use:
            break
    assert allowance().in_use == 0


async def test_who_has_a_key_waits_for_no_strangers() -> None:
    """A caller with a key does not wait behind those without one."""
    body = b'{"model": "m", "messages": [], "x": [%b0]}' % (b"[]," * 60_000)
    share = await allowance().take(10**9)
    request = await read_completion_request(asked_with(body, Caller(id="k")), CHAT, 2**26)
    assert (request.is_large, request.share and request.share.size) == (True, 0)
    share.give_back()
