"""Servers that compute scores, on loopback: our own real one, and one that sends scripted replies.

with LiveScoringServer(WordScorer()) as server:      # the real one, around any scorer
    httpx.post(f"{server.url}/pinocchio/v1/score", json={"items": [...]})

with SaidServer(answer) as server:                   # `answer(path, body)` gives a whole reply
    ...
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from calibrator import Scorer
from proxy.config.sections import Config
from proxy.http.listener.sockets import server_settings
from proxy.http.wire.http import ASGIApplication
from proxy.scoring.server.app import scoring_app
from tests.running.live_proxy import until
from tests.running.served import Served
from tests.servers.raw_server import Peer, RawServer

Json = dict[str, Any]
Play = Callable[[Peer], None]
Answer = Callable[[str, Any], bytes | Play]


class ServedApp(Served):
    """An ASGI application with the settings of ours."""

    def __init__(self, app: ASGIApplication, config: Config | None = None, port: int = 0) -> None:
        super().__init__(server_settings(app, (config or Config()).limits, grace_s=1), port)


@contextmanager
def live_scoring_server(
    scorer: Scorer | Callable[[], Scorer], /, port: int = 0, **sections: Any
) -> Iterator[ServedApp]:
    """Yield our scoring server around a scorer, ready at once, or around a loader of one."""
    config = Config.model_validate({"calibrator": {"checkpoint": "fake:0.5"}, **sections})
    load = scorer if callable(scorer) else lambda: scorer
    with ServedApp(scoring_app(config, load=load), config, port) as server:
        if load is not scorer:
            until(lambda: httpx.get(f"{server.url}/readyz").status_code == 200)
        yield server


def said(value: Any, status: int = 200, *fields: bytes) -> bytes:
    """Return a whole reply; a value that is not bytes is sent as JSON, which may contain NaN."""
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    kind = b"text/html" if isinstance(value, bytes) else b"application/json"
    head = [b"HTTP/1.1 %d Said" % status, b"content-type: " + kind, *fields]
    return b"\r\n".join([*head, b"content-length: %d" % len(body), b"", body])


class SaidServer(RawServer):
    """Answers each request with what `answer(path, body)` returns: bytes, or a function that sends.

    Without `keeps` each connection is closed after its first answer.
    """

    def __init__(self, answer: Answer, *, keeps: bool = True) -> None:
        super().__init__(self._serve)
        self._answer = answer
        self._keeps = keeps
        self.url = self.base_url.removesuffix("/v1")

    def _serve(self, peer: Peer) -> None:
        while (seen := peer.request()) is not None:
            path = seen.line.split()[1].decode()
            reply = self._answer(path, json.loads(seen.body) if seen.body else None)
            if isinstance(reply, bytes):
                peer.send(reply)
            else:
                reply(peer)
            if not self._keeps:
                return
