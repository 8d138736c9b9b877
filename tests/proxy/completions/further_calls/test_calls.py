"""What a call cost, and how the member reports it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from proxy.exchange.call import Call, tokens
from proxy.exchange.exchange import SharedClock


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}, (3, 4)),
        ({"input_tokens": 3, "output_tokens": 4}, (3, 4)),
        (
            {
                "input_tokens": 3,
                "cache_creation_input_tokens": 20,
                "cache_read_input_tokens": 100,
                "output_tokens": 4,
            },
            (123, 4),
        ),
        ({"prompt_tokens": 123, "cache_read_input_tokens": 100, "completion_tokens": 4}, (123, 4)),
        ({"prompt_tokens": 3, "input_tokens": 3, "completion_tokens": 4}, (3, 4)),
        ({"prompt_tokens": 3, "completion_tokens": None, "cost": 0.1}, (3, None)),
        ({"prompt_tokens": "3", "completion_tokens": 4.0}, (None, None)),
        (None, (None, None)),
        ([3, 4], (None, None)),
    ],
)
def test_tokens_have_the_same_names_for_all_formats(
    usage: Any, expected: tuple[int | None, int | None]
) -> None:
    """Cached tokens are counted once whichever way a
    format counts them, and what is no number is left out.
    """
    counts = tokens(usage)
    assert (counts.get("prompt_tokens"), counts.get("completion_tokens")) == expected


def test_a_call_that_never_ended_says_so() -> None:
    """An unfinished call is reported with its model and as unfinished, and nothing else."""
    assert Call("m").member_json() == {"model": "m", "error": "unfinished"}


def test_time_that_calls_share_counts_once() -> None:
    """Shared time counts once: three calls at once of 50 ms are 50 ms of upstream's time."""
    clock = SharedClock()
    with clock, clock, clock:
        time.sleep(0.05)
    assert clock.s == pytest.approx(0.05, abs=0.04)
    with clock:
        time.sleep(0.05)
    assert clock.s == pytest.approx(0.1, abs=0.06)
