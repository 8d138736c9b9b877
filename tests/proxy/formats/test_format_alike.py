"""Text taken out of many events at once is the text that the events add one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.formats import CHAT
from proxy.formats.events.merging import Pieces, alike, split_events
from proxy.formats.events.readings import is_event_ambiguous
from proxy.http.wire.json_splice import dumps
from proxy.http.wire.sse import Event, EventReader, event_bytes

HEAD = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}


def chunk(delta: dict[str, Any], index: int = 0, **more: Any) -> bytes:
    choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
    return event_bytes(dumps({**HEAD, "choices": [choice], **more}))


BEGIN = chunk({"role": "assistant", "content": ""})
TEXTS = st.text(max_size=8) | st.sampled_from(
    ['"', "\\", '","', '"}}]}', '\\"content\\":\\"', "\n"]
)
ODD = st.sampled_from(
    [
        chunk({"reasoning_content": "hm"}),
        chunk({"content": "b"}, index=1),
        chunk({"content": "v"}, vendor=1),
        chunk({"content": None}),
        chunk({"content": "u"}, usage={"prompt_tokens": 1}),
        chunk({}),
        b": a comment\n\n",
        b'data: {"choices": [{"index": 0, "delta": {"content": "spelled"}}]}\n\n',
        b"data: no JSON\n\n",
    ]
)
EVENTS = st.lists(TEXTS.map(lambda text: chunk({"content": text})) | ODD, max_size=12)


@given(EVENTS, st.integers(1, 5), st.booleans())
def test_the_completion_is_the_same(events: list[bytes], at_once: int, is_known: bool) -> None:
    """Many events at once, alike or not, give what each alone would."""
    singly, together = CHAT.assembler(), CHAT.assembler()
    stream = [BEGIN, *events]
    for event in EventReader().feed(b"".join(stream)):
        singly.add(event)
    for start in range(0, len(stream), at_once):
        raw = b"".join(stream[start : start + at_once])
        if is_known:
            raw = raw[together.take_alike(raw) :]
        for event in EventReader().split(together.add_unmarked(raw) if raw else b""):
            together.add(event)
    assert together.completion() == singly.completion()


def test_what_follows_text_is_left() -> None:
    """Alike events are taken up to the last one, and nothing after it."""
    assembler = CHAT.assembler()
    assert assembler.add_unmarked(BEGIN + chunk({"content": "a"})) == b""
    text, end = chunk({"content": "b"}) + chunk({"content": '"c"'}), event_bytes(b"[DONE]")
    assert assembler.take_alike(text + end) == len(text)
    assert assembler.choices()[0].message["content"] == 'ab"c"'
    assert assembler.take_alike(end) == 0


def test_an_event_that_only_looks_alike_is_not_taken() -> None:
    """An event with the same beginning and end that is not one string is not taken."""
    event = chunk({"content": "x"})
    pieces = Pieces()
    known = alike(event, pieces)
    assert known is not None
    split = event.replace(b'"x"', b'"x","vendor":"y"')
    assert known.take(split) == 0
    assert known.take(event + split + event) == 0
    assert known.take(event + b": a comment\n\n" + event) == 0
    assert known.take(known.before + b"a\n\nb" + known.after) == 0
    assert known.take(known.before + b"a\nb" + known.after) == 0
    assert known.take(event + b"id: 1\n" + event + event) == 0  # one of two lines
    assert known.take(event + b"\n" + event) == 0
    assert known.take(known.before[:-1] + known.after) == 0  # one quote for both of them
    assert pieces == []


def test_duplicate_content_is_not_located() -> None:
    """An event with two members `content` does not show which bytes are the text."""
    assert alike(chunk({"content": "x"}, vendor={"content": "y"}), Pieces()) is None


def test_parted_events() -> None:
    """Events are split at the blank line after the given number."""
    assert split_events(b"a\n\nb\n\nc\n\n", 2) == (b"a\n\nb\n\n", b"c\n\n")
    assert split_events(b"a\n\n", 3) == (b"a\n\n", b"")


TEXT = chunk({"content": "secret"})
AMBIGUOUS = (
    TEXT.replace(b'"index":0', b'"index":0,"index":1'),
    TEXT.replace(b'"content":', b'"content":"open","content":'),
    TEXT.replace(b'"delta":', b'"delta":{"content":"open"},"delta":'),
    TEXT.replace(b'"model":"m"', b'"model":"m","Choices":[]'),
    TEXT.replace(b'"content":', b'"Content":"open","content":'),
    TEXT.replace(b'"content":', b'"content":"open","\\u0063ontent":'),
)


@given(
    st.lists(
        TEXTS.map(lambda text: chunk({"content": text})) | ODD | st.sampled_from(AMBIGUOUS),
        max_size=12,
    )
)
def test_a_strict_reading_finds_what_each_event_says_by_itself(events: list[bytes]) -> None:
    """A strict reading takes text by its likeness too, and takes
    no event for clear that readers could read in two ways.
    """
    plain, strict = CHAT.assembler(), CHAT.assembler()
    strict.reading.is_strict = True
    for event in EventReader().feed(b"".join([BEGIN, *events])):
        assert strict.add(event) == plain.add(event)
        assert strict.reading.is_ambiguous(event) is is_event_ambiguous(event)
    assert strict.completion() == plain.completion()


def strict_after(*events: bytes) -> Any:
    """Return a strict assembler that has read these events."""
    assembler = CHAT.assembler()
    assembler.reading.is_strict = True
    for event in EventReader().feed(b"".join(events)):
        assembler.add(event)
    return assembler


@pytest.mark.parametrize("event", AMBIGUOUS)
def test_what_is_ambiguous_teaches_nothing(event: bytes) -> None:
    """An event like an ambiguous one is ambiguous as well."""
    assembler = strict_after(BEGIN, event)
    (again,) = EventReader().feed(event)
    assembler.add(again)
    assert assembler.reading.is_ambiguous(again)


@pytest.mark.parametrize(
    "text", [b"\x01", b"\x1f", b'"', b"\\", b"\xff", b'"},"more":{"content":"x', b"\t"]
)
def test_text_that_is_no_plain_string_is_parsed(text: bytes) -> None:
    """Bytes between the same beginning and end that are no plain string are parsed."""
    assembler = strict_after(BEGIN, chunk({"content": "a"}), chunk({"content": "b"}))
    raw = TEXT.replace(b"secret", text)
    event = Event(raw, raw[6:-2].decode(errors="replace"))
    before = strict_after(BEGIN).add(event)
    assert assembler.add(event) == before
    assert assembler.reading.is_ambiguous(event) is is_event_ambiguous(event)


def test_bytes_that_overlap_are_not_alike() -> None:
    """An event in which beginning and end share one byte is not alike."""
    known = alike(TEXT, Pieces())
    assert known is not None
    assert known.add(TEXT)
    assert not known.add(known.before[:-1] + known.after)
    assert known.pieces == ["secret"]
