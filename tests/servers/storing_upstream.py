"""An upstream that stores what it makes: a real server on loopback, with one key for everybody.

    with StoringUpstream() as upstream:
        httpx.post(f"{upstream.base_url}/files", json={"purpose": "batch"}).json()["id"]

A completion answers with the last user message and is kept with `store: true`; POST to any other
collection makes an object of the body, with an id. All of it can be listed, read and deleted.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.running.served import ServedUpstream, body_of

Json = dict[str, Any]


@dataclass
class StoringUpstream(ServedUpstream):
    """Stays up inside its context; `requests` are methods and paths since `forget()`."""

    requests: list[tuple[str, str]] = field(default_factory=list)
    kept: dict[str, Json] = field(default_factory=dict)  # by path
    _ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def forget(self) -> None:
        self.requests.clear()

    async def _app(self, scope: Json, receive: Callable[[], Any], send: Callable[..., Any]) -> None:
        body = await body_of(receive)
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

    def _made(self, path: str, body: Json) -> tuple[int, Json]:
        if path in self.kept or "/items" in path:
            return 200, self.kept.get(path, {"object": "list", "data": body.get("items", [])})
        made = {**body, "id": f"{path.strip('/').replace('/', '-')}-{next(self._ids)}"}
        if path == "/chat/completions":
            made = _completion(made["id"], body)
        if path == "/batches":
            made["output_file_id"] = f"file-of-{made['id']}"
            self.kept[f"/files/{made['output_file_id']}"] = {"id": made["output_file_id"]}
        if path != "/chat/completions" or body.get("store"):
            self.kept[f"{path}/{made['id']}"] = made
        return 200, made


def _completion(id: str, body: Json) -> Json:
    text = body["messages"][-1]["content"]
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {
        "id": id,
        "object": "chat.completion",
        "created": 1,
        "model": body["model"],
        "choices": [choice],
    }
