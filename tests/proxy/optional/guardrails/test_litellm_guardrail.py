"""A real LiteLLM proxy asks about its replies, configured as `examples/gateways/litellm.yaml`.

It takes thirteen seconds of CPU, nearly all for its start; Portkey's gateway takes one.
"""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.proxy.optional.guardrails.gateways import EXAMPLES, TOOL, ask, guarding, litellm_proxy
from tests.running.live_proxy import LiveProxy

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", name="gate")
def running_gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveProxy]:
    with guarding(tmp_path_factory.mktemp("gate")) as gate:
        yield gate


@pytest.fixture(scope="module", name="litellm")
def running_litellm(
    gate: LiveProxy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx.Client]:
    config = (EXAMPLES / "litellm.yaml").read_text()
    config = config.replace("http://127.0.0.1:8002", gate.guardrails_url)
    with litellm_proxy(tmp_path_factory.mktemp("litellm"), config) as client:
        yield client


def answers_in(gate: LiveProxy) -> list[str]:
    return [item.answer for item in gate.scorer.seen]  # type: ignore[attr-defined]


def test_a_sure_reply_passes_and_is_scored_with_its_question(
    gate: LiveProxy, litellm: httpx.Client
) -> None:
    response = ask(litellm, "Paris p=0.9")
    assert response.status_code == 200, response.text
    assert response.json()["choices"][0]["message"]["content"] == "Paris p=0.9"
    [item] = [each for each in gate.scorer.seen if each.answer == "Paris p=0.9"]  # type: ignore[attr-defined]
    assert "Paris p=0.9" in str(item.question)


def test_an_unsure_reply_is_blocked_with_the_id_of_its_review(litellm: httpx.Client) -> None:
    response = ask(litellm, "London p=0.1")
    assert response.status_code == 400
    message = response.json()["error"]["message"]
    assert "held for review" in message
    assert "chatcmpl-held-" in message
    assert "London" not in response.text


def test_an_unsure_call_is_blocked(litellm: httpx.Client) -> None:
    """The upstream's call, with a confidence of 0.5, is blocked."""
    response = ask(litellm, '{"order": 7}', "tools", tools=[TOOL])
    assert response.status_code == 400
    assert "held for review" in response.json()["error"]["message"]


def test_a_stream_is_scored_once_and_whole(gate: LiveProxy, litellm: httpx.Client) -> None:
    """A stream is scored once and whole; as its text is out by then, only its end is withheld."""
    sure = ask(litellm, "Rome is old p=0.95", stream=True)
    assert "[DONE]" in sure.text
    assert answers_in(gate).count("Rome is old p=0.95") == 1
    assert not any(a != "Rome is old p=0.95" and a.startswith("Rome") for a in answers_in(gate))
    unsure = ask(litellm, "Oslo is old p=0.05", stream=True)
    assert "held for review" in unsure.text
    assert '"finish_reason":"stop"' not in unsure.text
