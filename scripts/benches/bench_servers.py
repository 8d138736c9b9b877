"""The servers of the benchmark: each a process of its own on a free port of loopback.

    scripts/benches/bench_servers.py upstream                 a canned completion of about 1 KB
    scripts/benches/bench_servers.py pass-through URL [PORT]  a minimal relay of Starlette and httpx

Both print their URL first, as `pinocchio serve` does in its greeting; `start` reads it.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from bench_http import ANSWER, completion
from bench_process import cpu_s, launched

SERVERS = Path(__file__)


@dataclass(frozen=True, slots=True)
class Server:
    """A running process and the address of its `/v1`."""

    pid: int
    url: str

    def cpu_s(self) -> float:
        """Return the CPU seconds of all its threads so far, nan where they cannot be read."""
        return cpu_s(self.pid)


@contextmanager
def start(arguments: Sequence[str], within_s: float = 120) -> Iterator[Server]:
    """Run `python ARGUMENTS..` until the block ends; yield it with the URL that it printed.

    Raises RuntimeError if it prints none, or is not ready within `within_s` seconds.
    """
    command = [sys.executable, *arguments]
    with (
        tempfile.TemporaryFile("w+b") as log,
        launched(command, stdout=subprocess.PIPE, stderr=log) as process,
    ):
        assert process.stdout is not None
        with process.stdout as greeting:
            found = re.search(r"http://\S+", greeting.readline().decode())
            if found is None or not _is_ready(found[0], within_s):
                log.seek(0)
                output = log.read()[-2_000:].decode(errors="replace")
                raise RuntimeError(f"{' '.join(arguments)} did not come up:\n{output}")
            yield Server(process.pid, found[0])


def _is_ready(url: str, within_s: float) -> bool:
    """Return whether `/readyz` answers 200 in time, as a proxy does with a loaded calibrator.

    `url` may end with `/v1`.
    """
    deadline = time.monotonic() + within_s
    with httpx.Client(trust_env=False) as client:
        while time.monotonic() < deadline:
            try:
                if client.get(url.removesuffix("/v1") + "/readyz", timeout=5).status_code == 200:
                    return True
            except httpx.TransportError:
                pass
            time.sleep(0.05)
    return False


async def upstream(scope: Any, receive: Any, send: Any) -> None:
    """Answer every request with the same completion, as a bare ASGI application."""
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(_BODY))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": _BODY})


_BODY = json.dumps(completion(ANSWER)).encode()


def pass_through(url: str) -> Any:
    """Return a relay to the upstream at `url`, as one writes it in ten minutes.

    It is an ASGI application without scores and policies; streams pass through.
    """
    from starlette.applications import Starlette
    from starlette.background import BackgroundTask
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, Response, StreamingResponse
    from starlette.routing import Route

    client = httpx.AsyncClient(trust_env=False, timeout=60)  # with its default limits

    async def relay(request: Request) -> Response:
        """Return upstream's reply to the same request, with its status and media type."""
        kept = {k: v for k, v in request.headers.items() if k not in ("host", "content-length")}
        target = url + request.url.path.removeprefix("/v1")
        forwarded = client.build_request("POST", target, content=await request.body(), headers=kept)
        reply = await client.send(forwarded, stream=True)
        media_type = reply.headers["content-type"]
        if media_type.startswith("text/event-stream"):
            chunks, closing = reply.aiter_raw(), BackgroundTask(reply.aclose)
            return StreamingResponse(
                chunks, reply.status_code, media_type=media_type, background=closing
            )
        return Response(await reply.aread(), reply.status_code, media_type=media_type)

    async def ready(_: Request) -> Response:
        return PlainTextResponse("ok")

    @asynccontextmanager
    async def lifespan(_: Starlette) -> Any:
        async with client:
            yield

    routes = [Route("/readyz", ready), Route("/v1/{path:path}", relay, methods=["POST"])]
    return Starlette(routes=routes, lifespan=lifespan)


def proxy_config(
    upstream_url: str, calibrator: dict[str, object], database: Path
) -> dict[str, object]:
    """Return a proxy's configuration with one upstream for everything.

    `calibrator` is its section of that name, `database` the SQLite file for records.
    """
    return {
        "upstreams": {"bench": {"base_url": upstream_url}},
        "models": [{"match": "*", "upstream": "bench"}],
        "calibrator": calibrator,
        "store": f"sqlite:///{database}",
    }


@contextmanager
def start_proxy(
    upstream_url: str, checkpoint: str, folder: Path, device: str = "cpu", within_s: float = 120
) -> Iterator[Server]:
    """Run `pinocchio serve` in front of the upstream until the block ends, and yield it.

    `checkpoint` is a calibrator, or `none`; `folder` gets the configuration and the records. Raises
    RuntimeError if it is not ready within `within_s` seconds.
    """
    path = folder / f"{'off' if checkpoint == 'none' else 'on'}.yaml"
    calibrator = {"checkpoint": checkpoint, "device": device, "timeout_s": 60.0}
    config = proxy_config(upstream_url, calibrator, folder / "bench.db")
    config["limits"] = {"commit_after_s": 120}  # so that headers say how each reply was scored
    path.write_text(json.dumps(config))  # JSON is YAML
    arguments = ["-m", "pinocchio", "serve", "--config", str(path), "--port", "0"]
    with start(arguments, within_s) as server:
        yield server


def _serve(app: Any, port: int = 0) -> None:
    """Print the URL and serve an ASGI application on a port of loopback, 0 for a free one."""
    listening = socket.create_server(("127.0.0.1", port), backlog=2_048)
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/v1", flush=True)
    settings = uvicorn.Config(app, log_level="warning", access_log=False, http="httptools")
    uvicorn.Server(settings).run(sockets=[listening])


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "upstream":
        _serve(upstream)
    else:
        _serve(pass_through(rest[0]), *map(int, rest[1:]))
