"""Errors of our own FastAPI applications, in OpenAI's envelope."""

from __future__ import annotations

from fastapi import Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from proxy.errors import BadRequestError, BodyTooLargeError, NotFoundError, ProxyError
from proxy.wire.headers import ERROR


async def envelope(_: Request, error: Exception) -> Response:
    """An error of ours, as a handler of Starlette's."""
    assert isinstance(error, ProxyError)
    fields = {name.decode(): value.decode() for name, value in ((ERROR, b"true"), *error.headers)}
    return Response(error.body(), error.status, fields, media_type="application/json")


METHOD_NOT_ALLOWED = 405
_CODES = {METHOD_NOT_ALLOWED: "method_not_allowed", 413: BodyTooLargeError.code}


async def unknown(request: Request, error: Exception) -> Response:
    """What routing raises: no such path, no such method."""
    assert isinstance(error, HTTPException)
    if error.status_code == NotFoundError.status:
        text = f"there is nothing at {request.scope['path']}"
        return await envelope(request, NotFoundError(text, code="unknown_url"))
    code, text = _CODES.get(error.status_code, "invalid_request"), error.detail
    headers = dict(error.headers or {})
    if error.status_code == METHOD_NOT_ALLOWED:
        allowed = headers.get("allow") or headers.get("Allow") or "other methods"
        text = f"{request.method} is not possible at {request.scope['path']}, but {allowed} is"
    kind = BadRequestError if error.status_code < 500 else ProxyError
    body = kind(text, code=code).envelope()
    return JSONResponse(body, error.status_code, {ERROR.decode(): "true", **headers})
