"""A request leaves no objects that only the collector of cycles could free."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
import uvicorn

from calibrator import FakeScorer
from proxy.config.sections import Config
from proxy.http.listener.sockets import server_settings
from proxy.store import retention
from tests.running.live_proxy import create_app

ROOT = Path(__file__).parents[2]
REQUESTS = 8
CASES = [(is_stream, http) for is_stream in (False, True) for http in ("ours", "httptools")]


def replies(connection: socket.socket, is_stream: bool, count: int) -> list[bytes]:
    """Read replies of the demo, one after the other, to the ends of their bodies."""
    asked = {"model": "demo", "stream": is_stream, "messages": [{"role": "user", "content": "Hi"}]}
    body = json.dumps(asked).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n"
    end = b"0\r\n\r\n" if is_stream else b"}}"
    found = []
    for _ in range(count):
        connection.sendall(head % len(body) + body)
        reply = connection.recv(2**16)
        while not reply.endswith(end):
            reply += connection.recv(2**16)
        found.append(reply)
    return found


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> list[int]:
    """Return the objects that each case leaves, counted in a process without other cycles."""
    program = "from tests.proxy.test_garbage import print_all; print_all()"
    command = [sys.executable, "-c", program, str(tmp_path_factory.mktemp("garbage"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("left ")]


def print_all() -> None:
    """Fork for each case, so that what they need is imported once."""
    for number, case in enumerate(CASES):
        if os.fork() == 0:
            folder = Path(sys.argv[1], str(number))
            folder.mkdir()
            print("left", asyncio.run(left_by_requests(folder, *case)), flush=True)
            os._exit(0)
        os.wait()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[1]}-{case[0]}")
def test_a_request_leaves_no_cycle(left: list[int], case: tuple[bool, str]) -> None:
    """A request frees at its end all that it needed, under our server and under uvicorn's own.

    Collecting it later would take a tenth of the request's time. Uvicorn's server cannot notice
    that a client leaves.
    """
    assert left[CASES.index(case)] < REQUESTS


@patch.object(retention, "FIRST_AFTER_S", 3_600.0)  # it compiles statements, which leaves cycles
async def left_by_requests(tmp_path: Path, is_stream: bool, http: str) -> int:
    """Return how many objects only the collector of cycles frees, after REQUESTS requests."""
    config = Config.model_validate(
        {
            "upstreams": {"demo": {"demo": True}},
            "models": [{"match": "demo", "upstream": "demo"}],
            "store": f"sqlite:///{tmp_path / 'store.db'}",
            "records": {"keep_days": 0},
        }
    )
    app = create_app(config, load=lambda: FakeScorer(0.7))
    settings = server_settings(app, config.limits)
    settings.http = settings.http if http == "ours" else http
    server = uvicorn.Server(settings)
    listening = socket.create_server(("127.0.0.1", 0))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    client = socket.create_connection(listening.getsockname(), timeout=30)
    try:
        for _ in range(500):  # until the scorer is there
            [reply] = await asyncio.to_thread(replies, client, is_stream, 1)
            if b'"confidence":0.7' in reply:
                break
            await asyncio.sleep(0.01)
        gc.collect()
        gc.disable()
        await asyncio.to_thread(replies, client, is_stream, REQUESTS)
        await asyncio.sleep(0.1)  # tasks that end with the reply have ended by then
        return gc.collect()
    finally:
        gc.enable()
        client.close()
        server.should_exit = True
        await serving
