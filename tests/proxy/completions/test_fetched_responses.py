"""Responses by their id: made in the background, cancelled, from another process, held."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import StartProxy
from tests.running.live_proxy import LiveProxy, WordScorer, post_raw
from tests.running.responses_requests import (
    TOOLS,
    UNSURE,
    ask,
    events_in,
    fetch,
    final_of,
    held_ids,
    release,
)
from tests.servers.responses_upstream import ResponsesUpstream

Json = dict[str, Any]


@pytest.fixture(scope="module")
def proxy(start_responses: StartProxy) -> LiveProxy:
    """Start a proxy that only observes."""
    return start_responses()


def queued(proxy: LiveProxy, text: str = "p=0.7", model: str = "ok") -> str:
    got = ask(proxy, model, text, background=True)
    assert json.loads(got.body)["status"] == "queued"
    assert got.headers["x-pinocchio-confidence-status"] == "pending"
    assert got.headers["x-pinocchio-confidence-reason"] == "background"
    id: str = json.loads(got.body)["id"]
    return id


def test_a_background_response_is_scored_when_it_is_there(start_responses: StartProxy) -> None:
    """A response is relayed until it is completed, then scored with its own question."""
    proxy = start_responses(
        scorer=(scorer := WordScorer("background@1")), policy=UNSURE % ("hold", "hold")
    )
    id = queued(proxy)
    assert fetch(proxy, id).json()["status"] == "in_progress"
    assert fetch(proxy, id).headers["x-pinocchio-confidence"] == "0.7000"
    assert scorer.seen[-1].question == "p=0.7"
    events = events_in(fetch(proxy, id, "?stream=true").content)
    assert events[-1]["response"]["pinocchio"]["confidence"] == 0.7


def test_a_background_response_is_held_when_it_is_there(start_responses: StartProxy) -> None:
    """A client that polls gets one placeholder, under upstream's id and under ours."""
    proxy = start_responses(policy=UNSURE % ("hold", "hold"))
    id = queued(proxy, "secret p=0.2")
    before = held_ids(proxy)
    assert fetch(proxy, id).json()["status"] == "in_progress"
    held = proxy.openai.responses.retrieve(id)
    assert held.id.startswith("resp_held_")
    for again in (fetch(proxy, id), proxy.http.post(f"/v1/responses/{id}/cancel")):
        assert again.json()["id"] == held.id
        assert "secret" not in again.text
    assert held_ids(proxy) == [*before, held.id]
    release(proxy, held.id)
    assert proxy.openai.responses.retrieve(id).output_text == "secret p=0.2"


def test_a_released_response_can_be_gone_on_with(
    start_responses: StartProxy, responses_upstream: ResponsesUpstream
) -> None:
    """After the release, the held reply's id in a request stands for upstream's own id."""
    proxy = start_responses(policy=UNSURE % ("hold", "hold"))
    held = json.loads(ask(proxy, text="secret p=0.2").body)["id"]
    ask(proxy, text="p=0.9", previous_response_id=held)
    assert responses_upstream.last.json()["previous_response_id"] == held
    release(proxy, held)
    got = ask(proxy, text="p=0.9", previous_response_id=held)
    theirs = responses_upstream.last.json()["previous_response_id"]
    assert theirs in responses_upstream.stored
    assert got.headers["x-pinocchio-confidence"] == "0.9000"


def test_cancelling_is_no_way_past_the_policy(start_responses: StartProxy) -> None:
    """The answer in the reply to a cancellation is decided on like any other."""
    proxy = start_responses(policy=UNSURE % ("hold", "hold"))
    id = queued(proxy, "secret p=0.2")
    got = proxy.http.post(f"/v1/responses/{id}/cancel")
    assert got.json()["id"].startswith("resp_held_")
    cut = proxy.http.post(f"/v1/responses/{queued(proxy, 'secret p=0.2', 'split')}/cancel").json()
    assert (cut["status"], cut["output"]) == ("cancelled", [])


def test_a_response_of_another_process_has_no_confidence(
    start_responses: StartProxy, responses_upstream: ResponsesUpstream
) -> None:
    """A response of another process has no confidence and
    says so; an enforced policy decides on the missing score.
    """
    asked = {"model": "ok", "input": "secret p=0.9"}
    id = json.loads(post_raw(f"{responses_upstream.base_url}/responses", asked).body)["id"]
    watched = fetch(start_responses(), id)
    assert watched.headers["x-pinocchio-confidence-status"] == "not_supported"
    assert watched.headers["x-pinocchio-confidence-reason"] == "unknown_response"
    assert watched.json()["output"][0]["content"][0]["text"] == "secret p=0.9"
    assert "secret" not in fetch(start_responses(policy=UNSURE % ("block", "hold")), id).text
    strict = start_responses(policy=UNSURE % ("hold", "hold"))
    assert fetch(strict, id).json()["id"].startswith("resp_held_")
    assert "secret" not in fetch(strict, id, "?stream=true").text
    lenient = start_responses(policy=UNSURE % ("deliver", "hold"))
    assert fetch(lenient, id).status_code == 200


@pytest.mark.parametrize(
    "path", ["/v1//responses/{id}", "/v1/responses/{id}/", "/v1/responses//{id}"]
)
def test_no_spelling_of_the_path_leads_past_the_policy(
    start_responses: StartProxy, path: str
) -> None:
    """No other spelling of the path shows a held response."""
    proxy = start_responses(policy=UNSURE % ("hold", "hold"))
    id = queued(proxy, "secret p=0.2")
    for _ in range(3):
        assert "secret" not in proxy.http.get(path.format(id=id)).text


def test_a_held_call_is_not_readable_by_the_id_of_its_stream(start_responses: StartProxy) -> None:
    """A stream sends upstream's id before its call is held; that id gives the placeholder."""
    proxy = start_responses(policy=TOOLS % "{hold: {reply: placeholder}}")
    body = ask(proxy, "tools", "secret p=0.2", stream=True).body
    id = events_in(body)[0]["response"]["id"]
    assert id != final_of(body)["id"]
    got = fetch(proxy, id)
    assert got.json()["id"] == final_of(body)["id"]
    assert "secret" not in got.text


def test_the_rest_of_the_surface_is_relayed(
    proxy: LiveProxy, responses_upstream: ResponsesUpstream
) -> None:
    """Deletions and listings are relayed and labelled as not judged."""
    id = json.loads(ask(proxy).body)["id"]
    assert proxy.openai.responses.delete(id) is None
    got = fetch(proxy, f"{id}/input_items")
    assert got.json() == {"object": "list", "data": []}
    assert got.headers["x-pinocchio-confidence-status"] == "not_supported"
    assert [r.method for r in responses_upstream.received] == ["POST", "DELETE", "GET"]


def test_nothing_is_remembered_that_upstream_does_not_store(start_responses: StartProxy) -> None:
    """With `store: false` nothing is remembered: no later request can name the response."""
    proxy = start_responses()
    id = json.loads(ask(proxy, store=False).body)["id"]
    got = ask(proxy, previous_response_id=id)
    assert got.headers["x-pinocchio-confidence-reason"] == "unknown_previous_response"
