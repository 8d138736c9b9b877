"""An upstream that keeps what it makes: a real server on loopback, one key for everybody.

    with StoringUpstream() as upstream:
        httpx.post(f"{upstream.base_url}/files", json={"purpose": "batch"}).json()["id"]

A completion answers with the last user message and is kept with `store: true`; POST to any other
collection makes an object of the body, with an id. All of it can be listed, read and deleted.
"""

from __future__ import annotations

import itertools
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import uvicorn

Json = dict[str, Any]


@dataclass
class StoringUpstream:
    """Stays up inside its context; `requests` are methods and paths since `forget()`."""

    requests: list[tuple[str, str]] = field(default_factory=list)
    kept: dict[str, Json] = field(default_factory=dict)  # by path
    _ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def __enter__(self) -> StoringUpstream:
        self._listening = socket.create_server(("127.0.0.1", 0))
        settings = uvicorn.Config(
            self._app, interface="asgi3", lifespan="off", log_config=None, access_log=False
        )
        self._server = uvicorn.Server(settings)
        run = {"sockets": [self._listening]}
        self._thread = threading.Thread(target=self._server.run, kwargs=run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(10)
        self._listening.close()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}/v1"

    def forget(self) -> None:
        self.requests.clear()

    async def _app(self, scope: Json, receive: Callable[[], Any], send: Callable[..., Any]) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        path = scope["path"].removeprefix("/v1")
        self.requests.append((scope["method"], path))
        status, answer = self._answer(scope["method"], path, body)
        fields = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": fields})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})

    def _answer(self, method: str, path: str, body: bytes) -> tuple[int, Json]:
        if method == "POST":
            return self._made(path, json.loads(body or b"{}"))
        if path in self.kept:
            found = self.kept.pop(path) if method == "DELETE" else self.kept[path]
            return 200, {"id": found["id"], "deleted": True} if method == "DELETE" else found
        data = [each for at, each in self.kept.items() if at.rpartition("/")[0] == path]
        return 200, {"object": "list", "data": data, "has_more": False}

    def _made(self, path: str, asked: Json) -> tuple[int, Json]:
        if path in self.kept or "/items" in path:
            return 200, self.kept.get(path, {"object": "list", "data": asked.get("items", [])})
        made = {**asked, "id": f"{path.strip('/').replace('/', '-')}-{next(self._ids)}"}
        if path == "/chat/completions":
            made = _completion(made["id"], asked)
        if path == "/batches":
            made["output_file_id"] = f"file-of-{made['id']}"
            self.kept[f"/files/{made['output_file_id']}"] = {"id": made["output_file_id"]}
        if path != "/chat/completions" or asked.get("store"):
            self.kept[f"{path}/{made['id']}"] = made
        return 200, made


def _completion(id: str, asked: Json) -> Json:
    text = asked["messages"][-1]["content"]
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {
        "id": id,
        "object": "chat.completion",
        "created": 1,
        "model": asked["model"],
        "choices": [choice],
    }
