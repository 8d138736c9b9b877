"""Hostile conversations: reading them neither fails nor takes long."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from calibrator import MARKS, RISKS, ToolUse, call_notes
from calibrator.readers.calls import read_reply, reasons
from calibrator.readers.calls.model import read_call
from calibrator.readers.calls.reading.claims import claim_traits
from tests.calibrator.readers.calls.conversations import earlier_call, renting
from tests.calibrator.readers.calls.hostile_calls import hostile_calls

MOST_S = 0.3  # seconds of CPU on a busy machine; a tenth of it is usual


@pytest.fixture(scope="module")
def hostile() -> dict[str, ToolUse]:
    """Return every conversation by its kind."""
    return hostile_calls()


@contextmanager
def takes_at_most(limit_s: float, kind: str) -> Iterator[None]:
    """Fail with the kind of input if the code within takes more CPU seconds, or raises."""
    started = time.process_time()
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{kind}: {error!r}") from error
    assert time.process_time() - started < limit_s, kind


def test_hostile_input_is_read(hostile: Mapping[str, ToolUse]) -> None:
    """Traits are finite numbers, and reading takes at most `MOST_S`."""
    for kind, used in hostile.items():
        with takes_at_most(MOST_S, kind):
            traits, words = read_call(used, "model")
        assert np.isfinite(traits).all(), kind
        assert all(isinstance(reason, str) for reason in reasons(read_reply(used))), kind
        assert words.dtype == np.int64, kind


def test_claims_of_hostile_replies_are_read(hostile: Mapping[str, ToolUse]) -> None:
    """Traits of claims are finite.

    Every eighth conversation also ends with a long reply, and with one of many calls.
    """
    long = {"content": "I have done it 1,000 times on 3 May; " * 3_000}
    calling = {"content": "a(b=" * 5_000}
    for number, (kind, used) in enumerate(hostile.items()):
        further = (long, calling) if number % 8 == 0 else ()
        for each in (used, *(replace(used, message=message) for message in further)):
            with takes_at_most(MOST_S, kind):
                assert np.isfinite(claim_traits(each)).all()


def test_a_long_conversation_is_read_in_milliseconds() -> None:
    """A call after a conversation of 9,000 characters is read in less than 50 ms."""
    rows = ", ".join(f'{{"boat_id": "B-{n}", "name": "Boat {n}", "price": {n}}}' for n in range(40))
    looked = [
        each
        for number in range(5)
        for each in earlier_call("find_boats", {"query": str(number)}, f"[{rows}]", number)
    ]
    used = renting(before=looked)
    assert sum(len(str(message)) for message in used.messages) > 9_000
    started = time.process_time()
    for _ in range(10):
        read_call(used)
    assert (time.process_time() - started) / 10 < 0.05


# Marks and risk

MOST_NOTED_S = 1.0  # seconds of CPU on a busy machine
NEAR = " ".join(f"{'a' * 50}{n:06d}" for n in range(5_000))


def test_hostile_input_is_marked(hostile: Mapping[str, ToolUse]) -> None:
    """Every mark and every risk is a known one."""
    for kind, used in hostile.items():
        with takes_at_most(MOST_NOTED_S, kind):
            notes = call_notes(used)
        for note in notes or ():
            assert note.risk in RISKS, kind
            assert {mark.name for mark in note.marks} <= set(MARKS), kind


def test_thousands_of_tokens_that_are_nearly_alike_take_no_time() -> None:
    """Thousands of similar tokens take bounded time: each value is compared with some of them."""
    arguments = '{"ids": ["' + '","'.join(f"{'a' * 50}x{n:05d}" for n in range(50)) + '"]}'
    function = {"name": "delete", "arguments": arguments}
    call = {"id": "c", "type": "function", "function": function}
    message = {"role": "assistant", "tool_calls": [call]}
    used = ToolUse([{"role": "user", "content": NEAR}], [], message)
    started = time.process_time()
    assert call_notes(used) is not None
    assert time.process_time() - started < 3 * MOST_NOTED_S
