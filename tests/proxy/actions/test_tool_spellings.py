"""A rule that holds a tool holds each spelling under which a client would run it.

Names, arguments and formats are tried on every API that has calls, whole and streamed. The suite
tries every ninth of them, `-m slow` the others.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection

import pytest

from tests.builders.undecided_replies import Case
from tests.proxy.actions.tool_spellings import (
    ARGUMENTS,
    NAMES,
    NAMES_IF_OFFERED,
    OTHER,
    SPELLED_ARGUMENTS,
    TOOL,
    chat_deltas,
    messages_stream,
    named_twice,
    streamed_calls,
    whole_calls,
)
from tests.running.live_proxy import LiveProxy
from tests.servers.undecided import PATHS, AnyUpstream, asking, holding, passed

KEYS = itertools.count()
CALLING = ("chat", "responses", "messages")
NINTHS = (0, *(pytest.param(ninth, marks=pytest.mark.slow) for ninth in range(1, 9)))
BY_NAME = f"""
version: 1
name: by-name
mode: enforce
rules: [{{name: refunds, when: {{tools: [{TOOL}]}}, then: {{hold: {{queue: q, reply: error}}}}}}]
default: deliver
"""
BY_ARGUMENT = """
version: 1
name: by-argument
mode: enforce
rules:
  - name: large
    when: {tools: [{name: "*", arguments: {"*amount*": {above: 100}}}]}
    then: {hold: {queue: q, reply: error}}
default: deliver
"""
ONLY_OTHER = f"""
version: 1
name: only-other
mode: enforce
rules: [{{name: harmless, when: {{tools: [{OTHER}]}}, then: deliver}}]
default: {{hold: {{queue: q, reply: error}}}}
"""


@pytest.fixture(scope="module")
def upstream() -> Iterator[AnyUpstream]:
    with AnyUpstream() as upstream:
        yield upstream


@pytest.fixture(
    scope="module", params=[BY_NAME, BY_ARGUMENT, ONLY_OTHER], ids=["name", "argument", "only"]
)
def proxy(
    request: pytest.FixtureRequest, upstream: AnyUpstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, LiveProxy]]:
    with holding(upstream, tmp_path_factory, request.param) as proxy:
        yield request.param, proxy


def offered(surface: str, *names: str) -> dict[str, object]:
    """Return the tools of a request, as each API writes them."""
    schema = {"type": "object", "properties": {}}
    if surface == "chat":
        listed = [
            {"type": "function", "function": {"name": n, "parameters": schema}} for n in names
        ]
        return {"tools": listed}
    if surface == "responses":
        return {"tools": [{"type": "function", "name": n, "parameters": schema} for n in names]}
    return {"tools": [{"name": n, "input_schema": schema} for n in names]}


def came_through(
    proxy: LiveProxy, upstream: AnyUpstream, surface: str, cases: list[Case], **members: object
) -> list[str]:
    """Return the names of the cases whose call a client got.

    Each request has a key of its own, as a repeated request
    of one key would get the reply that is held already.
    """
    found = []
    upstream.forget()
    with closing(HTTPConnection("127.0.0.1", proxy.port, timeout=20)) as client:
        for name, upstream.answer in cases:
            is_stream = upstream.answer.framing == "chunked"
            body = asking(surface, stream=is_stream, **members)
            key = {"authorization": f"Bearer sk-{next(KEYS)}"}
            client.request("POST", PATHS[surface], body, key)
            if passed(client.getresponse().read()):
                found.append(name)
    assert len(upstream.requests) == len(cases)
    return found


def cases_of(surface: str, names: tuple[str, ...], arguments: tuple[str, ...]) -> list[Case]:
    return [
        (f"{name!r} {text!r} {form} {how.__name__}", reply)
        for name in names
        for text in arguments
        for how in (whole_calls, streamed_calls)
        for form, reply in how(surface, name, text)
    ]


@pytest.mark.parametrize("ninth", NINTHS)
@pytest.mark.parametrize("surface", CALLING)
@pytest.mark.parametrize("is_offered", [True, False])
def test_no_spelling_of_a_name_passes(
    proxy: tuple[str, LiveProxy], upstream: AnyUpstream, surface: str, is_offered: bool, ninth: int
) -> None:
    """A name that a client may read as the tool's is held, also where no tool is offered."""
    tools = offered(surface, TOOL, OTHER) if is_offered else {}
    names = NAMES + NAMES_IF_OFFERED if is_offered else NAMES
    cases = cases_of(surface, names[ninth::9], (ARGUMENTS,))
    assert len(cases) >= 2 * len(names[ninth::9])
    assert came_through(proxy[1], upstream, surface, cases, **tools) == []


@pytest.mark.parametrize("ninth", NINTHS)
@pytest.mark.parametrize("surface", CALLING)
def test_no_spelling_of_arguments_passes(
    proxy: tuple[str, LiveProxy], upstream: AnyUpstream, surface: str, ninth: int
) -> None:
    """Arguments that are no plain object are held by a rule that looks at arguments."""
    cases = cases_of(surface, (TOOL, f"functions.{TOOL}"), SPELLED_ARGUMENTS[ninth::9])
    tools = offered(surface, TOOL, OTHER)
    assert came_through(proxy[1], upstream, surface, cases, **tools) == []


@pytest.mark.parametrize("is_offered", [True, False])
def test_a_call_counts_under_each_name_that_its_deltas_bring(
    proxy: tuple[str, LiveProxy], upstream: AnyUpstream, is_offered: bool
) -> None:
    """A call counts under each name in its deltas: clients join names or take either."""
    cases, tools = list(named_twice()), offered("chat", TOOL, OTHER) if is_offered else {}
    assert len(cases) > 25
    assert came_through(proxy[1], upstream, "chat", cases, **tools) == []


def test_an_input_that_a_block_begins_with_is_not_overlooked(
    proxy: tuple[str, LiveProxy], upstream: AnyUpstream
) -> None:
    """Arguments in a block's start and in its deltas both count, as clients may take either."""
    start = json.loads(ARGUMENTS)
    cases = [("start", messages_stream(TOOL, start, '{"amount": 1}'))]
    tools = offered("messages", TOOL)
    assert came_through(proxy[1], upstream, "messages", cases, **tools) == []


@pytest.mark.parametrize("surface", CALLING)
@pytest.mark.parametrize("name", [OTHER, "my_refund_orders", "refund_order_status"])
def test_another_tool_of_the_request_is_not_held(
    upstream: AnyUpstream, tmp_path_factory: pytest.TempPathFactory, surface: str, name: str
) -> None:
    """A tool that the request offers is not held, however similar its name is."""
    small = ARGUMENTS.replace("900", "9")
    cases = cases_of(surface, (name,), (small,))
    if surface == "chat":
        cases = [case for case in cases if "parallel" not in case[0]]
        cases.append(
            (
                "in each delta",
                chat_deltas([{"name": name}, {"name": name, "arguments": small}], "function"),
            )
        )
    tools = offered(surface, TOOL, name)
    for policy in (BY_NAME, BY_ARGUMENT):
        with holding(upstream, tmp_path_factory, policy) as proxy:
            found = came_through(proxy, upstream, surface, cases, **tools)
        assert found == [each for each, _ in cases]
