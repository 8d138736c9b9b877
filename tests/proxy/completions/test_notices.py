"""What a policy adds to a reply that it delivers: a notice after its text, or a label."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
from openai import APIStatusError, UnprocessableEntityError

from tests.conftest import StartProxy
from tests.proxy.actions.test_actions import ACTION, SCHEMA, WEATHER, policy
from tests.running import messages_client
from tests.running.live_proxy import (
    LiveProxy,
    error_of,
    members_in,
    post_raw,
    question,
    text_in,
    until,
    without_member,
)
from tests.running.responses_requests import final_of
from tests.servers.faulty_upstream import FaultyUpstream
from tests.servers.messages_upstream import MessagesUpstream

NOTICE = "Please check this: ä🍋."
NOTICED = policy(f"{{deliver: {{notice: '{NOTICE}'}}}}")
LABELLED = policy("{annotate: {label: 'ungeprüft 100%'}}")


@pytest.fixture
def noticing(start_proxy: StartProxy) -> LiveProxy:
    return start_proxy(policy=NOTICED)


# Notices


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("n", [1, 2])
def test_a_notice_follows_the_text(noticing: LiveProxy, is_stream: bool, n: int) -> None:
    """The official client reads the reply's own text, a blank line and the notice."""
    client = noticing.openai.chat.completions
    asked = question("Paris p=0.1|Rome p=0.2", n=n, stream_options={"include_usage": True})
    texts = ["Paris p=0.1", "Rome p=0.2"] if n == 2 else ["Paris p=0.1"]
    if is_stream:
        joined = dict.fromkeys(range(n), "")
        for chunk in client.create(**asked, stream=True):
            for choice in chunk.choices:
                joined[choice.index] += choice.delta.content or ""
        assert chunk.usage is not None
        got = list(joined.values())
    else:
        del asked["stream_options"]
        completion = client.create(**asked)
        got = [choice.message.content or "" for choice in completion.choices]
        assert [choice.finish_reason for choice in completion.choices] == ["stop"] * n
        assert (completion.id, completion.model) == ("chatcmpl-1", "ok-2099")
    assert got == [f"{text}\n\n{NOTICE}" for text in texts]


def test_a_notice_is_told_beside_the_text_too(noticing: LiveProxy) -> None:
    """The member has the notice as well, and the action is a delivery."""
    response = noticing.ask("p=0.1")
    assert response.json()["pinocchio"]["notice"] == NOTICE
    assert response.json()["pinocchio"]["choices"][0]["notice"] == NOTICE
    assert response.headers[ACTION] == "deliver"
    stream = noticing.ask("p=0.1", stream=True)
    assert members_in(stream.content)[0]["notice"] == NOTICE
    assert "notice" not in noticing.ask("p=0.9").json()["pinocchio"]


@pytest.mark.parametrize(
    "fields",
    [
        {"model": "tools", "tools": [WEATHER]},
        {"response_format": SCHEMA},
        {"model": "empty"},
    ],
    ids=["tools", "schema", "empty"],
)
@pytest.mark.parametrize("is_stream", [False, True])
def test_a_notice_breaks_no_call_and_no_json(
    start_proxy: StartProxy, upstream: FaultyUpstream, fields: Any, is_stream: bool
) -> None:
    """Calls and JSON keep upstream's bytes, and the notice is in the member alone."""
    proxy = start_proxy(
        policy=f"{{version: 1, name: all, default: {{deliver: {{notice: '{NOTICE}'}}}}}}"
    )
    body = question("p=0.1", **{"model": "ok", **fields}, stream=is_stream)
    got = proxy.post_raw(body)
    direct = post_raw(f"{upstream.base_url}/chat/completions", body)
    assert without_member(got.body) == direct.body
    member = members_in(got.body)[0] if is_stream else json.loads(got.body)["pinocchio"]
    assert member["notice"] == NOTICE


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_notice_in_completions(start_responses: StartProxy, is_stream: bool) -> None:
    """On `/v1/completions` the notice follows the text."""
    proxy = start_responses(policy=NOTICED)
    reply = proxy.openai.completions.create(model="ok", prompt="Rome p=0.1", stream=is_stream)
    parts: list[Any] = list(reply) if is_stream else [reply]
    text = "".join(choice.text for part in parts for choice in part.choices)
    assert text == f" Rome p=0.1\n\n{NOTICE}"


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_notice_in_responses(start_responses: StartProxy, is_stream: bool) -> None:
    """On `/v1/responses` the notice follows the last text, in the deltas and in the response."""
    proxy = start_responses(policy=NOTICED)
    if not is_stream:
        response = proxy.openai.responses.create(model="ok", input="Rome p=0.1")
        assert response.output_text == f"Rome p=0.1\n\n{NOTICE}"
        return
    got = post_raw(
        f"{proxy.base_url}/responses", {"model": "ok", "input": "Rome p=0.1", "stream": True}
    )
    deltas = [
        event.delta
        for event in proxy.openai.responses.create(model="ok", input="Rome p=0.1", stream=True)
        if event.type == "response.output_text.delta"
    ]
    assert "".join(deltas) == f"Rome p=0.1\n\n{NOTICE}"
    assert NOTICE in json.dumps(final_of(got.body)["output"], ensure_ascii=False)


