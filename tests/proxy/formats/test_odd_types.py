"""Members of another type than the API's are skipped: no reply makes the proxy fail.

Each of these was found by `scripts/fuzz streams` or `scripts/fuzz bodies`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from proxy.formats.events.called import tool_calls
from tests.builders.undecided_replies import events_of, stream, written
from tests.running.live_proxy import LiveProxy
from tests.servers.faulty_upstream import EVENTS, JSON, Response
from tests.servers.undecided import ANSWERS, HOLD_ALL, PATHS, AnyUpstream, asking, holding

Json = dict[str, Any]
ODD: tuple[Any, ...] = (1, 1.5, True, "m", "é" * 9, [], ["x"], [1], {"": None}, [[]], [{"a": 1}])
CHUNK: Json = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}


def chat(*deltas: Json) -> Response:
    events = [
        json.dumps({**CHUNK, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        for delta in deltas
    ]
    finish = json.dumps({**CHUNK, "choices": [{"index": 0, "finish_reason": "stop"}]})
    return stream([f"data: {each}\n\n".encode() for each in (*events, finish, "[DONE]")])


def completions(*texts: Any) -> Response:
    choices = [{"index": 0, "text": text, "finish_reason": None} for text in texts]
    choices.append({"index": 0, "text": "", "finish_reason": "stop"})
    events = [json.dumps({**CHUNK, "choices": [choice]}) for choice in choices]
    return stream([f"data: {each}\n\n".encode() for each in (*events, "[DONE]")])


def messages(**members: Any) -> Response:
    """Return a message's stream whose first event has these members."""
    events = events_of("messages", calls=False)
    begun = json.loads(events[0][1])
    begun["message"] |= members
    return stream(written([("message_start", json.dumps(begun).encode()), *events[1:]]))


def responses(**members: Any) -> Response:
    events = events_of("responses", calls=True)
    done = json.loads(events[-1][1])
    done["response"] |= members
    return stream(written([*events[:-1], ("response.completed", json.dumps(done).encode())]))


def replies() -> Iterator[tuple[str, Response]]:
    for odd in ODD:
        yield "chat", chat({"content": "a"}, {"content": odd})
        yield "chat", chat({"tool_calls": odd})
        yield "chat", chat({"tool_calls": [{"index": 0, "function": odd}]})
        yield "chat", chat({"tool_calls": [{"index": 0, "id": odd, "function": {"name": odd}}]})
        yield "chat", whole("chat", choices=[{"index": odd, "message": {"content": odd}}])
        yield "chat", whole("chat", choices=[{"message": {"content": [odd]}}])
        yield "completions", completions("a", odd)
        yield "completions", whole("completions", choices=[{"index": odd, "text": odd}])
        yield "messages", messages(usage=odd)
        yield "messages", messages(content=odd, stop_reason=odd, model=odd)
        yield "messages", whole("messages", content=odd, stop_reason=odd)
        yield "messages", whole("messages", content=[{"type": odd, "text": odd}])
        yield "responses", responses(output=odd)
        yield "responses", responses(status=odd, incomplete_details=odd)
        yield "responses", whole("responses", output=[{"type": odd, "content": odd}])
        yield "responses", whole("responses", output=[{"type": "message", "content": [odd]}])


def whole(surface: str, **members: Any) -> Response:
    return Response([json.dumps({**ANSWERS[surface], **members}).encode()], headers=JSON)


@pytest.fixture(scope="module")
def upstream() -> Iterator[AnyUpstream]:
    with AnyUpstream() as upstream:
        yield upstream


@pytest.mark.parametrize("policy", ["watch", "hold"])
def test_no_reply_makes_the_proxy_fail(
    upstream: AnyUpstream, tmp_path_factory: pytest.TempPathFactory, policy: str
) -> None:
    """No reply of any format, whole or streamed, gives an internal error or a failing scorer."""
    watching = "version: 1\nname: w\nmode: shadow\nrules: []\ndefault: deliver\n"
    failed, tried = [], 0
    with holding(upstream, tmp_path_factory, HOLD_ALL if policy == "hold" else watching) as proxy:
        for surface, upstream.answer in replies():
            is_stream = (EVENTS[0] in upstream.answer.headers) or tried % 2 == 0
            got = asked(proxy, surface, is_stream=is_stream)
            tried += 1
            if any(word in got for word in (b"internal_error", b"scorer_failed")):
                failed.append((surface, upstream.answer.steps))
    print(f"{tried} tried, {len(failed)} failed")
    assert failed == []


def asked(proxy: LiveProxy, surface: str, *, is_stream: bool) -> bytes:
    fields = {"content-type": "application/json"}
    body = asking(surface, stream=is_stream)
    got = proxy.http.post(PATHS[surface], content=body, headers=fields)
    return repr(got.headers.raw).encode() + got.content


def test_calls_in_a_member_that_nobody_knows_are_each_read() -> None:
    """A call in an unknown member is read, alone or in a list."""
    call = {"type": "function_call", "name": "a", "arguments": "{}"}
    for invented, names in ((call, ["a"]), ([call, {**call, "name": "b"}], ["a", "b"])):
        found = tool_calls({"content": "x", "invented": invented})
        assert [each.name for each in found] == names
