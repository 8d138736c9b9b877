"""A real Portkey gateway asks about its replies, configured as `examples/gateways/portkey.json`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.proxy.optional.guardrails.gateways import EXAMPLES, TOKEN, guarding, running
from tests.running.live_proxy import ROOT, free_port
from tests.servers.faulty_upstream import FaultyUpstream

NODE = ROOT / "tests" / "node"
SERVER = NODE / "node_modules" / "@portkey-ai" / "gateway" / "build" / "start-server.js"
SEEN = {"x-portkey-strict-open-ai-compliance": "false"}  # otherwise `hook_results` stay hidden


@pytest.fixture(scope="module", name="portkey")
def running_portkey(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[httpx.Client, dict[str, Any]]]:
    """Yield a client of the gateway, and the example's configuration with local addresses."""
    assert SERVER.exists(), f"{SERVER} is missing: npm ci in {NODE}"
    folder, port = tmp_path_factory.mktemp("portkey"), free_port()
    url = f"http://127.0.0.1:{port}"
    command = ["node", "--require", str(NODE / "loopback.cjs"), str(SERVER), f"--port={port}"]
    with (
        guarding(tmp_path_factory.mktemp("gate")) as gate,
        FaultyUpstream() as upstream,
        running([*command, "--headless"], folder, url),
    ):
        text = (EXAMPLES / "portkey.json").read_text().replace("YOUR_TOKEN", TOKEN)
        config = json.loads(text.replace("http://127.0.0.1:8002", gate.guardrails_url))
        config |= {"custom_host": upstream.base_url, "api_key": "sk-upstream"}
        with httpx.Client(base_url=url, trust_env=False, timeout=30) as client:
            yield client, config


def ask(
    portkey: tuple[httpx.Client, dict[str, Any]], text: str, *, deny: bool = True, **fields: Any
) -> httpx.Response:
    client, config = portkey
    [guardrail] = config["output_guardrails"]
    config = {**config, "output_guardrails": [{**guardrail, "deny": deny}]}
    headers = {"x-portkey-config": json.dumps(config), **SEEN}
    body = {"model": "ok", "messages": [{"role": "user", "content": text}], **fields}
    return client.post("/v1/chat/completions", json=body, headers=headers)


def data_in(response: httpx.Response) -> dict[str, Any]:
    """Return the data of the webhook's answer, as the client receives it."""
    [hook] = response.json()["hook_results"]["after_request_hooks"]
    found: dict[str, Any] = hook["checks"][0]["data"]["responseData"]
    return found


def test_a_sure_reply_passes_with_its_confidence(portkey: Any) -> None:
    response = ask(portkey, "Paris p=0.9")
    assert response.status_code == 200, response.text
    assert response.json()["choices"][0]["message"]["content"] == "Paris p=0.9"
    assert (data_in(response)["confidence"], data_in(response)["status"]) == (0.9, "scored")


def test_an_unsure_reply_is_denied(portkey: Any) -> None:
    """An unsure reply gets Portkey's status 446."""
    response = ask(portkey, "London p=0.1")
    assert response.status_code == 446
    assert data_in(response)["review_id"].startswith("chatcmpl-held-")
    assert "London" not in response.text


def test_without_deny_the_reply_is_replaced(portkey: Any) -> None:
    """Without `deny` the client gets a completion that says so, with Portkey's status 246."""
    response = ask(portkey, "London p=0.1", deny=False)
    assert response.status_code == 246
    [choice] = response.json()["choices"]
    assert choice["finish_reason"] == "content_filter"
    assert "held for review" in choice["message"]["content"]
