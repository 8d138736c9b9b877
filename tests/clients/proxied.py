"""What every client program here knows: where the proxy is, and what its upstream received.

These programs run in environments of their own, so only the standard library is used.
`tests/client_libraries/test_client_matrix.py` sets the variables.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
import urllib.request
import uuid
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any

Json = dict[str, Any]

PROXY = os.environ["PINOCCHIO_URL"]  # ends in /v1, as OpenAI's clients need it
ORIGIN = PROXY.removesuffix("/v1")  # as Anthropic's clients need it
UPSTREAM = os.environ["UPSTREAM_URL"]
SCORED_SURFACES = set(os.environ["SCORED_SURFACES"].split(","))
KEY = "sk-client"

QUESTION = "How is the weather at the Eiffel tower?"
SENTENCE = "It is sunny in Paris. p=0.92"
CONFIDENCE = 0.92
MESSAGES: list[Any] = [{"role": "user", "content": QUESTION}]
SOON_S = 2
TIMEOUT_S = 0.4  # of a client that gives up; upstream's `slow` takes far longer
CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}  # of errors
RESULT = "sunny"
PIXEL = (  # a PNG of one pixel
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="
)
WEATHER_SCHEMA: Json = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


def named(behaviour: str) -> str:
    """Return a name of a model that has this behaviour and belongs to one test alone."""
    return f"{behaviour}--{uuid.uuid4().hex[:10]}"


def seen(model: str) -> list[Json]:
    """Return the requests for a model that upstream received: path, headers, body, has_left."""
    with urllib.request.urlopen(f"{UPSTREAM}/seen/{model}", timeout=5) as reply:
        requests: list[Json] = json.load(reply)
    return requests


def as_sent(request: Json) -> Json:
    """Return a request's path, headers and body, without the headers of one connection."""
    own = ("host", "connection", "keep-alive", "x-pinocchio-via")
    headers = {name: value for name, value in request["headers"].items() if name not in own}
    return {"path": request["path"], "headers": headers, "body": request["body"]}


def tries(model: str) -> int:
    return len(seen(model))


def was_left(model: str, within_s: float = SOON_S) -> bool:
    """Whether all of upstream's connections for this model, at least one, closed unanswered."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if (requests := seen(model)) and all(request["has_left"] for request in requests):
            return True
        time.sleep(0.05)
    return False


def wait_for_request(model: str, within_s: float = 10) -> None:
    deadline = time.monotonic() + within_s
    while not tries(model):
        assert time.monotonic() < deadline, "the request never arrived upstream"
        time.sleep(0.02)


def check_cancelling(model: str, use: Coroutine[Any, Any, Any]) -> None:
    """Check that cancelling a task also ends its call upstream."""

    async def cancel() -> None:
        task = asyncio.ensure_future(use)
        await asyncio.to_thread(wait_for_request, model)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        assert await asyncio.to_thread(was_left, model)

    asyncio.run(cancel())


def read_until_failure(stream: Iterable[Any]) -> tuple[list[Any], Exception | None]:
    """Return the parts of a stream, and the error that ended it, or None."""
    parts = []
    try:
        for part in stream:
            parts.append(part)
    except Exception as error:
        return parts, error
    return parts, None


def check_label(surface: str, headers: Mapping[str, str], value: float = CONFIDENCE) -> None:
    """Check that the header has the confidence, and has none on a surface without scores."""
    status, wanted = "not_supported", None
    if surface in SCORED_SURFACES:
        status, wanted = "scored", f"{value:.4f}"
    assert headers["x-pinocchio-confidence-status"] == status
    assert headers.get("x-pinocchio-confidence") == wanted


def check_member(surface: str, reply: Any, value: float = CONFIDENCE) -> None:
    """Check that a reply's member `pinocchio` has the confidence; it may be a client's object."""
    members = reply if isinstance(reply, dict) else reply.model_extra or {}
    check_streamed_confidence(surface, [m for m in (members.get("pinocchio"),) if m], value)


def check_streamed_confidence(surface: str, members: list[Json], value: float = CONFIDENCE) -> None:
    """Check that one part has the member, with the confidence, or none on an unscored surface."""
    if surface not in SCORED_SURFACES:
        assert members == []
        return
    assert [(m["status"], m["confidence"]) for m in members] == [("scored", value)]
