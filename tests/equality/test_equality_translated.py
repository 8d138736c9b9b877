"""What a client gets through `via: litellm` equals what upstream said, as far as translation can.

Where upstream speaks OpenAI's format, as here, litellm only writes the request: the body of an
answer, whole or streamed, live and buffered, arrives byte for byte. Kept, too: status, message,
type, param and code of an error, and the header fields by which clients retry; on the way there,
the fields of the body and the client's key.

Lost, each with its test:

    white space and number lexemes of a request             test_requests_are_rewritten
    what follows an error in a stream                       test_an_error_ends_a_stream
    other header fields of a reply                          test_other_header_fields_are_lost
    other members of an error, and bodies that are no JSON  test_an_error_keeps_its_envelope_only
    the client's own header fields and its query string     test_the_clients_head_stays_here
    fields of a request that litellm does not know          test_unknown_fields_are_refused
    every other surface                                     test_other_surfaces_are_refused

Of an upstream that speaks another format there is only what litellm makes of it; what that loses
is in `test_translated_replies.py`.
"""

from __future__ import annotations

import ast
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.equality.equality_cases import (
    ANSWERS,
    CHAT,
    COMPLETIONS,
    DELIVERS,
    TEXT,
    Case,
    post,
    replied,
    without_members,
)
from tests.equality.equality_facts import chunks_in, of_stream
from tests.equality.equality_streams import PLAIN, STREAMED, STREAMS, streamed
from tests.equality.equality_surfaces import FAILURES, STATUSES, SURFACES
from tests.equality.recording import Message, RecordingUpstream, Reply, Sent, ask
from tests.running.live_proxy import LiveProxy

# Pydantic warns of the fields of vendors that litellm puts there; aiohttp of large bodies.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning"),
    pytest.mark.filterwarnings("ignore::pydantic.PydanticDeprecatedSince211"),
    pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning"),
]

Json = dict[str, Any]

QUESTION = post(b'{"model":"org/m:free","messages":[{"role":"user","content":"caf\\u00e9"}]}')
STREAM_QUESTION = post(
    QUESTION.body[:-1] + b',"stream":true,"stream_options":{"include_usage":true}}'
)
RETRY = ("retry-after", "retry-after-ms", "x-should-retry", "x-request-id")
BY_NAME = {case.name: case for case in (*COMPLETIONS, *STREAMED, *SURFACES)}


@dataclass
class Rig:
    """A recording upstream, and proxies that translate requests and replies."""

    upstream: RecordingUpstream
    proxies: dict[str, LiveProxy]

    def got(self, sent: Sent, reply: Reply, mode: str = "live") -> tuple[Message, Message]:
        """Return the reply through the proxy, and the one request that the upstream received."""
        self.upstream.reply = reply
        self.upstream.take()
        got = ask(self.proxies[mode].port, sent)
        [request] = self.upstream.take()
        return got, request


@pytest.fixture(scope="module", autouse=True)
def one_parser_at_a_time() -> Iterator[None]:
    """Let one thread at a time parse source: CPython 3.11 cannot do it on two (gh-106905).

    litellm's threads write tracebacks, and so does pytest for tests that are known to fail. Both
    parse source for it.
    """
    parse, lock = ast.parse, threading.RLock()

    def parse_alone(*args: Any, **options: Any) -> Any:
        with lock:
            return parse(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ast, "parse", parse_alone)
        yield


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    bare: Json = {"attach": {"body": False}}
    modes: dict[str, Json] = {"live": bare, "buffered": bare | {"policy": DELIVERS}, "attached": {}}
    models = ({"match": "*", "upstream": "faulty"},)
    with RecordingUpstream() as upstream:
        proxies = {
            mode: LiveProxy(
                upstream.base_url,
                tmp_path_factory.mktemp(mode),
                models=models,
                upstream={"via": "litellm"},
                **sections,
            )
            for mode, sections in modes.items()
        }
        yield Rig(upstream, proxies)
        for proxy in proxies.values():
            proxy.stop()


