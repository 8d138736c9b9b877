"""The review desk's client for agents copes with a proxy that restarts or is not at the URL."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pinocchio.desk import Desk, DeskError
from tests.running.live_proxy import free_port

OPEN = {"review_id": "chatcmpl-held-1", "state": "open", "verdict": None}


@contextmanager
def answering(port: int, *answers: tuple[int, bytes], after_s: float = 0) -> Iterator[list[str]]:
    """Serve these answers in turn and repeat the last one; yield the paths requested."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.do_GET()

        def do_GET(self) -> None:
            status, body = answers[min(len(paths), len(answers) - 1)]
            paths.append(self.path)
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    started = threading.Event()
    servers: list[ThreadingHTTPServer] = []

    def serve() -> None:
        time.sleep(after_s)
        servers.append(ThreadingHTTPServer(("127.0.0.1", port), Handler))
        started.set()
        servers[0].serve_forever()

    threading.Thread(target=serve, daemon=True).start()
    yield paths
    assert started.wait(10)
    servers[0].shutdown()
    servers[0].server_close()


def desk_at(port: int, patience_s: float = 30) -> Desk:
    return Desk(f"http://127.0.0.1:{port}/v1", "key", patience_s=patience_s)


def test_a_restart_is_waited_for() -> None:
    """A call reaches the desk once the proxy is back, whatever answers before."""
    port = free_port()
    answers = (503, b"starting"), (200, json.dumps(OPEN).encode())
    with answering(port, *answers, after_s=1.5) as paths:
        assert desk_at(port).hold("c", "refund", {}, []).review_id == "chatcmpl-held-1"
        assert paths == ["/pinocchio/v1/calls"] * 2


def test_nobody_is_waited_for_without_end() -> None:
    """When its patience ends, the client raises an error that says where nothing answers."""
    port = free_port()
    with pytest.raises(OSError, match=f"nothing answers at http://127.0.0.1:{port}/pinocchio"):
        desk_at(port, patience_s=0).verdict("chatcmpl-held-1")


@pytest.mark.parametrize(
    "answer",
    [
        (404, b"<html>Not Found</html>"),
        (404, b'{"error": {"message": "Not Found", "code": null}}'),
        (404, b'{"error": {"message": "no such path", "code": "unknown_url"}}'),
        (502, b'{"error": {"message": "no host", "code": "upstream_unreachable"}}'),
        (200, b"<html>Welcome</html>"),
        (200, b'{"object": "list"}'),
    ],
)
def test_a_url_where_there_is_no_proxy(answer: tuple[int, bytes]) -> None:
    """The error asks whether the URL is the proxy's, and is raised at once."""
    port = free_port()
    with answering(port, answer), pytest.raises(DeskError, match="is this the proxy") as caught:
        desk_at(port).hold("c", "refund", {}, [])
    assert f"no review desk at http://127.0.0.1:{port};" in str(caught.value)


def test_proxy_errors_keep_status_and_message() -> None:
    """An error of the proxy keeps its status, code and message."""
    refused = {"error": {"message": "no such review", "code": "review_not_found"}}
    port = free_port()
    answer = (404, json.dumps(refused).encode())
    with answering(port, answer), pytest.raises(DeskError, match="no such review") as caught:
        desk_at(port).verdict("chatcmpl-held-1")
    assert (caught.value.status, caught.value.code) == (404, "review_not_found")
