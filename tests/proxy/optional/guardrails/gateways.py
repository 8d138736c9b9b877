"""Other gateways in processes of their own, which ask a proxy's guardrails about replies."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.running.live_proxy import ROOT, LiveProxy, environment, free_port, until
from tests.servers.faulty_upstream import FaultyUpstream

TOKEN = "a-token-of-the-guardrails"
EXAMPLES = ROOT / "examples" / "gateways"
PYTHON = ROOT / ".venv-clients" / "litellm" / "bin" / "python"
# As the program `litellm` does, with fewer searches through what it imports.
STARTED = """
import gc, sys
gc.set_threshold(50_000, 20, 50)
from litellm import run_server
sys.exit(run_server())
"""
START_S = 120  # it imports for ten seconds on an idle machine
KEY = "sk-litellm-tests"
TOOL = {"type": "function", "function": {"name": "refund_order", "parameters": {}}}


@contextmanager
def running(command: list[str], folder: Path, ready: str, **env: str) -> Iterator[None]:
    """Run a gateway in its own process from its first answer to the end of this context."""
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


@contextmanager
def guarding(folder: Path) -> Iterator[LiveProxy]:
    """Yield a proxy that gateways ask for verdicts; it has no working upstream."""
    proxy = LiveProxy(
        "http://127.0.0.1:9/v1",
        folder,
        policy=EXAMPLES / "guard.yaml",
        guardrails={"port": 0, "token": TOKEN},
    )
    try:
        yield proxy
    finally:
        proxy.stop()


@contextmanager
def litellm_proxy(folder: Path, config: str, **env: str) -> Iterator[httpx.Client]:
    """Yield a client of LiteLLM's proxy, whose upstream answers by the model's name."""
    assert PYTHON.exists(), f"{PYTHON} is missing: run scripts/setup_clients"
    port = free_port()
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
        } | env
        url = f"http://127.0.0.1:{port}"
        with running(command, folder, f"{url}/health/liveliness", **env):
            headers = {"authorization": f"Bearer {KEY}"}
            with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=30) as client:
                yield client


def ask(client: httpx.Client, text: str, model: str = "ok", **fields: Any) -> httpx.Response:
    """Request a chat completion with one user message."""
    body = {"model": model, "messages": [{"role": "user", "content": text}], **fields}
    return client.post("/v1/chat/completions", json=body)
