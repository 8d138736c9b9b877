"""Nothing of an answer that a policy holds reaches the client, however upstream sends it.

There are two policies, one that holds everything and one that holds calls, and four surfaces, each
whole and as a stream. Each test counts what it tried, and what reached the client: none. The suite
tries every third form, `-m slow` the others.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from functools import cache

import httpx
import pytest

from tests.builders.undecided_replies import (
    CALL_STREAMS,
    Case,
    calling,
    hidden_answers,
    hidden_streams,
    streams,
    whole,
)
from tests.running.live_proxy import LiveProxy
from tests.servers.faulty_upstream import JSON, Response
from tests.servers.undecided import (
    ANSWERS,
    HOLD_ALL,
    HOLD_CALLS,
    PATHS,
    SECRET,
    AnyUpstream,
    asking,
    holding,
    passed,
)

CALLING = ("chat", "responses", "messages")
THIRDS = (0, *(pytest.param(third, marks=pytest.mark.slow) for third in (1, 2)))
CLARIFY = "{version: 1, name: ask, default: {clarify: {text: 'Which one?'}}}"
BY_MODEL = """
version: 1
name: models
rules: [{name: large, when: {model: large}, then: {hold: {queue: q}}}]
default: deliver
"""


@pytest.fixture(scope="module")
def upstream() -> Iterator[AnyUpstream]:
    with AnyUpstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def holds_all(
    upstream: AnyUpstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveProxy]:
    with holding(upstream, tmp_path_factory, HOLD_ALL) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def holds_calls(
    upstream: AnyUpstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveProxy]:
    with holding(upstream, tmp_path_factory, HOLD_CALLS) as proxy:
        yield proxy


def received(proxy: LiveProxy, surface: str, *, is_stream: bool) -> bytes:
    """Return all that a client gets, header fields too, up to where a connection breaks off."""
    body = asking(surface, stream=is_stream)
    headers = {"content-type": "application/json", "authorization": "Bearer sk-client"}
    client = _client(proxy.port)
    try:
        client.request("POST", PATHS[surface], body, headers)
    except OSError:  # the proxy has closed it meanwhile, as idle
        client.close()
        client.request("POST", PATHS[surface], body, headers)
    response = client.getresponse()
    try:
        rest = response.read()
    except http.client.IncompleteRead as error:
        rest = error.partial
        client.close()
    return repr(response.getheaders()).encode() + rest


@cache
def _client(port: int) -> http.client.HTTPConnection:
    """Return a connection that is kept open.

    With thousands of requests, httpx would take a third of the CPU.
    """
    return _open.enter_context(closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)))


_open = ExitStack()


@pytest.fixture(scope="module", autouse=True)
def connections() -> Iterator[None]:
    """Yield connections, and close them in the end."""
    with _open:
        yield


def through(
    proxy: LiveProxy, upstream: AnyUpstream, surface: str, cases: Iterable[Case]
) -> tuple[int, list[str]]:
    """Return how many forms were tried, and which came through."""
    tried, found = 0, []
    for name, upstream.answer in cases:
        secret = [step for step in upstream.answer.steps if isinstance(step, bytes)]
        is_encoded = not passed(b"".join(secret))
        for is_stream in (False, True):
            got = received(proxy, surface, is_stream=is_stream)
            tried += 1
            if passed(got) or (is_encoded and b"".join(secret) in got):
                found.append(f"{name}, asked for {'a stream' if is_stream else 'JSON'}")
    print(f"{surface}: {tried} tried, {len(found)} came through: {found[:20]}")
    return tried, found


@pytest.mark.parametrize("third", THIRDS)
@pytest.mark.parametrize("surface", PATHS)
def test_no_text_passes_a_policy_that_holds_all(
    holds_all: LiveProxy, upstream: AnyUpstream, surface: str, third: int
) -> None:
    """Texts in all forms, whole and streamed, are held or refused."""
    cases = [*whole(surface, ANSWERS[surface]), *streams(surface, calls=False)]
    tried, found = through(holds_all, upstream, surface, cases[third::3])
    assert found == []
    assert tried > 66


@pytest.mark.parametrize("third", THIRDS)
@pytest.mark.parametrize("surface", CALLING)
@pytest.mark.parametrize("policy", ["holds_all", "holds_calls"])
def test_no_call_passes(
    request: pytest.FixtureRequest, upstream: AnyUpstream, surface: str, policy: str, third: int
) -> None:
    """Calls in all forms and of all types, whole and streamed, are held or refused."""
    proxy = request.getfixturevalue(policy)
    listed = calling(surface)
    cases = [case for name, answer in listed[:1] for case in whole(surface, answer)]
    cases += [
        (f"{name} {form}", reply)
        for name, answer in listed[1:]
        for form, reply in first(surface, answer)
    ]
    cases += [*streams(surface, calls=True), *CALL_STREAMS[surface]()]
    tried, found = through(proxy, upstream, surface, cases[third::3])
    assert found == []
    assert tried > 66


@pytest.mark.parametrize("policy", ["holds_all", "holds_calls"])
def test_no_call_passes_that_only_some_readers_find(
    request: pytest.FixtureRequest, upstream: AnyUpstream, policy: str
) -> None:
    """Members that occur twice, differ by case, or are in odd places are refused."""
    proxy = request.getfixturevalue(policy)
    tried, found = through(proxy, upstream, "chat", [*hidden_answers(), *hidden_streams()])
    assert found == []
    assert tried >= 80


@pytest.mark.parametrize(
    "beside",
    [
        '"x":1,"x":2',
        '"usage":{"a":1},"Usage":{"a":2}',
        '"x":{"name":"n"}',
        '"tools":[{"name":"a"}]',
    ],
)
def test_what_all_readers_find_the_same_in_is_delivered(
    holds_calls: LiveProxy, upstream: AnyUpstream, beside: str
) -> None:
    """A reply in which all readers find the same is delivered, whatever other members it has."""
    body = json.dumps(ANSWERS["chat"])[:-1]
    upstream.answer = Response([f"{body},{beside}}}".encode()], headers=JSON)
    assert passed(received(holds_calls, "chat", is_stream=False))


@pytest.mark.parametrize("surface", PATHS)
def test_nothing_of_a_servers_own_stands_beside_what_takes_an_answers_place(
    upstream: AnyUpstream, tmp_path_factory: pytest.TempPathFactory, surface: str
) -> None:
    """A question in place of an answer keeps a server's own numbers, but none of its texts."""
    answer = json.loads(json.dumps(ANSWERS[surface]).replace(SECRET, "hm"))
    body = json.dumps({**answer, "x_text": SECRET, "x_object": {"a": [SECRET]}, "x_number": 4.5})
    upstream.answer = Response([body.encode()], headers=JSON)
    with holding(upstream, tmp_path_factory, CLARIFY) as proxy:
        for is_stream in (False, True):
            got = received(proxy, surface, is_stream=is_stream)
            assert b"Which one" in got
            assert b"4.5" in got
            assert not passed(got)


