"""Text taken out of many events at once is the text that each of them adds."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.formats import CHAT
from proxy.formats.events.merging import Pieces
from proxy.formats.events.uniform_events import alike, parted
from proxy.wire.json_splice import dumps
from proxy.wire.sse import EventReader, event_bytes

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


@settings(max_examples=300)
@given(EVENTS, st.integers(1, 5), st.booleans())
def test_the_completion_is_the_same(events: list[bytes], at_once: int, is_known: bool) -> None:
    """However many events arrive at once, alike or not, they give what each alone would."""
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
    """Alike events are taken up to the last one; what comes after them is not."""
    assembler = CHAT.assembler()
    assert assembler.add_unmarked(BEGIN + chunk({"content": "a"})) == b""
    text, end = chunk({"content": "b"}) + chunk({"content": '"c"'}), event_bytes(b"[DONE]")
    assert assembler.take_alike(text + end) == len(text)
    assert assembler.choices()[0].message["content"] == 'ab"c"'
    assert assembler.take_alike(end) == 0


def test_an_event_that_only_looks_alike_is_not_taken() -> None:
    """An event between the same bytes that is not one string adds nothing here."""
    event = chunk({"content": "x"})
    pieces = Pieces()
    known = alike(event, pieces)
    assert known is not None
    split = event.replace(b'"x"', b'"x","vendor":"y"')
    assert known.take(split) == 0
    assert known.take(event + split + event) == 0
    assert pieces == []


def test_text_that_stands_twice_tells_nothing() -> None:
    """Where two members are called `content`, no event says which bytes are the text."""
    assert alike(chunk({"content": "x"}, vendor={"content": "y"}), Pieces()) is None


def test_parted_events() -> None:
    """The first events are parted from the others at their blank line."""
    assert parted(b"a\n\nb\n\nc\n\n", 2) == (b"a\n\nb\n\n", b"c\n\n")
    assert parted(b"a\n\n", 3) == (b"a\n\n", b"")
