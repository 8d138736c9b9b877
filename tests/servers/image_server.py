"""A web server on loopback from which images are fetched, honest or not.

    with ImageServer() as server:
        httpx.get(f"{server.url}/png").content
        server.seen[0].headers

The path chooses what it does: a kind that `answers` knows, `/to/URL` for a redirect there, or

    circle    a redirect to itself
    drip      a head at once, a byte now and then
    silent    no answer at all
    endless   bytes without an end and without a length
    promises  the head of 1 GB, and then nothing
    short     fewer bytes than it announced
    closed    the connection is closed at once
"""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from tests.builders.pictures import JPEG, PNG

GIGABYTE = 2**30
PART = b"\x89PNG\r\n\x1a\n" + b"x" * 2**16


@dataclass(frozen=True)
class ImageRequest:
    path: str
    headers: Mapping[str, str]


class ImageServer:
    """A server in a context; `sent` counts the bytes of `endless`."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.seen: list[ImageRequest] = []
        self.sent = 0
        self.answers: dict[str, tuple[int, str, bytes]] = {
            "/png": (200, "image/png", PNG),
            "/jpeg": (200, "image/jpeg", JPEG),
            "/untyped": (200, "text/plain", PNG),
            "/html": (200, "image/png", b"<html>not found</html>"),
            "/empty": (200, "image/png", b""),
            "/missing": (404, "image/png", PNG),
            "/partial": (206, "image/png", PNG),
            "/failing": (500, "text/plain", b"no"),
        }
        self._is_over = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                fields = {name.lower(): value for name, value in self.headers.items()}
                server.seen.append(ImageRequest(self.path, fields))
                self.close_connection = True
                with contextlib.suppress(OSError):  # the client has left, as some tests want
                    server._answer(self)

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_port
        self.url = f"http{'' if context is None else 's'}://127.0.0.1:{self.port}"

    def __enter__(self) -> ImageServer:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def forget(self) -> None:
        self.seen.clear()

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        path = handler.path.partition("?")[0]
        if path.startswith("/to/"):
            self._head(handler, 302, location=unquote(path.removeprefix("/to/")))
        elif path == "/circle":
            self._head(handler, 302, location="/circle")
        elif path in self.answers:
            status, kind, body = self.answers[path]
            self._head(handler, status, content_type=kind, content_length=str(len(body)))
            handler.wfile.write(body)
        elif path == "/drip":
            self._head(handler, 200, content_length=str(len(PNG)))
            while not self._is_over.wait(0.05):
                handler.wfile.write(b"\x89")
        elif path == "/silent":
            self._is_over.wait(20)
        elif path == "/endless":
            self._head(handler, 200)
            while self.sent < GIGABYTE:
                handler.wfile.write(PART)
                self.sent += len(PART)
        elif path == "/promises":
            self._head(handler, 200, content_length=str(GIGABYTE))
            self._is_over.wait(20)
        elif path == "/short":
            self._head(handler, 200, content_length=str(len(PNG) + 9))
            handler.wfile.write(PNG)

    def _head(self, handler: BaseHTTPRequestHandler, status: int, **fields: str) -> None:
        handler.send_response(status)
        for name, value in {"connection": "close", **fields}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
