"""The SSE reader compared with the standard's own words, on streams that nobody writes by hand.

`test_sse.py` has the examples and the first properties. Those here need a reference: the steps of
WHATWG HTML, 9.2.6, on the whole stream, without events, buffers or regexes.
"""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.http.wire.sse import Event, EventReader, EventTooLargeError, data_of

BOM = b"\xef\xbb\xbf"
ENDS = b"\r\n"
LIMIT = 64

ends = st.sampled_from([b"\n", b"\r\n", b"\r"])
names = st.sampled_from(
    [b"data", b"data", b"data", b"Data", b"datas", b"id", b"event", b"retry", b""]
)
colons = st.sampled_from([b": ", b":", b":  ", b"", b" :"])
pieces = st.sampled_from(
    [
        b"a",
        b"data: b",
        b"[DONE]",
        b"\x00",
        b"\xff\xfe",
        b"\xc3",  # half a character
        b"\xed\xa0\xbc",  # half a surrogate pair
        BOM,
        "größer ✓ 🍋".encode(),
        b"\xe2\x80\xa8\xc2\x85\x0b\x0c\x1c",  # line ends to Python, and to nobody else
        b'{"a":"\\ud83c\\udf4b"}',
        b" ",
        b"x" * 5_000,
    ]
)
values = st.lists(pieces, max_size=3).map(b"".join)
lines = st.one_of(st.tuples(names, colons, values).map(b"".join), st.just(b""), values)
streams = st.builds(
    lambda bom, body, tail: bom + b"".join(line + end for line, end in body) + tail,
    st.sampled_from([b"", b"", BOM, BOM + BOM]),
    st.lists(st.tuples(lines, ends), max_size=25),
    st.one_of(st.just(b""), lines),
)
places = st.lists(st.integers(0, 2**16), max_size=20)


def reference(stream: bytes) -> list[str]:
    """Return the data of every event as the standard reads it: decode, split into lines, process.

    It differs in one point, in which official clients agree: empty data is data too.
    """
    text = stream.decode("utf-8", errors="replace").removeprefix("\ufeff")
    *complete, _ = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    events: list[str] = []
    data: list[str] = []
    for line in complete:
        name, _, value = line.partition(":")
        if line == "":
            events += ["\n".join(data)] if data else []
            data = []
        elif name == "data":
            data.append(value[1:] if value[:1] == " " else value)
    return events


def read(stream: bytes, cuts: list[int] | None = None) -> tuple[list[Event], bytes]:
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts or ()), len(stream)]
    reader = EventReader()
    parts = (stream[start:end] for start, end in itertools.pairwise(edges))
    return [event for part in parts for event in reader.feed(part)], reader.rest()


def told(events: list[Event]) -> list[str]:
    return [event.data for event in events if event.data is not None]


@given(streams)
@example(b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n")
@example(b"data: a\n\ndata\n\r\n\r")
@example(b": data: a\n\nid\n\n")
def test_the_data_are_those_of_the_standard(stream: bytes) -> None:
    """The data of the events are what the standard's own steps give."""
    assert told(read(stream)[0]) == reference(stream)


@given(streams, places)
@example(b"data: a\r\r\ndata: b\r\n\r\n", [9, 10, 20])
@example(b"data: a\r\n\r\n\r\ndata: b\n\n", [8, 9, 10, 11, 12, 13])
def test_any_split_gives_the_same_data_in_order(stream: bytes, cuts: list[int]) -> None:
    """Cut anywhere, in characters, line ends and the byte order mark too, the events are the same.

    No byte is lost: the events' bytes and the rest are the stream.
    """
    events, rest = read(stream, cuts)
    assert told(events) == reference(stream)
    assert b"".join(event.raw for event in events) + rest == stream


@example(b"\n\r\n\n\n" + BOM + b"\ndata: a\r\n\r\n", [2])  # a LF, then what looks like a BOM
@given(streams, places)
def test_a_split_moves_no_byte_but_a_line_feed(stream: bytes, cuts: list[int]) -> None:
    """Events with data have the same bytes however they arrive, except for the LF of a cut CRLF.

    An event ends with its blank line's CR; only the next bytes would show
    whether a LF belongs to it, and a client is not kept waiting for them.
    """

    def bytes_of(events: list[Event]) -> list[bytes]:
        with_data = (event.raw for event in events if event.data is not None)
        return [raw.strip(ENDS).removeprefix(BOM).strip(ENDS) for raw in with_data]

    assert bytes_of(read(stream, cuts)[0]) == bytes_of(read(stream)[0])


@given(streams, places)
def test_an_event_says_the_same_alone(stream: bytes, cuts: list[int]) -> None:
    """An event's own bytes give its data when they are read again."""
    for number, event in enumerate(read(stream, cuts)[0]):
        raw = event.raw.removeprefix(BOM) if number == 0 else event.raw
        assert data_of(raw) == event.data


@given(streams, places)
def test_an_event_comes_as_soon_as_its_blank_line(stream: bytes, cuts: list[int]) -> None:
    """After every byte, the reader has returned all events that the standard would have."""
    reader, events = EventReader(), []
    step = max(1, len(stream) // 400)  # every byte of all but the longest streams
    for start in range(0, len(stream), step):
        part = stream[start : start + step]
        events += told(reader.feed(part))
        so_far = reference(stream[: start + len(part)])
        assert events == so_far


@given(st.lists(st.integers(0, LIMIT - 8), max_size=8), st.integers(1, 3 * LIMIT), places)
def test_the_limit_loses_no_byte(sizes: list[int], excess: int, cuts: list[int]) -> None:
    """Where an event is too large, all earlier ones are returned, and the rest is kept."""
    small = b"".join(b"data:%b\n\n" % (b"x" * size) for size in sizes)
    stream = small + b"data:" + b"y" * (LIMIT + excess)
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    reader, raw = EventReader(max_event_bytes=LIMIT), b""
    for at, (start, end) in enumerate(itertools.pairwise(edges)):
        try:
            raw += b"".join(event.raw for event in reader.feed(stream[start:end]))
        except EventTooLargeError:
            raw += reader.rest() + stream[edges[at + 1] :]
            break
    else:
        raw += reader.rest()
    assert raw == stream


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_huge_event_in_small_parts_is_one_event(end: str) -> None:
    """A field of megabytes that arrives in a thousand pieces is one event with all of its data."""
    stream = b"data: " + b"x" * 2**22 + end.encode() * 2
    reader = EventReader()
    parts = (stream[at : at + 4_096] for at in range(0, len(stream), 4_096))
    [event] = [event for part in parts for event in reader.feed(part)]
    assert event.data == "x" * 2**22