# Answers


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_upstreams(rig: Rig, name: str) -> None:
    """The client gets the bytes of upstream's answer."""
    got, _ = rig.got(QUESTION, replied(ANSWERS[name]))
    assert (got.status, got.body) == (200, ANSWERS[name])


ARRIVING = ["gzip-not-asked-for", "br-not-asked-for", "chunked", "until-close"]


@pytest.mark.parametrize("name", ARRIVING)
def test_however_an_answer_arrives_it_is_the_same(rig: Rig, name: str) -> None:
    """Encodings, framings and boundaries within characters make no difference."""
    case = BY_NAME[name]
    got, _ = rig.got(QUESTION, case.reply)
    assert got.body == (case.plain or case.reply.body)


def test_no_usage_is_made_up(rig: Rig) -> None:
    """If upstream sends no usage, the proxy sends none."""
    answer = b'{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[%b]}'
    choice = b'{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}'
    got, _ = rig.got(QUESTION, replied(answer % choice))
    assert "usage" not in json.loads(got.body)


def test_no_empty_places_are_added(rig: Rig) -> None:
    """A choice has only the members of OpenAI's format and those that upstream put there."""
    got, _ = rig.got(QUESTION, replied(TEXT))
    [choice] = json.loads(got.body)["choices"]
    assert set(choice) == {"index", "message", "logprobs", "finish_reason"}


NO_ANSWERS = {
    "text": b"so sorry",
    "half": TEXT[:-30],
    "empty": b"",
    "list": b"[1]",
    "other": b'{"object":"list"}',
    "error": b'{"error":{"message":"so sorry"}}',
}


@pytest.mark.parametrize("name", NO_ANSWERS)
def test_what_is_no_answer_is_502(rig: Rig, name: str) -> None:
    """A 200 that is no completion is an error of the proxy's, without any of litellm's text."""
    got, _ = rig.got(QUESTION, replied(NO_ANSWERS[name]))
    error = json.loads(got.body)["error"]
    assert (got.status, got.header(b"x-pinocchio-error")) == (502, b"true")
    assert error["code"] == "translation_failed"
    words = ": so sorry" if name == "error" else "is no completion"
    assert error["message"].endswith(words)


@pytest.mark.parametrize("sent", [QUESTION, STREAM_QUESTION], ids=["json", "stream"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(rig: Rig, sent: Sent, status: int) -> None:
    """A redirect is not followed, since upstreams come from the configuration: it is an error."""
    reply = Reply((b"moved",), status, ((b"Location", b"/v1/chat/elsewhere"),))
    got, request = rig.got(sent, reply)
    assert request.target == CHAT.encode()
    assert (got.status, got.header(b"x-pinocchio-error")) == (502, b"true")
    assert str(status) in json.loads(got.body)["error"]["message"]


# Streams

# A stream that breaks off or holds nothing is no answer.
IN_ERROR = {"error-event", "error-event-first", "nothing-but-comments", "nothing-at-all"}
# Policies cannot judge these, whatever upstream sends them.
NOT_JUDGED = {"error-event-after-finish", "no-finish-but-done", "nothing-but-done"}


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        *((name, "live") for name in sorted(STREAMS.keys() - IN_ERROR)),
        *((name, "buffered") for name in sorted(STREAMS.keys() - IN_ERROR - NOT_JUDGED)),
    ],
)
def test_a_stream_is_upstreams(rig: Rig, name: str, mode: str) -> None:
    """The client gets the bytes of upstream's stream, live and buffered."""
    case = BY_NAME[f"stream-{name}"]
    got, _ = rig.got(STREAM_QUESTION, case.reply, mode)
    assert (got.status, got.body) == (200, case.reply.body)


