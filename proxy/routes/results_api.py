"""The proxy's own API under `/pinocchio/v1/`, an ordinary FastAPI application."""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from proxy.errors import BadRequestError, BodyTooLargeError, ProxyError
from proxy.gate.key_hash import hash_key
from proxy.holds.interrupted_calls import MOST_BYTES as MOST_BYTES_OF_CALL
from proxy.holds.interrupted_calls import InterruptedCalls
from proxy.holds.stream_results import Results
from proxy.http.listener.fastapi_errors import answer_unknown, check_query, envelope
from proxy.http.wire.caller import ANYONE, CALLER
from proxy.http.wire.http import request_of
from proxy.http.wire.json_splice import dumps
from proxy.learning.feedback import MOST_BYTES, keep_feedback
from proxy.store.verdicts.feedback import FeedbackStore

SOMEBODY = "a client"  # the name of clients that give feedback without a key


def create_api(results: Results, feedback: FeedbackStore, calls: InterruptedCalls) -> FastAPI:
    """Create the application with the routes of the callers' listener."""
    api = FastAPI(title="Pinocchio Proxy", openapi_url=None, redirect_slashes=False)
    api.add_exception_handler(ProxyError, envelope)
    api.add_exception_handler(HTTPException, answer_unknown)

    @api.get("/pinocchio/v1/results/{request_id}")
    async def result(request_id: str, request: Request) -> Response:
        """Return a stream's outcome, for the key that asked."""
        check_query(request, ())
        found = await results.get(request_id, hash_key(request_of(request.scope)))
        return Response(dumps(found), media_type="application/json")

    @api.post("/pinocchio/v1/feedback")
    async def give_feedback(request: Request) -> dict[str, Any]:
        """Keep labels of replies that this key asked for: one, or a list of them."""
        body = _parse_body(await _body(request))
        by = request.scope.get(CALLER, ANYONE).key or SOMEBODY
        key_hash = hash_key(request_of(request.scope))
        return await run_in_threadpool(keep_feedback, feedback, body, by, key_hash)

    @api.post("/pinocchio/v1/calls")
    async def hold_call(request: Request) -> Response:
        """Hold a call that an agent's framework has stopped, for the desk."""
        body = _parse_body(await _body(request, MOST_BYTES_OF_CALL))
        held = await calls.hold(body, request_of(request.scope))
        return Response(dumps(held), media_type="application/json")

    @api.get("/pinocchio/v1/calls/{id}")
    async def call_verdict(id: str, request: Request) -> Response:
        """Return the decision on a call, for the key that asked."""
        check_query(request, ("wait_s",))
        wait_s = _seconds(request.query_params.get("wait_s", "0"))
        found = await calls.verdict(id, wait_s, request_of(request.scope))
        return Response(dumps(found), media_type="application/json")

    return api


async def _body(request: Request, most: int = MOST_BYTES) -> bytes:
    """Read the body; raises BodyTooLargeError beyond `most` bytes."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise BodyTooLargeError(f"the body is larger than {most} bytes")
        parts.append(part)
    return b"".join(parts)


def _parse_body(body: bytes) -> Any:
    """Parse a body as JSON; raises BadRequestError."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequestError("the body is not JSON", code="invalid_json") from error


def _seconds(text: str) -> float:
    """Parse the number in `wait_s`; raises BadRequestError for anything else."""
    try:
        return float(text)
    except ValueError as error:
        message = "'wait_s' must be a number of seconds"
        raise BadRequestError(message, param="wait_s", code="invalid_type") from error
