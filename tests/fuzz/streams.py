"""A fuzzer of streams of the four formats, against policies that block all, or block calls.

A finding is an internal error, a scorer that fails, or an answer that passes a policy.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.builders.undecided_replies import events_of
from tests.fuzz.fuzzing import Case
from tests.fuzz.mutations import changed, dumped, spoilt
from tests.fuzz.proxied import POLICIES, Rig, check, rig
from tests.servers.faulty_upstream import EVENTS, Response
from tests.servers.undecided import PATHS, asking


@contextmanager
def cases() -> Iterator[Case]:
    with rig() as found:
        yield lambda chance: _case(chance, found)


def _case(chance: random.Random, rig: Rig) -> str:
    surface, policy = chance.choice([*PATHS]), chance.choice([*POLICIES])
    calls = chance.random() < 0.7 and surface != "completions"
    raw = b"".join(_written(chance, events_of(surface, calls)))
    if chance.random() < 0.3:
        raw = spoilt(chance, raw)
    pieces = _pieces(chance, raw)
    rig.upstream.answer = Response(pieces, headers=EVENTS, framing="chunked")
    is_stream = chance.random() < 0.8
    status, got = rig.ask(policy, surface, asking(surface, stream=is_stream))
    try:
        return f"{check(policy, got, calls)} ({status})"
    except AssertionError as error:
        raise AssertionError(
            f"{error}\n{surface}, stream: {is_stream}\nupstream {raw!r}"
        ) from error


def _written(chance: random.Random, events: list[tuple[str | None, bytes]]) -> Iterator[bytes]:
    """Yield the events, some of them changed, lost, doubled or in another order."""
    order = list(events)
    match chance.randrange(6):
        case 0:
            chance.shuffle(order)
        case 1:
            order.insert(chance.randrange(len(order) + 1), chance.choice(order))
        case 2:
            order.pop(chance.randrange(len(order)))
    for name, data in order:
        if data != b"[DONE]" and chance.random() < 0.5:
            value: Any = json.loads(data)
            data = dumped(chance, changed(chance, value))
            name = value.get("type") if name and chance.random() < 0.2 else name
        yield from _event(chance, name, data)


def _event(chance: random.Random, name: object, data: bytes) -> Iterator[bytes]:
    end = chance.choice((b"\n", b"\n", b"\n", b"\r\n", b"\r"))
    if isinstance(name, str) and chance.random() < 0.9:
        yield b"event: " + name.encode() + end
    for line in data.split(b"\n"):
        yield chance.choice((b"data: ", b"data: ", b"data:")) + line + end
    yield end


def _pieces(chance: random.Random, raw: bytes) -> list[bytes]:
    cuts = sorted(chance.randrange(len(raw) + 1) for _ in range(chance.choice((0, 1, 4))))
    parts = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    return [part for part in parts if part]
