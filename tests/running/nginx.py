"""An nginx that the tests start, in front of a server that records the requests it gets."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.proxy.http.listener.http_recorder import Seen
from tests.running.live_proxy import free_port, until

CONFIG = """
daemon off; master_process off; worker_processes 1; pid {folder}/pid;
error_log {folder}/error.log crit;
events {{ worker_connections 512; }}
http {{
    access_log off; lingering_close off; client_max_body_size 0; keepalive_requests 100000;
    proxy_ignore_client_abort on; proxy_temp_path {folder}/p; client_body_temp_path {folder}/b;
    fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
    server {{
        listen 127.0.0.1:{port};
        proxy_set_header x-port $remote_port;
        location / {{ proxy_pass http://127.0.0.1:{behind}; {more} }}
    }}
}}
"""


class Nginx:
    """An nginx in a context; `seen_of` has the requests as nginx has read them,
    by the client's port. With `behind`, it forwards to that port instead.
    """

    def __init__(self, behind: int | None = None, more: str = "") -> None:
        self.seen_of: defaultdict[int, list[Seen]] = defaultdict(list)
        self.port = free_port()
        self._behind = behind
        self._more = more
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Nginx:
        self._folder = tempfile.mkdtemp(prefix="nginx-")
        behind = self._behind
        if behind is None:
            self._thread.start()
            listening = self._loop.create_server(lambda: _Behind(self.seen_of), "127.0.0.1", 0)
            self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result(5)
            behind = self._server.sockets[0].getsockname()[1]
        text = CONFIG.format(folder=self._folder, port=self.port, behind=behind, more=self._more)
        path = Path(self._folder, "nginx.conf")
        path.write_text(text)
        program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin") or "nginx"
        self._process = subprocess.Popen(
            [program, "-c", str(path), "-p", self._folder], stderr=subprocess.DEVNULL
        )
        until(lambda: Path(self._folder, "pid").exists())
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(10)
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._server.close)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(5)
        self._loop.close()
        shutil.rmtree(self._folder)


class _Behind(asyncio.Protocol):
    """The recording server; nginx sends it HTTP/1.0, one
    request per connection, bodies with their length.
    """

    def __init__(self, seen_of: defaultdict[int, list[Seen]]) -> None:
        self._seen_of = seen_of
        self._data = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, end, body = self._data.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        lengths = [int(line[15:]) for line in lines if line.lower().startswith(b"content-length:")]
        if not end or len(body) < sum(lengths):
            return
        method, target, _ = lines[0].split(b" ")
        port = next(int(line[8:]) for line in lines if line.startswith(b"x-port: "))
        self._seen_of[port].append((method.decode(), target, body))
        self._transport.write(b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok")
        self._transport.close()
