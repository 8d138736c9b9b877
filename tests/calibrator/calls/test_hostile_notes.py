"""Marks and risks of hostile input: nothing fails, and it does not take long."""

from __future__ import annotations

import time

import pytest

from calibrator import MARKS, RISKS, ToolUse, call_notes
from tests.calibrator.calls.hostile_calls import hostile_calls

HOSTILE = hostile_calls()
MOST_S = 1.0  # of the processor, on a busy machine
NEAR = " ".join(f"{'a' * 50}{n:06d}" for n in range(5_000))


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_input_is_marked(kind: str) -> None:
    """Every mark and every risk is a known one."""
    started = time.process_time()
    notes = call_notes(HOSTILE[kind])
    assert time.process_time() - started < MOST_S
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
    assert time.process_time() - started < 3 * MOST_S
