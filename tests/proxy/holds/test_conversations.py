"""What the proxy remembers of responses, for the key that asked and within bounds."""

from __future__ import annotations

from typing import Any

from proxy.exchange.request import CompletionRequest
from proxy.formats import RESPONSES
from proxy.holds.conversations import Conversations


def asked(text: str = "Hi", **fields: Any) -> CompletionRequest:
    payload = {"model": "m", "input": text, **fields}
    return CompletionRequest(RESPONSES, b"", payload, "m", is_stream=False)


def response(id: str) -> dict[str, Any]:
    text = {"type": "output_text", "text": "Hello"}
    return {"id": id, "output": [{"type": "message", "role": "assistant", "content": [text]}]}


def test_a_request_is_remembered_for_its_key() -> None:
    """The key that asked finds the request and its upstream, and no other key does."""
    conversations = Conversations()
    conversations.keep(asked(tools=[]), response("resp_1"), "mine", "openai")
    kept = conversations.get("resp_1", "mine")
    assert kept is not None
    assert (kept.upstream, kept.model) == ("openai", "m")
    assert kept.request().question().text == "Hi"
    assert conversations.get("resp_1", "theirs") is None


def test_memory_is_bounded_by_count_and_size() -> None:
    """The oldest responses are forgotten first, and one that is too large is not kept."""
    few = Conversations(max_responses=2)
    small = Conversations(max_bytes=1_000)
    for number in range(9):
        few.keep(asked(), response(f"resp_{number}"), "k", "u")
        small.keep(asked("x" * 300), response(f"resp_{number}"), "k", "u")
    assert len(few) == 2
    assert few.get("resp_8", "k") is not None
    assert 0 < len(small) < 4
    small.keep(asked("x" * 2_000), response("resp_huge"), "k", "u")
    assert len(small) == 0


def test_a_response_kept_twice_counts_once() -> None:
    """A background response that is fetched often takes the room of one."""
    conversations = Conversations(max_bytes=1_000)
    for _ in range(50):
        conversations.keep(asked("x" * 300), response("resp_1"), "k", "u")
    conversations.keep(asked("x" * 300), response("resp_2"), "k", "u")
    assert len(conversations) == 2


def test_what_is_elsewhere_stays_unknown() -> None:
    """A conversation that began in upstream's store stays unknown, and never has a score."""
    conversations = Conversations()
    conversations.keep(asked(conversation="conv_1"), response("resp_1"), "k", "u")
    resumed = conversations.add_earlier_text(asked(previous_response_id="resp_1"), "k")
    assert resumed.payload["conversation"] == "conv_1"
    assert "previous_response_id" not in resumed.payload


def test_held_ids_are_found_and_bounded() -> None:
    """A held response is found by upstream's id and its key, within bounds."""
    conversations = Conversations(max_responses=2)
    for number in range(3):
        conversations.note_held(f"resp_{number}", "k", f"resp_held_{number}")
    conversations.note_held(None, "k", "resp_held_x")
    assert conversations.held_id("resp_2", "k") == "resp_held_2"
    assert conversations.held_id("resp_2", "other") is None
    assert conversations.held_id("resp_0", "k") is None
