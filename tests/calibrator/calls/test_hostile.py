"""Whatever stands in a conversation, reading it neither fails nor takes long."""

from __future__ import annotations

import time

import numpy as np
import pytest

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
