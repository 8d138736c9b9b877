"""A fuzzer of requests and whole replies of the four formats, through real proxies.

A finding is an internal error, a scorer that fails, or an answer that passes a policy.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.builders.undecided_replies import calling
from tests.fuzz.fuzzing import Case
from tests.fuzz.mutations import changed, dumped, spoilt
from tests.fuzz.proxied import POLICIES, Rig, check, rig
from tests.servers.faulty_upstream import ENCODERS, JSON, Response
from tests.servers.undecided import ANSWERS, PATHS, REQUESTS

TOOL: dict[str, Any] = {"name": "tell", "parameters": {"type": "object"}}
MORE: dict[str, dict[str, Any]] = {
    "chat": {
        "tools": [{"type": "function", "function": TOOL}],
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url"}]},
            {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "tell"}}]},
            {"role": "tool", "tool_call_id": "c", "content": "y"},
        ],
        "n": 2,
    },
    "completions": {"prompt": ["a", "b"], "echo": False, "suffix": None},
    "responses": {
        "instructions": "i",
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]},
            {"type": "function_call", "call_id": "c", "name": "tell", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "y"},
            {"type": "reasoning", "summary": []},
        ],
        "tools": [{"type": "function", **TOOL}],
        "previous_response_id": "resp_0",
    },
    "messages": {
        "system": [{"type": "text", "text": "s"}],
        "tools": [{"name": "tell", "input_schema": {}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image"}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "tell"}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]},
        ],
    },
}


@contextmanager
def cases() -> Iterator[Case]:
    with rig() as found:
        yield lambda chance: _case(chance, found)


def _case(chance: random.Random, rig: Rig) -> str:
    surface, policy = chance.choice([*PATHS]), chance.choice([*POLICIES])
    calls = chance.random() < 0.6 and surface != "completions"
    answer = calling(surface)[0][1] if calls else ANSWERS[surface]
    reply = _body(chance, answer, 0.6)
    encoding = chance.choice((None, None, None, *ENCODERS))
    headers = (*JSON, ("Content-Encoding", encoding)) if encoding else JSON
    packed = ENCODERS[encoding](reply) if encoding else reply
    if encoding and chance.random() < 0.1:
        packed = spoilt(chance, packed)
    status = chance.choice((200, 200, 200, 201, 206, 226))  # an error is no answer
    rig.upstream.answer = Response([packed], status=status, headers=headers)
    request = {**REQUESTS[surface], **(MORE[surface] if chance.random() < 0.7 else {})}
    request_body = _body(chance, request, 0.6)
    got_status, got = rig.ask(policy, surface, request_body)
    try:
        return f"{check(policy, got, calls)} ({got_status})"
    except AssertionError as error:
        exchange = f"{surface}\nrequest {request_body!r}\nupstream {status} {reply!r}"
        raise AssertionError(f"{error}\n{exchange}") from error


def _body(chance: random.Random, value: Any, often: float) -> bytes:
    if chance.random() < often:
        value = changed(chance, value)
    body = dumped(chance, value) if chance.random() < 0.5 else json.dumps(value).encode()
    return spoilt(chance, body) if chance.random() < 0.1 else body
