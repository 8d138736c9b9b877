"""JSON over HTTP to one engine; all transport errors become EngineError here.

The connections are those of `proxy/http/pool/pool.py`. A request for scores changes nothing at
the engine, so it is sent once more if its kept connection turns out to be closed.
"""

from __future__ import annotations

import json
from typing import Any

from calibrator import CalibratorError
from proxy.errors import UpstreamBrokenError, UpstreamError, UpstreamTimeoutError
from proxy.http.pool.pool import Pool
from proxy.http.wire.upstream import UpstreamReply, UpstreamRequest
from proxy.scoring.engines.errors import BUSY, TIMEOUT, EngineError

MAX_ANSWER = 16 * 2**20  # bytes
_TOO_MANY, _UNAVAILABLE = 429, 503
_OF_WHAT_WAS_SENT = (400, 413, 422)
_ADVICE = {
    401: "; check engine.api_key",
    403: "; check engine.api_key",
    404: "; check engine.base_url and the engine's version",
}


class JsonClient:
    """A client for JSON, bound to the event loop of its first request."""

    def __init__(self, base_url: str, api_key: str, timeout_s: float) -> None:
        base_url = base_url.rstrip("/").removesuffix("/v1")
        self.base_url = base_url
        self._relay = Pool(base_url, api_key, timeout_s)

    async def get(self, path: str) -> Any:
        """Fetch JSON from a path; raises EngineError for anything but JSON with status 200."""
        return await self._ask(UpstreamRequest("GET", path, [(b"accept", b"application/json")]))

    async def post(self, path: str, body: bytes) -> Any:
        """Send JSON to a path and return the JSON of the answer; raises as `get` does.

        Raises CalibratorError where the engine refuses the content, possibly for one item of
        several.
        """
        fields = [(b"content-type", b"application/json"), (b"accept", b"application/json")]
        return await self._ask(UpstreamRequest("POST", path, fields, body))

    async def _ask(self, request: UpstreamRequest) -> Any:
        """Send a request and return the parsed JSON of its answer.

        Raises EngineError, and CalibratorError for a refusal of what was sent.
        """
        try:
            reply, body = await self._send(request)
        except UpstreamTimeoutError as error:
            raise EngineError(TIMEOUT, "did not answer in time") from error
        except UpstreamBrokenError as error:
            raise EngineError("engine_broke_off", "broke off its answer") from error
        except UpstreamError as error:
            raise EngineError("engine_unreachable", "cannot be reached") from error
        if reply.status != 200:
            raise _refusal(reply, request)
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            kind = reply.header(b"content-type") or "no content type"
            raise EngineError("engine_answer", f"did not answer with JSON ({kind[:60]})") from error

    async def _send(self, request: UpstreamRequest) -> tuple[UpstreamReply, bytes]:
        """Send a request, again if its connection breaks, and return the reply with its body."""
        try:
            reply = await self._relay.send(request)
        except UpstreamBrokenError:
            reply = await self._relay.send(request)
        try:
            return reply, await reply.read(MAX_ANSWER)
        finally:
            await reply.aclose()

    async def aclose(self) -> None:
        await self._relay.aclose()


def _refusal(reply: UpstreamReply, request: UpstreamRequest) -> CalibratorError:
    """Return the error for a status other than 200.

    A CalibratorError for 400, 413 and 422 to a POST, where only what was sent is at fault; else an
    EngineError, with the reason `engine_busy` for 429 and for 503 with `retry-after`.
    """
    status = reply.status
    if request.method == "POST" and status in _OF_WHAT_WAS_SENT:
        return CalibratorError(f"the engine refuses this one ({request.path}: {status})")
    is_busy = status == _UNAVAILABLE and reply.header(b"retry-after") is not None
    if status == _TOO_MANY or is_busy:
        return EngineError(BUSY, f"has no room for more now ({status})")
    reason = "engine_failed" if status >= 500 else "engine_refused"
    advice = _ADVICE.get(status, "")
    return EngineError(reason, f"answered {request.method} {request.path} with {status}{advice}")
