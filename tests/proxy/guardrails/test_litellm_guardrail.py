"""A real LiteLLM proxy asks about its replies, configured as `examples/gateways/litellm.yaml`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.running.live_proxy import ROOT, LiveProxy, environment, free_port, until
from tests.servers.faulty_upstream import FaultyUpstream

TOKEN = "a-token-of-the-guardrails"
EXAMPLES = ROOT / "examples" / "gateways"
PYTHON = ROOT / ".venv-clients" / "litellm" / "bin" / "python"
# as the program `litellm` does, with fewer walks through what it imports
STARTED = """
import gc, sys
gc.set_threshold(50_000, 20, 50)
from litellm import run_server
sys.exit(run_server())
"""
START_S = 120  # it imports for ten seconds on a machine that does nothing else
KEY = "sk-litellm-tests"
TOOL = {"type": "function", "function": {"name": "refund_order", "parameters": {}}}


@contextmanager
def running(command: list[str], folder: Path, ready: str, **env: str) -> Iterator[None]:
    """A gateway in a process of its own, from its first answer on."""
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, cwd=folder, env=environment() | env
        )
    try:

        def answers() -> bool:
            assert process.poll() is None, (folder / "output").read_text()
            try:
                return httpx.get(ready, trust_env=False, timeout=5).status_code == 200
            except httpx.TransportError:
                return False

        until(answers, START_S)
        yield
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture(scope="module", name="gate")
def running_gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveProxy]:
    """What LiteLLM asks; of its upstreams it knows none."""
    proxy = LiveProxy(
        "http://127.0.0.1:9/v1",
        tmp_path_factory.mktemp("gate"),
        policy=EXAMPLES / "guard.yaml",
        guardrails={"port": 0, "token": TOKEN},
    )
    yield proxy
    proxy.stop()


@pytest.fixture(scope="module", name="litellm")
def running_litellm(
    gate: LiveProxy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx.Client]:
    """A client of LiteLLM's proxy, which asks a demo upstream that answers as it is told."""
    assert PYTHON.exists(), f"{PYTHON} is missing: run scripts/setup_clients"
    folder, port = tmp_path_factory.mktemp("litellm"), free_port()
    config = (EXAMPLES / "litellm.yaml").read_text()
    config = config.replace("http://127.0.0.1:8002", gate.guardrails_url)
    with FaultyUpstream() as upstream:
        route = "api_key: os.environ/OPENAI_API_KEY"
        assert route in config
        config = config.replace(route, f"{route}, api_base: {upstream.base_url}")
        (folder / "litellm.yaml").write_text(config)
        options = ["--config", "litellm.yaml", "--host", "127.0.0.1", "--port", str(port)]
        command = [str(PYTHON), "-c", STARTED, *options, "--telemetry", "False"]
        env = {
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LITELLM_MASTER_KEY": KEY,
            "OPENAI_API_KEY": "sk-upstream",
            "PINOCCHIO_GUARDRAILS_TOKEN": TOKEN,
        }
        url = f"http://127.0.0.1:{port}"
        with running(command, folder, f"{url}/health/liveliness", **env):
            headers = {"authorization": f"Bearer {KEY}"}
            with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=30) as client:
                yield client


def ask(client: httpx.Client, text: str, model: str = "ok", **fields: Any) -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": text}], **fields}
    return client.post("/v1/chat/completions", json=body)


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
    """The upstream's call has a confidence of 0.5."""
    response = ask(litellm, '{"order": 7}', "tools", tools=[TOOL])
    assert response.status_code == 400
    assert "held for review" in response.json()["error"]["message"]


def test_a_stream_is_scored_once_and_whole(gate: LiveProxy, litellm: httpx.Client) -> None:
    """Its text has gone out by then; what is withheld is its end."""
    sure = ask(litellm, "Rome is old p=0.95", stream=True)
    assert "[DONE]" in sure.text
    assert answers_in(gate).count("Rome is old p=0.95") == 1
    assert not any(a != "Rome is old p=0.95" and a.startswith("Rome") for a in answers_in(gate))
    unsure = ask(litellm, "Oslo is old p=0.05", stream=True)
    assert "held for review" in unsure.text
    assert '"finish_reason":"stop"' not in unsure.text
