"""Which requests belong to one conversation, on every surface."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.exchange.request import CompletionRequest
from proxy.formats import CHAT, COMPLETIONS, MESSAGES, RESPONSES, Format
from proxy.holds.openings import SHARED_BY, Openings

Json = dict[str, Any]


def said(text: Any, role: str = "user") -> Json:
    return {"role": role, "content": text}


def request(payload: Json, format: Format = CHAT) -> CompletionRequest:
    return CompletionRequest(format, b"", payload, "m", is_stream=False)


def chat(*messages: Json, **more: Any) -> CompletionRequest:
    return request({"messages": [*messages], **more})


def same(*requests: CompletionRequest) -> bool:
    openings = Openings()
    return len({openings.conversation_of(each) for each in requests}) == 1


FIRST, SECOND, REPLY = said("where is Oslo?"), said("and Bergen?"), said("in Norway", "assistant")
TOOL = {"role": "tool", "tool_call_id": "a", "content": "found"}


@pytest.mark.parametrize(
    "other",
    [
        chat(FIRST),
        chat(FIRST, temperature=0.2, model="another"),
        chat(FIRST, REPLY, SECOND),
        chat(FIRST, said(None, "assistant"), TOOL),
        chat(said("It is 10:42.", "system"), FIRST, REPLY, SECOND),
        chat(said(" where is Oslo?\n")),
    ],
)
def test_turns_steps_and_retries_belong_together(other: CompletionRequest) -> None:
    assert same(chat(FIRST), other)


@pytest.mark.parametrize(
    "other",
    [
        chat(SECOND),
        chat(FIRST, user="ada"),
        chat(FIRST, safety_identifier="ada"),
        chat(FIRST, metadata={"user_id": "ada"}),
        chat(said([{"type": "image_url", "image_url": {"url": "data:,x"}}])),
        chat(said("x" * 100_000)),
    ],
)
def test_other_openings_and_other_users_do_not(other: CompletionRequest) -> None:
    assert not same(chat(FIRST), other)


def test_long_texts_differ_by_their_ends_and_length() -> None:
    assert not same(chat(said("x" * 100_000)), chat(said("x" * 100_001)))
    assert same(chat(said("x" * 100_000)), chat(said("x" * 100_000), REPLY, SECOND))


def test_results_of_tools_are_no_turns_on_messages() -> None:
    """On `/v1/messages`, results of tools in a user's message are no turns of the user."""
    call = said([{"type": "tool_use", "id": "a", "name": "f", "input": {}}], "assistant")
    result = said([{"type": "tool_result", "tool_use_id": "a", "content": "found"}])
    before = request({"messages": [FIRST]}, MESSAGES)
    assert same(before, request({"messages": [FIRST, call, result]}, MESSAGES))


def test_responses_go_by_their_input_or_upstreams_conversation() -> None:
    """A response's conversation is upstream's if it names one, otherwise its first input."""
    text, item = {"input": "where is Oslo?"}, {"input": [FIRST]}
    assert same(request(text, RESPONSES), request(item, RESPONSES))
    named = [{"input": text, "conversation": "conv_1"} for text in ("a", "b")]
    assert same(*(request(each, RESPONSES) for each in named))
    assert same(
        request(named[0], RESPONSES),
        request({"input": "c", "conversation": {"id": "conv_1"}}, RESPONSES),
    )


def test_prompts_are_conversations_of_one_turn() -> None:
    one, other = ({"prompt": text} for text in ("a", "b"))
    assert same(request(one, COMPLETIONS), request(one, COMPLETIONS))
    assert not same(request(one, COMPLETIONS), request(other, COMPLETIONS))


@pytest.mark.parametrize("payload", [{}, {"messages": 7}, {"messages": [7, {"role": "user"}]}])
def test_what_is_no_conversation_has_a_digest_too(payload: Json) -> None:
    """Input that is no conversation has a digest too."""
    assert len(Openings().conversation_of(request(payload))) == 16


def test_requests_with_the_same_examples_are_separated() -> None:
    """Conversations that begin with the same examples are separate after the first few."""
    openings, examples = Openings(), [said("1 + 1?"), said("2", "assistant")]
    for n in range(SHARED_BY):
        openings.conversation_of(chat(*examples, said(f"{n} + 3?")))
    first, other = (
        openings.conversation_of(chat(*examples, said(text))) for text in ("4 + 4?", "5 + 5?")
    )
    later = openings.conversation_of(chat(*examples, said("4 + 4?"), REPLY, SECOND))
    assert (first != other, later == first) == (True, True)


def test_a_chat_is_one_conversation_where_only_some_turns_are_seen() -> None:
    """A worker that sees only some turns of a chat counts one conversation."""
    messages, openings, found = [FIRST], Openings(), set()
    for turn in range(12):
        messages += [REPLY, said(f"turn {turn}")]
        if turn % 2:
            found.add(openings.conversation_of(chat(*messages)))
    assert found == {Openings().conversation_of(chat(FIRST))}


def test_system_message_texts_separate_conversations() -> None:
    """Texts in a system message separate conversations after the first few; a time does not."""
    openings = Openings()
    texts = [f"text about {word}" for word in ("a", "b", "c", "d", "e", "f", "g")]
    found = [openings.conversation_of(chat(said(t, "system"), FIRST)) for t in texts]
    assert len(set(found[SHARED_BY - 1 :])) == len(texts) - SHARED_BY + 1
    clock = Openings()
    timed = [chat(said(f"It is 10:{n}.", "system"), FIRST) for n in range(20)]
    assert len({clock.conversation_of(each) for each in timed}) == 1


def test_what_is_known_is_bounded() -> None:
    openings = Openings(most=3)
    for n in range(10):
        openings.conversation_of(chat(said(f"question {n}")))
    assert len(openings._known) == 3
