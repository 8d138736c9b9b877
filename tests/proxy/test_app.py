"""The application: it answers at once, loads its calibrator meanwhile, and imports little."""

from __future__ import annotations

import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import httpx
import pytest

from calibrator.checkpoints import extras
from proxy.config.sections import Config
from proxy.startup.startup import gpu_line
from proxy.upstreams.demo.demo import EMBEDDED_AUROC, first_question
from tests.running.live_proxy import (
    ROOT,
    LiveProxy,
    ProxyProcess,
    create_app,
    environment,
    question,
    until,
)
from tests.servers.faulty_upstream import FaultyUpstream

PATIENCE_S = 60  # about one second on an idle machine; a busy one must not fail the suite

SLOW_TO_LOAD = """
import socket, sys, time
import uvicorn
from dataclasses import replace
from proxy.app import create_app_of
from proxy.config.sections import Config
from proxy.config.setup import load_setup

upstreams = {"faulty": {"base_url": sys.argv[1]}}
models = ({"match": "*", "upstream": "faulty"},)
store = f"sqlite:///{sys.argv[2]}/held.db"
config = Config.model_validate({"upstreams": upstreams, "models": models, "store": store})
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
setup = replace(load_setup(None), config=config)
app = create_app_of(setup, load=lambda: time.sleep(3600))
uvicorn.Server(uvicorn.Config(app, log_config=None)).run(sockets=[listening])
"""


def test_importing_the_application_loads_no_model_library() -> None:
    """`import proxy.app` in a fresh interpreter loads neither torch nor litellm."""
    code = "import sys, proxy.app; print(*sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=environment(),
    )
    loaded = {name.split(".")[0] for name in found.stdout.split()}
    assert "proxy" in loaded
    assert not loaded & {"torch", "transformers", "litellm", "sklearn", "scipy"}


def test_the_first_answer_does_not_wait_for_the_calibrator(
    upstream: FaultyUpstream, tmp_path: Path
) -> None:
    """A new process relays its first request at once, as `loading`; its time is printed."""
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_TO_LOAD, upstream.base_url, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment(),
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        url = f"http://127.0.0.1:{port}/v1/chat/completions"
        response = httpx.post(url, json=question("p=0.7"), timeout=PATIENCE_S)
        took_s = time.perf_counter() - started
    finally:
        process.terminate()
        process.communicate(timeout=20)
    print(f"first answer after {took_s:.2f} s")
    assert response.status_code == 200
    assert response.headers["x-pinocchio-confidence-status"] == "loading"


def test_the_shipped_calibrator_answers_as_it_is_started(tmp_path: Path) -> None:
    """`pinocchio serve` with its defaults loads the calibrator and scores the demo's replies."""
    config = f"store: sqlite:///{tmp_path}/held.db"
    with ProxyProcess(tmp_path, config) as proxy:
        asked = question(first_question(), "demo")
        response = httpx.post(f"{proxy.base_url}/chat/completions", json=asked, timeout=PATIENCE_S)
        until(lambda: "curl" in proxy.stdout(), PATIENCE_S)
        invitation = proxy.stdout()
    assert response.headers["x-pinocchio-confidence-status"] == "scored"
    assert response.headers["x-pinocchio-calibrator"].startswith("embedded@")
    assert f"AUROC {EMBEDDED_AUROC:.2f}" in invitation


def test_nothing_is_opened_before_the_start(tmp_path: Path) -> None:
    """Creating the application opens no store and sends nothing to an upstream."""
    create_app(Config(store=f"sqlite:///{tmp_path}/held.db"))
    assert list(tmp_path.iterdir()) == []


def test_a_stopped_proxy_is_gone(upstream: FaultyUpstream, tmp_path: Path) -> None:
    """Stopping closes the port, the store and the connections upstream."""
    proxy = LiveProxy(upstream.base_url, tmp_path)
    assert proxy.ask().status_code == 200
    url = proxy.url
    proxy.stop()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/livez")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["held.db", "held.db.chain-key"]


def test_a_websocket_is_refused(proxy: LiveProxy) -> None:
    """The proxy has no websockets: a request for one is refused, or answered as plain HTTP."""
    headers = {
        "connection": "upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    response = proxy.http.get("/v1/realtime", headers=headers)
    assert response.status_code != 101
    assert response.status_code < 500


def test_the_start_says_how_to_use_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a driver and the extra are present, one line at the
    start says how to use a GPU; torch is not imported for it.
    """
    is_loaded = "torch" in sys.modules
    monkeypatch.setattr(extras, "has_gpu_and_torch", partial(extras.has_gpu_and_torch, tmp_path))
    assert gpu_line(Config()) == []
    (tmp_path / "nvidia0").touch()
    [line] = gpu_line(Config())
    assert "checkpoint: KevinDavidHayes/pinocchio-0.8b" in line
    monkeypatch.setattr(extras, "is_installed", lambda module: module != "peft")
    assert gpu_line(Config()) == [], "the extra is not there"
    assert ("torch" in sys.modules) is is_loaded
