"""The SSE reader: however the bytes arrive, the events are the same and no byte is lost."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.http.wire.sse import DONE, Event, EventReader, EventTooLargeError, data_of, event_bytes

LINES = [
    "data: a",
    "data:b",
    "data:  c",
    "data",
    "data: [DONE]",
    'data: {"content":"größer ✓ 🙂"}',
    "datax: no",
    ": comment",
    ":",
    "event: message",
    "id: 7",
    "retry: 10",
    "\ufeffdata: not at the start",
    "",
]
ENDS = ["\n", "\r\n", "\r"]

lines = st.tuples(st.sampled_from(LINES), st.sampled_from(ENDS)).map("".join)
streams = st.builds(
    lambda bom, body, tail: (bom + "".join(body) + tail).encode(),
    st.sampled_from(["", "\ufeff"]),
    st.lists(lines, max_size=20),
    st.sampled_from(["", "data: cut", "data: a\n", "\r"]),
)


def read(parts: list[bytes]) -> tuple[list[Event], bytes]:
    reader = EventReader()
    events = [event for part in parts for event in reader.feed(part)]
    return events, reader.rest()


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[start:end] for start, end in itertools.pairwise(edges)]


def told(events: list[Event]) -> list[str]:
    return [event.data for event in events if event.data is not None]


@given(streams, st.lists(st.integers(0, 10_000), max_size=12))
def test_any_split_gives_the_same_data_and_loses_no_byte(stream: bytes, places: list[int]) -> None:
    """Wherever the network cuts a stream, its data and all of its bytes are the same."""
    events, rest = read(cut(stream, places))
    assert b"".join(event.raw for event in events) + rest == stream
    assert told(events) == told(read([stream])[0])


@given(streams)
def test_byte_by_byte_is_the_same_as_at_once(stream: bytes) -> None:
    """Single bytes, which split characters and line ends, give the same events."""
    events, rest = read([bytes([byte]) for byte in stream])
    assert b"".join(event.raw for event in events) + rest == stream
    assert told(events) == told(read([stream])[0])


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5))
def test_noise_is_no_reason_to_fail(noise: bytes, places: list[int]) -> None:
    """Bytes that are no event stream are returned unchanged."""
    events, rest = read(cut(noise, places))
    assert b"".join(event.raw for event in events) + rest == noise


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data: a\n\n", ["a"]),
        (b"data: a\r\n\r\n", ["a"]),
        (b"data: a\r\r", ["a"]),
        (b"data: a\r\n\n", ["a"]),
        (b"data: a\n\r\ndata: b\r\r\n", ["a", "b"]),
        (b"data: a\ndata: b\n\n", ["a\nb"]),
        (b"data: a\ndata\ndata:\n\n", ["a\n\n"]),
        (b"data:a\n\ndata:  b\n\n", ["a", " b"]),
        (b"\xef\xbb\xbfdata: a\n\n", ["a"]),
        (b"data: a\n\n\xef\xbb\xbfdata: b\n\n", ["a"]),
        (b": ping\n\n: ping\n\ndata: a\n\n", ["a"]),
        (b"event: message\nid: 1\ndata: a\n\n", ["a"]),
        (b"Data: a\n\ndatas: b\n\n data: c\n\n", []),
        (b"\n\n\n\ndata: a\n\n", ["a"]),
        (b"data: a", []),
        (b"data: a\n", []),
        (b"", []),
    ],
)
def test_the_format_is_that_of_the_standard(stream: bytes, expected: list[str]) -> None:
    """Line ends, joined data lines, comments, other
    fields and the BOM are read as in WHATWG's standard.
    """
    assert told(read([stream])[0]) == expected


def test_a_split_character_is_whole_again() -> None:
    """A character whose bytes arrive separately is not replaced."""
    text = "data: 🙂\n\n".encode()
    assert told(read([text[:8], text[8:9], text[9:]])[0]) == ["🙂"]


def test_broken_utf8_keeps_its_bytes() -> None:
    """Bytes that are not UTF-8 are read as U+FFFD, and the event keeps its raw bytes."""
    (event,), rest = read([b"data: \xff\xfe\n\n"])
    assert (event.data, event.raw, rest) == ("\ufffd\ufffd", b"data: \xff\xfe\n\n", b"")


def test_a_comment_is_an_event_without_data() -> None:
    """A ping is an event without data, so nobody takes it for a chunk, but with bytes to relay."""
    (event,), _ = read([b": ping\n\n"])
    assert (event.data, event.raw) == (None, b": ping\n\n")


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r")))
def test_what_is_written_is_read(data: str) -> None:
    """`event_bytes` writes one event with the given data."""
    raw = event_bytes(data.encode())
    events, rest = read([raw])
    assert (told(events), rest) == ([data], b"")
    assert data_of(raw) == data


def test_done_is_the_official_end() -> None:
    """The last event of our streams is the line that official clients wait for."""
    assert event_bytes(DONE.encode()) == b"data: [DONE]\n\n"


def test_endless_event_is_abandoned() -> None:
    """An endless event is given up within bounded memory, and its bytes are kept for relaying."""
    reader = EventReader(max_event_bytes=100)
    assert reader.feed(b"data: " + b"x" * 90) == []
    with pytest.raises(EventTooLargeError, match="larger than 100 bytes"):
        reader.feed(b"y" * 10)
    assert reader.rest() == b"data: " + b"x" * 90 + b"y" * 10


def test_events_before_an_oversize_one_are_not_lost() -> None:
    """Complete events are returned even if the same bytes begin one that is too large."""
    reader = EventReader(max_event_bytes=100)
    first = reader.feed(b"data: a\n\ndata: " + b"x" * 200)
    assert told(first) == ["a"]
    with pytest.raises(EventTooLargeError):
        reader.feed(b"x")
    assert b"".join(event.raw for event in first) + reader.rest() == (
        b"data: a\n\ndata: " + b"x" * 201
    )


def test_the_limit_is_for_one_event_not_for_the_stream() -> None:
    """A long stream of small events never exceeds the limit."""
    reader = EventReader(max_event_bytes=100)
    events = [event for _ in range(100) for event in reader.feed(event_bytes(b"x" * 50))]
    assert told(events) == ["x" * 50] * 100
