"""Whatever stands in a conversation, reading it neither fails nor takes long."""

from __future__ import annotations

import time

import numpy as np
import pytest

from calibrator import MARKS, RISKS, ToolUse, call_notes
from calibrator.calls import read_reply, reasons
from calibrator.calls.model import read_call
from tests.calibrator.calls.conversations import made, renting
from tests.calibrator.calls.hostile_calls import hostile_calls

HOSTILE = hostile_calls()
MOST_S = 0.3  # of the processor, on a busy machine; a tenth of it is usual


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_input_is_read(kind: str) -> None:
    """Traits are finite numbers, the words' buckets are known ones, and it takes no time."""
    started = time.process_time()
    traits, words = read_call(HOSTILE[kind], "model")
    assert time.process_time() - started < MOST_S
    assert np.isfinite(traits).all()
    assert all(isinstance(reason, str) for reason in reasons(read_reply(HOSTILE[kind])))
    assert words.dtype == np.int64


def test_a_long_conversation_is_read_in_milliseconds() -> None:
    """9,000 characters before a call cost a few milliseconds."""
    rows = ", ".join(f'{{"boat_id": "B-{n}", "name": "Boat {n}", "price": {n}}}' for n in range(40))
    looked = [
        each
        for number in range(5)
        for each in made("find_boats", {"query": str(number)}, f"[{rows}]", number)
    ]
    used = renting(before=looked)
    assert sum(len(str(message)) for message in used.messages) > 9_000
    started = time.process_time()
    for _ in range(10):
        read_call(used)
    assert (time.process_time() - started) / 10 < 0.05


# Marks and risk

MOST_NOTED_S = 1.0  # of the processor, on a busy machine
NEAR = " ".join(f"{'a' * 50}{n:06d}" for n in range(5_000))


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_input_is_marked(kind: str) -> None:
    """Every mark and every risk is a known one."""
    started = time.process_time()
    notes = call_notes(HOSTILE[kind])
    assert time.process_time() - started < MOST_NOTED_S
    for note in notes or ():
        assert note.risk in RISKS
        assert {mark.name for mark in note.marks} <= set(MARKS)


def test_thousands_of_tokens_that_are_nearly_alike_take_no_time() -> None:
    """Each value is compared with a bounded number of them, in a band."""
    arguments = '{"ids": ["' + '","'.join(f"{'a' * 50}x{n:05d}" for n in range(50)) + '"]}'
    function = {"name": "delete", "arguments": arguments}
    call = {"id": "c", "type": "function", "function": function}
    message = {"role": "assistant", "tool_calls": [call]}
    used = ToolUse([{"role": "user", "content": NEAR}], [], message)
    started = time.process_time()
    assert call_notes(used) is not None
    assert time.process_time() - started < 3 * MOST_NOTED_S