@pytest.fixture(scope="module")
def anthropic() -> Iterator[MessagesUpstream]:
    with MessagesUpstream() as upstream:
        yield upstream


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("model", ["ok", "thinks"])
def test_a_notice_in_messages(
    anthropic: MessagesUpstream,
    tmp_path_factory: pytest.TempPathFactory,
    is_stream: bool,
    model: str,
) -> None:
    """On `/v1/messages` the notice is a block of its own, the last one."""
    with messages_client.proxies_before(anthropic, tmp_path_factory) as start:
        proxy = start(policy=NOTICED)
        got = messages_client.ask(proxy, messages_client.asked("p=0.1", model, stream=is_stream))
    message = messages_client.accumulated(got.body) if is_stream else json.loads(got.body)
    assert message["content"][-1] == {"type": "text", "text": f"\n\n{NOTICE}"}
    assert message["stop_reason"] == "end_turn"
    assert messages_client.text_of(message).endswith(f"p=0.1\n\n{NOTICE}")


def test_shadow_adds_nothing(start_proxy: StartProxy, upstream: FaultyUpstream) -> None:
    """In shadow mode there is neither a notice nor a label."""
    for text in (NOTICED, LABELLED):
        proxy = start_proxy(policy=text.replace("rules:", "mode: shadow\nrules:"))
        got = proxy.post_raw(question("p=0.1"))
        direct = post_raw(f"{upstream.base_url}/chat/completions", question("p=0.1"))
        assert without_member(got.body) == direct.body
        assert {"notice", "label"}.isdisjoint(json.loads(got.body)["pinocchio"])
        assert "x-pinocchio-label" not in got.headers


# Labels


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_label_is_in_the_member_alone(
    start_proxy: StartProxy, upstream: FaultyUpstream, is_stream: bool
) -> None:
    """An annotated reply has upstream's bytes; the member has the label, and its choice too."""
    proxy = start_proxy(policy=LABELLED, records={"keep_days": 1})
    body = question("p=0.9|p=0.1", n=2, stream=is_stream)
    got = proxy.post_raw(body)
    direct = post_raw(f"{upstream.base_url}/chat/completions", body)
    assert without_member(got.body) == direct.body
    if is_stream:
        [member, same] = members_in(got.body)
        assert same == member
        assert [choice.get("label") for choice in member["choices"]] == [None, "ungeprüft 100%"]
        return
    member = json.loads(got.body)["pinocchio"]
    assert (member["action"], member["label"]) == ("annotate", "ungeprüft 100%")
    assert [choice.get("label") for choice in member["choices"]] == [None, "ungeprüft 100%"]
    assert got.headers[ACTION] == "annotate"
    assert got.headers["x-pinocchio-label"] == "ungepr%C3%BCft 100%25"
    id = got.headers["x-pinocchio-request-id"]
    until(lambda: label_of(proxy, id) == "ungeprüft 100%")


def label_of(proxy: LiveProxy, request_id: str) -> str | None:
    """Return the label in the record of a request, or None before it is written."""
    query = "SELECT label FROM exchanges WHERE request_id = ?"
    with sqlite3.connect(proxy.store_path) as database:
        row = database.execute(query, (request_id,)).fetchone()
    database.close()
    return row[0] if row else None


def test_annotated_streams_pass_through(start_proxy: StartProxy, upstream: FaultyUpstream) -> None:
    """A stream is live under a policy that only annotates."""
    proxy = start_proxy(policy="{version: 1, name: all, default: {annotate: {label: x}}}")
    body = question("p=0.1", "gated", stream=True)
    with proxy.http.stream("POST", "/v1/chat/completions", json=body) as response:
        parts = response.iter_raw()
        seen = b""
        while not text_in(seen):
            seen += next(parts)
        upstream.last.proceed()
        rest = b"".join(parts)
    assert members_in(rest)[0]["label"] == "x"
    assert text_in(seen + rest) == "p=0.1"


# A block that says why


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_block_says_why(start_proxy: StartProxy, is_stream: bool) -> None:
    """A block's error has the policy's message, and the code that every block has."""
    proxy = start_proxy(policy=policy("{block: {message: 'Ask a lawyer: §1.'}}"))
    with pytest.raises(UnprocessableEntityError) as caught:
        proxy.openai.chat.completions.create(**question("p=0.1", stream=is_stream))
    assert error_of(caught.value.response)["message"] == "Ask a lawyer: §1."
    assert caught.value.code == "blocked_by_policy"


def test_a_block_says_why_in_a_body_that_has_begun(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """Once the status is out, the policy's message takes the reply's place."""
    proxy = start_proxy(
        policy=policy("{block: {message: Ask a lawyer.}}"), limits={"commit_after_s": 0.05}
    )
    body = question("secret p=0.1", "gated")
    with proxy.http.stream("POST", "/v1/chat/completions", json=body) as response:
        parts = response.iter_raw()
        assert next(parts) == b" "
        upstream.last.proceed()
        [choice] = json.loads(b"".join(parts))["choices"]
    assert choice["message"]["content"] == "Ask a lawyer."
    assert choice["finish_reason"] == "content_filter"


def test_a_block_without_a_message_says_that_it_is_one(start_proxy: StartProxy) -> None:
    """A block without a message of the policy has the standard sentence."""
    with pytest.raises(APIStatusError, match="a policy blocks this reply"):
        start_proxy(policy=policy("block")).openai.chat.completions.create(**question("p=0.1"))