@pytest.mark.parametrize("name", ["stream-nothing-at-all", "stream-nothing-but-comments"])
def test_what_is_no_stream_is_502(rig: Rig, name: str) -> None:
    """A stream without a chunk is an error of the proxy's, marked as its own."""
    got, _ = rig.got(STREAM_QUESTION, BY_NAME[name].reply)
    assert (got.status, got.header(b"x-pinocchio-error")) == (502, b"true")


@pytest.mark.parametrize("name", ["stream-error-event", "stream-error-event-first"])
def test_an_error_in_a_stream_keeps_its_words(rig: Rig, name: str) -> None:
    """An error event of upstream's reaches the client unchanged, without [DONE]."""
    got, _ = rig.got(STREAM_QUESTION, BY_NAME[name].reply)
    assert b"[DONE]" not in got.body
    assert BY_NAME[name].reply.body.startswith(got.body)
    assert b'"oops"' in got.body


@pytest.mark.parametrize("is_stream", [False, True], ids=["json", "stream"])
def test_the_member_is_all_that_attaching_adds(rig: Rig, is_stream: bool) -> None:
    """With the member attached, the translated body differs only by one `pinocchio` member."""
    sent, reply = (STREAM_QUESTION, streamed(PLAIN)) if is_stream else (QUESTION, replied(TEXT))
    bare, _ = rig.got(sent, reply)
    got, _ = rig.got(sent, reply, "attached")
    body, count = without_members(got.body)
    assert count == 1
    if is_stream:
        assert of_stream(chunks_in(body)) == of_stream(chunks_in(bare.body))
    else:
        assert body == bare.body


# Errors


@pytest.mark.parametrize("status", [*STATUSES, *FAILURES])
@pytest.mark.parametrize("kind", ["json", "html", "empty"])
def test_an_error_keeps_its_status_and_limits(rig: Rig, status: int, kind: str) -> None:
    """Status and the header fields by which clients retry are upstream's, after one call."""
    case = BY_NAME[f"error-{status}-{kind}"]
    got, _ = rig.got(QUESTION, case.reply)
    assert (got.status, got.header(b"x-pinocchio-error")) == (status, None)
    fields = dict(case.reply.headers)
    for name, value in fields.items():
        if name.decode() in RETRY or name.startswith(b"x-ratelimit-"):
            assert got.header(name.lower()) == value
    error = json.loads(got.body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    if kind == "json":
        upstreams = json.loads(case.reply.body)["error"]
        assert error == {name: upstreams[name] for name in error}


@pytest.mark.parametrize("status", [400, 429, 500])
def test_an_error_for_a_stream_is_an_error(rig: Rig, status: int) -> None:
    """If upstream refuses a stream, the client gets the same status and message."""
    case: Case = BY_NAME[f"error-{status}-for-a-stream"]
    got, _ = rig.got(STREAM_QUESTION, case.reply)
    assert got.status == status
    error = json.loads(case.reply.body)["error"]
    assert json.loads(got.body)["error"].items() <= error.items()


# Requests

REQUESTS = ["200-messages", "image-of-300-kb", "image-by-url", "request-of-3-mb"]
FIELDS: Json = {
    "temperature": 1.0,
    "top_p": 0.5,
    "n": 2,
    "seed": 5,
    "stop": [".", "\n"],
    "max_completion_tokens": 7,
    "presence_penalty": -0.5,
    "logit_bias": {"50256": -100},
    "logprobs": True,
    "top_logprobs": 2,
    "parallel_tool_calls": False,
    "service_tier": "auto",
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "tools": [
        {
            "type": "function",
            "function": {"name": "f", "strict": True, "parameters": {"type": "object"}},
        }
    ],
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "s", "strict": True, "schema": {"type": "object"}},
    },
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_says_the_same(rig: Rig, name: str) -> None:
    """Long conversations and images arrive upstream unchanged, under the client's key."""
    sent = BY_NAME[name].sent
    _, request = rig.got(sent, replied(TEXT))
    assert json.loads(request.body) == json.loads(sent.body)
    assert request.header(b"authorization") == b"Bearer sk-client"


