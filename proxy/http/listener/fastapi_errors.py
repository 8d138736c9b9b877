"""Errors of our own FastAPI applications, in OpenAI's envelope."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from typing import Final

from fastapi import Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from policies import nearest
from proxy.errors import BadRequestError, BodyTooLargeError, NotFoundError, ProxyError
from proxy.http.wire.headers import ERROR


async def envelope(_: Request, error: Exception) -> Response:
    """Convert one of our errors to a response in OpenAI's envelope, as Starlette's handlers do."""
    assert isinstance(error, ProxyError)
    fields = {name.decode(): value.decode() for name, value in ((ERROR, b"true"), *error.headers)}
    return Response(error.body(), error.status, fields, media_type="application/json")


METHOD_NOT_ALLOWED = 405
_OTHERS: Final = ("request", "who", "body", "last_event_id")  # arguments not from the query
_CODES = {METHOD_NOT_ALLOWED: "method_not_allowed", 413: BodyTooLargeError.code}


async def answer_unknown(request: Request, error: Exception) -> Response:
    """Convert an error of routing, such as an unknown path or method, to a response."""
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


def check_query(request: Request, known: Collection[str]) -> None:
    """Refuse a query parameter that is not in `known`, as a misspelt one, or that is given twice.

    Raises BadRequestError.
    """
    names = [name for name, _ in request.query_params.multi_items()]
    for name in request.query_params:
        if name not in known:
            match = nearest(name, known)
            hint = f"; did you mean {match!r}?" if match else f"; known here: {', '.join(known)}"
            text = f"there is no query parameter {name[:100]!r}{hint if known else ''}"
            raise BadRequestError(text, param=name[:100], code="unknown_parameter")
        if names.count(name) > 1:
            text = f"the query parameter {name!r} is given {names.count(name)} times"
            raise BadRequestError(text, param=name, code="repeated_parameter")


def only_known_parameters(request: Request) -> None:
    """Check a request's query parameters against the arguments of its route's function.

    Raises BadRequestError.
    """
    arguments = inspect.signature(request.scope["endpoint"]).parameters
    check_query(
        request, [each for each in arguments if each not in {*request.path_params, *_OTHERS}]
    )
