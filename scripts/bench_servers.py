"""The servers of the benchmark: each a process of its own on a free port of loopback.

    python scripts/bench_servers.py upstream           a canned completion of about 1 KB
    python scripts/bench_servers.py pass-through URL   the least that Starlette and httpx need

Both print their URL first, as `pinocchio serve` does in its greeting; `start` reads it.
"""

from __future__ import annotations

import json
import math
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

QUESTION = "A train leaves at 23:50 and needs 25 minutes. When, and on what day, does it arrive?"
_SENTENCE = "It leaves ten minutes before midnight, so fifteen of the minutes lie after midnight. "
_COMPLETION = {
    "id": "chatcmpl-bench",
    "object": "chat.completion",
    "created": 1767225600,
    "model": "bench",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": _SENTENCE * 8 + "At 00:15 the next day."},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 23, "completion_tokens": 150, "total_tokens": 173},
}


@dataclass(frozen=True, slots=True)
class Server:
    """A running process and the address of its `/v1`."""

    pid: int
    url: str

    def cpu_s(self) -> float:
        """CPU time of all its threads so far; nan where there is no /proc."""
        folder = Path(f"/proc/{self.pid}/task")
        try:  # nanoseconds, where /proc/PID/stat counts in hundredths of a second
            times = [int((t / "schedstat").read_text().split()[0]) for t in folder.iterdir()]
        except (OSError, ValueError, IndexError):
            return math.nan
        return sum(times) / 1e9


@contextmanager
def start(arguments: Sequence[str]) -> Iterator[Server]:
    """Runs `python ARGUMENTS..` until the block ends; raises RuntimeError if it fails to."""
    with tempfile.TemporaryFile("w+") as log:
        command = [sys.executable, *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert process.stdout is not None
        try:
            found = re.search(r"http://\S+", process.stdout.readline())
            if found is None or not _is_ready(found[0]):
                log.seek(0)
                raise RuntimeError(f"{' '.join(arguments)} did not come up:\n{log.read()[-2_000:]}")
            yield Server(process.pid, found[0])
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()


def _is_ready(url: str, within_s: float = 120) -> bool:
    """Waits until `/readyz` says so: a proxy is ready when its calibrator is loaded."""
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
    """Answers everything with the same bytes, with nothing between them and uvicorn."""
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(_BODY))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": _BODY})


_BODY = json.dumps(_COMPLETION).encode()


def pass_through(url: str) -> Any:
    """A relay as one would write it in ten minutes: no scores, no policies, no streams."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, Response
    from starlette.routing import Route

    client = httpx.AsyncClient(trust_env=False, timeout=60)

    async def relay(request: Request) -> Response:
        kept = {k: v for k, v in request.headers.items() if k not in ("host", "content-length")}
        target = url + request.url.path.removeprefix("/v1")
        reply = await client.post(target, content=await request.body(), headers=kept)
        media_type = reply.headers["content-type"]
        return Response(reply.content, reply.status_code, media_type=media_type)

    async def ready(_: Request) -> Response:
        return PlainTextResponse("ok")

    @asynccontextmanager
    async def lifespan(_: Starlette) -> Any:
        async with client:
            yield

    routes = [Route("/readyz", ready), Route("/v1/{path:path}", relay, methods=["POST"])]
    return Starlette(routes=routes, lifespan=lifespan)


@contextmanager
def start_proxy(upstream_url: str, checkpoint: str, folder: Path) -> Iterator[Server]:
    """`pinocchio serve` with its default policy in front of the upstream."""
    path = folder / f"{'off' if checkpoint == 'none' else 'on'}.yaml"
    config = {
        "upstreams": {"bench": {"base_url": upstream_url}},
        "models": [{"match": "*", "upstream": "bench"}],
        "calibrator": {"checkpoint": checkpoint, "device": "cpu", "timeout_s": 30.0},
        "store": f"sqlite:///{folder / 'bench.db'}",
    }
    path.write_text(json.dumps(config))  # JSON is YAML
    with start(["-m", "pinocchio", "serve", "--config", str(path), "--port", "0"]) as server:
        yield server


def _serve(app: Any) -> None:
    listening = socket.create_server(("127.0.0.1", 0), backlog=2_048)
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/v1", flush=True)
    settings = uvicorn.Config(app, log_level="warning", access_log=False, http="httptools")
    uvicorn.Server(settings).run(sockets=[listening])


if __name__ == "__main__":
    _serve(upstream if sys.argv[1] == "upstream" else pass_through(sys.argv[2]))