@pytest.mark.parametrize("field", [*FIELDS, "user"])
def test_a_field_says_the_same(rig: Rig, field: str) -> None:
    """An accepted field of OpenAI's reaches upstream with its value, and nothing else does."""
    tools = {"tools": FIELDS["tools"]} if field == "tool_choice" else {}
    body = json.loads(QUESTION.body) | tools | {field: FIELDS.get(field, "x")}
    _, request = rig.got(post(json.dumps(body).encode()), replied(TEXT))
    assert json.loads(request.body) == body


# What translation cannot keep


def test_requests_are_rewritten(rig: Rig) -> None:
    """Upstream gets the same values in litellm's number format and white space."""
    odd = b'{ "model":"m", "temperature":1.50, "messages":[{"role":"user","content":"\\u00e9"}]}'
    _, request = rig.got(post(odd), replied(TEXT))
    assert json.loads(request.body) == json.loads(odd)
    assert request.body != odd


def test_an_error_ends_a_stream(rig: Rig) -> None:
    """What upstream sends after its own error is left out, so that nobody takes it for an end."""
    error = BY_NAME["stream-error-event-first"].reply.body
    got, _ = rig.got(STREAM_QUESTION, BY_NAME["stream-error-event-first"].reply)
    assert error.startswith(got.body)
    assert error.removeprefix(got.body) == b"data: [DONE]\n\n"


def test_other_header_fields_are_lost(rig: Rig) -> None:
    """Cookies, dates and other fields that have no effect on retries are dropped."""
    got, _ = rig.got(QUESTION, replied(TEXT, (b"x-vendor", b"1")))
    assert not {name for name, _ in got.headers} & {b"set-cookie", b"x-vendor", b"cf-ray", b"date"}


def test_an_error_keeps_its_envelope_only(rig: Rig) -> None:
    """Members that OpenAI's envelope does not have are lost, and so is a page of HTML."""
    reply = BY_NAME["error-400-json"].reply
    got, _ = rig.got(QUESTION, reply)
    assert b"vendor" in reply.body
    assert b"vendor" not in got.body
    page, _ = rig.got(QUESTION, BY_NAME["error-400-html"].reply)
    assert json.loads(page.body)["error"]["message"] == "upstream answered 400"


def test_the_clients_head_stays_here(rig: Rig) -> None:
    """Upstream gets litellm's header fields with the client's key, and no query string."""
    headers = (*QUESTION.headers, (b"User-Agent", b"mine/1.0"), (b"OpenAI-Beta", b"x"))
    _, request = rig.got(replace(QUESTION, headers=headers, target=f"{CHAT}?a=b"), replied(TEXT))
    assert request.target == CHAT.encode()
    assert request.header(b"openai-beta") is None
    assert request.header(b"user-agent") != b"mine/1.0"


def test_unknown_fields_are_refused(rig: Rig) -> None:
    """A field that litellm would lose is refused before anything is sent upstream."""
    request = post(QUESTION.body[:-1] + b',"x_vendor":1}')
    rig.upstream.take()
    got = ask(rig.proxies["live"].port, request)
    error = json.loads(got.body)["error"]
    assert (got.status, error["code"], error["param"]) == (400, "unsupported_parameter", "x_vendor")
    assert rig.upstream.take() == []


@pytest.mark.parametrize("name", ["embeddings", "upload", "list-chats", "responses-json"])
def test_other_surfaces_are_refused(rig: Rig, name: str) -> None:
    """Only chat completions are translated; any other surface is answered with an error."""
    rig.upstream.take()
    got = ask(rig.proxies["live"].port, BY_NAME[name].sent)
    assert got.status in (400, 404)
    assert got.header(b"x-pinocchio-error") == b"true"
    assert rig.upstream.take() == []
