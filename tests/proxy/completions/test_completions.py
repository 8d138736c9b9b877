"""`/v1/completions` end to end: the same bytes, the confidence, and held replies."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import StartProxy
from tests.running.live_proxy import LiveProxy, post_raw
from tests.running.responses_requests import UNSURE, completion, release, without_member
from tests.servers.responses_upstream import ResponsesUpstream

Json = dict[str, Any]


@pytest.fixture(scope="module")
def proxy(start_responses: StartProxy) -> LiveProxy:
    """Start a proxy that only observes."""
    return start_responses()


@pytest.mark.parametrize("fields", [{}, {"stream": True}, {"n": 2}])
def test_completions_without_member_are_upstreams(
    proxy: LiveProxy, responses_upstream: ResponsesUpstream, fields: Json
) -> None:
    """Legacy completions are scored, and without the member they are upstream's bytes."""
    got = completion(proxy, **fields)
    direct = post_raw(f"{responses_upstream.base_url}/completions", responses_upstream.last.body)
    assert b'"confidence":0.7' in got.body
    assert without_member(got.body) == direct.body


def test_completions_are_held_and_fetched(start_responses: StartProxy) -> None:
    """A held completion is fetched where chat completions are, by the client that asked."""
    proxy = start_responses(policy=UNSURE % ("hold", "hold"))
    held = proxy.openai.completions.create(model="ok", prompt="secret p=0.2")
    assert held.id.startswith("cmpl-held-")
    assert held.choices[0].finish_reason == "content_filter"
    release(proxy, held.id)
    got = proxy.http.get(f"/v1/chat/completions/{held.id}")
    assert (got.json()["object"], got.json()["id"]) == ("text_completion", held.id)
    assert got.json()["choices"][0]["text"] == " secret p=0.2"


def test_a_held_stream_of_completions_is_one_of_chunks(start_responses: StartProxy) -> None:
    """A held stream has the placeholder's text, usage where the client asked for it, and [DONE]."""
    proxy = start_responses(policy=UNSURE % ("hold", "hold"))
    chunks = list(
        proxy.openai.completions.create(
            model="ok", prompt="p=0.2", stream=True, stream_options={"include_usage": True}
        )
    )
    assert "held for review" in chunks[0].choices[0].text
    assert chunks[-1].usage is not None
    assert completion(proxy, "p=0.2", stream=True).body.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("prompt", "fields", "reason"),
    [
        (["p=0.1", "p=0.2"], {}, "several_prompts"),
        ([1, 2, 3], {}, "tokens"),
        ([[1, 2], [3]], {}, "several_prompts"),
        ("p=0.9", {"echo": True}, "echo"),
        ("p=0.9", {"suffix": "x"}, "suffix"),
        (None, {}, "prompt"),
    ],
)
def test_completions_that_cannot_be_scored_say_why(
    proxy: LiveProxy, prompt: Any, fields: Json, reason: str
) -> None:
    """Prompts of tokens, several prompts, and answers that repeat their prompt have no number."""
    got = completion(proxy, prompt, **fields)
    if got.headers["x-pinocchio-confidence-reason"] != "not_a_completion":
        assert got.headers["x-pinocchio-confidence-reason"] == reason
