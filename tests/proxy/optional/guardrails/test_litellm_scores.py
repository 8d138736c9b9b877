"""A real LiteLLM proxy with our class, configured as `examples/gateways/litellm_scores.yaml`."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.proxy.optional.guardrails.gateways import (
    EXAMPLES,
    PYTHON,
    TOOL,
    ask,
    guarding,
    litellm_proxy,
)
from tests.running.live_proxy import ROOT, LiveProxy, environment


@pytest.fixture(scope="module", name="gate")
def running_gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveProxy]:
    """Yield the proxy that the guardrail class asks."""
    with guarding(tmp_path_factory.mktemp("gate")) as gate:
        yield gate


@pytest.fixture(scope="module", name="litellm")
def running_litellm(
    gate: LiveProxy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("litellm")
    shutil.copy(EXAMPLES / "pinocchio_scores.py", folder)
    env = {"PINOCCHIO_GUARDRAILS_URL": gate.guardrails_url, "PYTHONPATH": str(ROOT)}
    with litellm_proxy(folder, (EXAMPLES / "litellm_scores.yaml").read_text(), **env) as client:
        yield client


def members(stream: str) -> list[Any]:
    lines = [line[6:] for line in stream.splitlines() if line.startswith("data: {")]
    return [found["pinocchio"] for found in map(json.loads, lines) if "pinocchio" in found]


def test_a_whole_reply_has_headers_and_member(gate: LiveProxy, litellm: httpx.Client) -> None:
    """A whole reply has headers and member with the number of reply and question."""
    response = ask(litellm, "Paris p=0.9")
    assert response.status_code == 200, response.text
    assert response.headers["x-pinocchio-confidence"] == "0.9000"
    assert response.headers["x-pinocchio-confidence-status"] == "scored"
    assert response.headers["x-pinocchio-action"] == "deliver"
    assert response.json()["pinocchio"]["confidence"] == 0.9
    [item] = [each for each in gate.scorer.seen if each.answer == "Paris p=0.9"]  # type: ignore[attr-defined]
    assert "Paris p=0.9" in str(item.question)


def test_a_stream_has_the_member_where_it_finishes(litellm: httpx.Client) -> None:
    """A stream has the member on its finish chunk, and headers that say that the number follows."""
    response = ask(litellm, "Rome p=0.95", stream=True)
    assert response.headers["x-pinocchio-confidence-status"] == "pending"
    [member] = members(response.text)
    assert member["confidence"] == 0.95
    [finish] = [line for line in response.text.splitlines() if '"finish_reason":"stop"' in line]
    assert '"pinocchio"' in finish
    assert response.text.rstrip().endswith("[DONE]")


def test_what_is_held_is_an_error(litellm: httpx.Client) -> None:
    """A held reply or call is an error with the review's id, and without the reply."""
    for response in (
        ask(litellm, "London p=0.1"),
        ask(litellm, "call p=0.1", "tools", tools=[TOOL]),
    ):
        assert response.status_code == 422, response.text
        assert "chatcmpl-held-" in response.text
        assert "held for review" in response.text
        assert "London" not in response.text


def test_a_held_stream_ends_in_an_error(litellm: httpx.Client) -> None:
    """A held stream ends with an error, as its text is out by then."""
    response = ask(litellm, "Oslo p=0.05", stream=True)
    assert "held for review" in response.text
    assert members(response.text) == []
    assert '"finish_reason":"stop"' not in response.text


UNREACHED = """
import asyncio
from fastapi import HTTPException
from litellm import ModelResponse
from pinocchio.litellm import scoring

async def told(**options):
    data = {"messages": [], "litellm_call_id": "1"}
    scores = scoring("http://127.0.0.1:9", "", **options)
    try:
        reply = await scores.async_post_call_success_hook(data, None, ModelResponse())
    except HTTPException as error:
        return error.status_code
    headers = await scores.async_post_call_response_headers_hook(data, None, reply)
    return reply.pinocchio["status"], headers["x-pinocchio-confidence-status"]

print(asyncio.run(told()), asyncio.run(told(fail_closed=True)))
"""


def test_while_nobody_answers_replies_pass_or_are_withheld() -> None:
    """While the proxy is away `fail_closed` decides; a reply that passes says it has no number."""
    env = environment() | {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [PYTHON, "-c", UNREACHED], env=env, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "('error', 'error') 422", done.stderr
