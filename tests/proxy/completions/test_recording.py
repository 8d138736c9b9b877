"""A completion is recorded once, when the last of its blocks ends."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from proxy.completions.recording import CompletionRecorder
from proxy.exchange.exchange import CLIENT_LEFT, Exchange
from proxy.http.wire.http import Request
from proxy.store.record.writer import Records, exchanges

COLUMNS = [column.name for column in exchanges.columns]


class Rows(list[tuple[Any, ...]]):
    """Takes rows as the record does."""

    add = list.append

    def told(self) -> list[tuple[Any, Any]]:
        rows = [dict(zip(COLUMNS, row, strict=True)) for row in self]
        return [(row["status"], row["error"]) for row in rows]


@pytest.fixture
def rows() -> Rows:
    return Rows()


@pytest.fixture
def recording(rows: Rows) -> CompletionRecorder:
    request = Request("POST", "/v1/chat/completions", "", [])
    return CompletionRecorder(Exchange(request, cast(Records, rows)))


def test_what_goes_on_is_recorded_at_its_own_end(recording: CompletionRecorder, rows: Rows) -> None:
    """A reply whose body outlives its first block is recorded with the body's outcome."""
    with recording:
        open_recording = recording.keep_open()
    assert rows.told() == []
    with pytest.raises(asyncio.CancelledError), open_recording:
        raise asyncio.CancelledError
    assert rows.told() == [(CLIENT_LEFT, "client_left")]


def test_only_the_first_block_of_what_goes_on_ends_it(
    recording: CompletionRecorder, rows: Rows
) -> None:
    """The owner closes such a reply in any case, also where its body has been written."""
    with recording:
        open_recording = recording.keep_open()
    with pytest.raises(GeneratorExit), open_recording:
        raise GeneratorExit
    with pytest.raises(asyncio.CancelledError), open_recording:
        raise asyncio.CancelledError
    assert rows.told() == [(CLIENT_LEFT, "client_left")]


def test_what_goes_on_may_end_first(recording: CompletionRecorder, rows: Rows) -> None:
    """Where the body ends before the block that began it, the block's end records the reply."""

    def answer() -> None:
        with recording:
            with recording.keep_open():
                pass
            assert rows.told() == []
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        answer()
    assert rows.told() == [(CLIENT_LEFT, "client_left")]
