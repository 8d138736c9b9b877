"""The proxy's own API, under `/pinocchio/v1/`: an ordinary FastAPI application."""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from proxy.asgi import request_of
from proxy.callers import ANYONE, CALLER
from proxy.errors import BadRequestError, BodyTooLargeError, NotFoundError, ProxyError
from proxy.exchange import hash_key
from proxy.feedback import MOST_BYTES, keep_feedback
from proxy.headers import ERROR
from proxy.results import Results
from proxy.store.feedback import FeedbackStore

SOMEBODY = "a client"  # who gives feedback while no keys are required


def create_api(results: Results, feedback: FeedbackStore) -> FastAPI:
    """The routes of the callers' listener."""
    api = FastAPI(title="Pinocchio Proxy", openapi_url=None, redirect_slashes=False)
    api.add_exception_handler(ProxyError, envelope)
    api.add_exception_handler(HTTPException, unknown)

    @api.get("/pinocchio/v1/results/{request_id}")
    async def result(request_id: str, request: Request) -> dict[str, Any]:
        """A stream's outcome, for the key that asked."""
        return results.get(request_id, hash_key(request_of(request.scope)))

    @api.post("/pinocchio/v1/feedback")
    async def give_feedback(request: Request) -> dict[str, Any]:
        """Labels of replies that this key asked for: one, or a list of them."""
        body = _parsed(await _body(request))
        by = request.scope.get(CALLER, ANYONE).key or SOMEBODY
        key_hash = hash_key(request_of(request.scope))
        return await run_in_threadpool(keep_feedback, feedback, body, by, key_hash)

    return api


async def _body(request: Request) -> bytes:
    """Raises BodyTooLargeError."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MOST_BYTES:
            raise BodyTooLargeError(f"the body is larger than {MOST_BYTES} bytes")
        parts.append(part)
    return b"".join(parts)


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequestError("the body is not JSON", code="invalid_json") from error


async def envelope(_: Request, error: Exception) -> Response:
    """An error of ours, as a handler of Starlette's."""
    assert isinstance(error, ProxyError)
    fields = {name.decode(): value.decode() for name, value in ((ERROR, b"true"), *error.headers)}
    return Response(error.body(), error.status, fields, media_type="application/json")


_CODES = {405: "method_not_allowed", 413: BodyTooLargeError.code}


async def unknown(request: Request, error: Exception) -> Response:
    """What routing raises: no such path, no such method."""
    assert isinstance(error, HTTPException)
    if error.status_code == NotFoundError.status:
        text = f"there is nothing at {request.scope['path']}"
        return await envelope(request, NotFoundError(text, code="unknown_url"))
    other = ProxyError(error.detail, code=_CODES.get(error.status_code, "invalid_request"))
    fields = {ERROR.decode(): "true", **(error.headers or {})}
    return JSONResponse(other.envelope(), error.status_code, fields)