@pytest.mark.parametrize(
    ("policy", "body", "is_refused"),
    [
        ("of models", '{"model":"small","model":"large","messages":[]}', True),
        ("of models", '{"model":"small","Model":"large","messages":[]}', True),
        ("of models", '{"model":"m","messages":[],"MESSAGES":[]}', True),
        (
            "of models",
            '{"model":"m","messages":[{"role":"user","content":"a","content":"b"}]}',
            True,
        ),
        ("of models", '{"model":"m","messages":[],"tools":[{"x":{},"x":{}}]}', True),
        ("of models", '{"model":"m","messages":[],"seed":1,"seed":2,"Seed":3}', False),
        ("of all", '{"model":"m","messages":[],"messages":[{}]}', True),
        ("of all", '{"model":"small","model":"large","messages":[]}', False),
    ],
)
def test_a_request_that_could_be_read_as_two_is_refused(
    holds_all: LiveProxy,
    upstream: AnyUpstream,
    tmp_path_factory: pytest.TempPathFactory,
    policy: str,
    body: str,
    is_refused: bool,
) -> None:
    """A request with a repeated member that decides on its score or rule is refused."""
    upstream.answer = Response([json.dumps(ANSWERS["chat"]).encode()], headers=JSON)
    with ExitStack() as stack:
        proxy = holds_all
        if policy == "of models":
            proxy = stack.enter_context(holding(upstream, tmp_path_factory, BY_MODEL))
        response = httpx.post(f"{proxy.base_url}/chat/completions", content=body, trust_env=False)
    code = response.json().get("error", {}).get("code")
    assert (response.status_code, code) == ((400, "repeated_member") if is_refused else (200, None))


def first(surface: str, answer: dict[str, object]) -> list[Case]:
    """Return the first two forms of a whole answer, the plainest ones."""
    return [*whole(surface, answer)][:2]


@pytest.mark.parametrize("surface", PATHS)
def test_plain_answers_are_delivered(
    holds_calls: LiveProxy, upstream: AnyUpstream, surface: str
) -> None:
    """A policy that holds calls delivers answers without a call."""
    cases = [
        next(iter(whole(surface, ANSWERS[surface]))),
        next(iter(streams(surface, calls=False))),
    ]
    for _, upstream.answer in cases:
        for is_stream in (False, True):
            assert SECRET.encode() in received(holds_calls, surface, is_stream=is_stream)
