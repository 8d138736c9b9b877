"""What an agent gets of a review, in the error itself: id, note and when to ask again."""

from __future__ import annotations

import json
import re
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from openai import APIError, UnprocessableEntityError

from tests.conftest import StartProxy
from tests.proxy.actions.test_actions import WEATHER, held_rows, policy
from tests.running import messages_client
from tests.running.desk_client import DESK, decide
from tests.running.live_proxy import ROOT, LiveProxy, error_of, question, until
from tests.servers.messages_upstream import MessagesUpstream

NOTE = "wrong recipient"
HOLD = policy("{hold: {expires: 1h}}").replace("desk", "rejections")


@pytest.fixture(scope="module")
def proxy(start_proxy: StartProxy) -> LiveProxy:
    return start_proxy(policy=HOLD, **DESK)


def asked(text: str, **fields: Any) -> dict[str, Any]:
    return question(f"{text} p=0.1", "tools", tools=[WEATHER], **fields)


def error_in_stream(proxy: LiveProxy, body: dict[str, Any]) -> dict[str, Any]:
    """Return the error that ends a stream after its status, as the official client raises it."""
    with pytest.raises(APIError) as caught:
        for _ in proxy.openai.chat.completions.create(**body):
            pass
    assert isinstance(caught.value.body, dict)
    return caught.value.body


def test_a_held_call_says_when_to_ask_again(proxy: LiveProxy) -> None:
    """A held call's error has `retry-after` and the review's id; clients do not retry it."""
    response = proxy.http.post("/v1/chat/completions", json=asked("again"))
    error = error_of(response)
    assert error["review_id"] == response.headers["x-pinocchio-review-id"]
    assert response.headers["retry-after"] == str(error["retry_after_s"])
    assert response.headers["x-should-retry"] == "false"


def test_where_asking_again_would_cost_nothing_says_so(start_proxy: StartProxy) -> None:
    """A held text has no `retry-after`: the same request would pay the model once more."""
    text = HOLD.replace("{hold: {", "{hold: {reply: error, ")
    proxy = start_proxy(policy=text)
    response = proxy.ask("text p=0.1")
    assert error_of(response)["code"] == "held_for_review"
    assert "retry-after" not in response.headers
    assert set(response.json()["error"]) == {"message", "type", "param", "code", "review_id"}


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_rejection_reaches_the_agent_with_its_note(proxy: LiveProxy, is_stream: bool) -> None:
    """The same request gets the reviewer's note and what to do, and no time to ask again."""
    body = asked(f"note {is_stream}", stream=is_stream)
    with pytest.raises(UnprocessableEntityError) as caught:
        proxy.openai.chat.completions.create(**body)
    id = caught.value.response.headers["x-pinocchio-review-id"]
    assert decide(proxy, id, verdict="reject", note=NOTE).status_code == 200
    with pytest.raises(UnprocessableEntityError) as caught:
        proxy.openai.chat.completions.create(**body)
    error: Any = caught.value.body
    assert (error["code"], error["note"], error["review_id"]) == ("held_reply_rejected", NOTE, id)
    assert NOTE in error["message"]
    assert "Do not send the same request again" in error["message"]
    assert "retry-after" not in caught.value.response.headers
    gone = proxy.http.get(f"/v1/chat/completions/{id}")
    assert (gone.status_code, error_of(gone)["note"]) == (404, NOTE)


def test_a_stream_that_has_begun_tells_it_in_its_last_event(start_proxy: StartProxy) -> None:
    """In a stream that has begun, the last event has the review's id, and later the note."""
    tools = (
        "{name: unsure, when: {tools: any, confidence: {below: 0.3}}, then: {hold: {expires: 1h}}}"
    )
    text = f"{{version: 1, name: live, rules: [{tools}], default: deliver}}"
    proxy = start_proxy(policy=text, **DESK)
    body = asked("live", stream=True)
    first = error_in_stream(proxy, body)
    assert (first["code"], first["retry_after_s"] > 0) == ("held_for_review", True)
    assert first["review_id"].startswith("chatcmpl-held-")
    decide(proxy, first["review_id"], verdict="reject", note=NOTE)
    again = error_in_stream(proxy, body)
    assert (again["code"], again["note"]) == ("held_reply_rejected", NOTE)


def test_who_waits_hears_the_note_too(start_proxy: StartProxy) -> None:
    """With `reply: wait` the rejection and its note arrive on the open connection."""
    text = policy("{hold: {reply: wait, wait: 20s}}").replace("desk", "waiting")
    proxy = start_proxy(policy=text, **DESK)

    def reject() -> None:
        until(lambda: held_rows(proxy))
        decide(proxy, held_rows(proxy)[0]["id"], verdict="reject", note=NOTE)

    thread = threading.Thread(target=reject)
    thread.start()
    response = proxy.ask("text p=0.1")
    thread.join()
    assert (response.status_code, error_of(response)["note"]) == (422, NOTE)


def test_anthropics_envelope_has_it_as_well(tmp_path_factory: pytest.TempPathFactory) -> None:
    """On `/v1/messages` Anthropic's error object has the same members."""
    with MessagesUpstream() as upstream:
        proxy = LiveProxy(
            upstream.base_url,
            tmp_path_factory.mktemp("messages"),
            policy=HOLD,
            upstream={"speaks": "anthropic", "api_key": ""},
            **DESK,
        )
        try:
            body = messages_client.asked("p=0.1", "tools", tools=messages_client.TOOLS)
            held = json.loads(messages_client.ask(proxy, body).body)["error"]
            decide(proxy, held["review_id"], verdict="reject", note=NOTE)
            error = json.loads(messages_client.ask(proxy, body).body)["error"]
            assert error["details"] == {"error_code": "held_reply_rejected"}
            assert (error["note"], error["review_id"]) == (NOTE, held["review_id"])
        finally:
            proxy.stop()


def test_the_page_for_agents_shows_a_function_that_works(proxy: LiveProxy) -> None:
    """The code of docs/agents.md waits for a reviewer, and gives the model the note."""
    text = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
    [code] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    body = asked("page")
    messages = body.pop("messages")

    def review(wait_s: float) -> None:
        """Reject while the agent sleeps."""
        [waiting] = [row["id"] for row in held_rows(proxy) if row["question"] == "page p=0.1"]
        assert decide(proxy, waiting, verdict="reject", note=NOTE).status_code == 200

    names["time"] = SimpleNamespace(sleep=review, monotonic=lambda: 0.0)
    message = names["next_message"](proxy.openai, messages, **body)
    assert message.tool_calls  # the next step, of which the calibrator is surer
    assert NOTE in messages[-1]["content"]
