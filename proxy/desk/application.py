"""The review desk as an ASGI application: API, login and console behind one guard.

Operators have two more routes, with the admin's token or key: metrics, and draining.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import structlog
from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Route

from proxy.desk.access.guard import (
    DRAIN,
    METRICS,
    Guard,
    admin_of,
    demand_visitor,
    visitor_of,
)
from proxy.desk.access.sessions import Door
from proxy.desk.api import review_routes
from proxy.desk.console import routes
from proxy.desk.decisions.desk import Desk
from proxy.desk.feed import Feed
from proxy.desk.login import login_routes
from proxy.errors import BadRequestError, ProxyError
from proxy.http.listener.fastapi_errors import answer_unknown, envelope, only_known_parameters
from proxy.http.wire.http import Receive, Scope, Send, place
from proxy.observe.metrics import Collector, expose_metrics

if TYPE_CHECKING:
    from proxy.desk.access.single_sign_on import SingleSignOn

log = structlog.get_logger(__name__)


class UnusableBodyError(BadRequestError):
    """A request body that does not have the documented form."""

    status, code = 422, "invalid_request"


class DeskApplication:
    """The application that the listener serves, made by its first request."""

    def __init__(
        self,
        desk: Desk,
        door: Door,
        feed: Feed,
        others: Sequence[Route] = (),
        *,
        is_loopback: bool,
        max_body: int,
        sign_on: SingleSignOn | None = None,
    ) -> None:
        self._desk, self._door, self._feed = desk, door, feed
        self._sign_on = sign_on
        api = FastAPI(
            title="Pinocchio Proxy: the review desk",
            openapi_url="/pinocchio/v1/openapi.json",
            docs_url=None,
            redoc_url=None,
            redirect_slashes=False,
        )
        api.add_exception_handler(ProxyError, envelope)
        api.add_exception_handler(HTTPException, answer_unknown)
        api.add_exception_handler(RequestValidationError, _unusable)
        api.add_exception_handler(ClientDisconnect, _answer_nobody)
        api.add_exception_handler(Exception, _fault)
        dependencies = [Depends(visitor_of), Depends(only_known_parameters)]
        api.include_router(review_routes(desk, feed), dependencies=dependencies)
        api.router.routes.extend(login_routes(door, sign_on))
        api.router.routes.extend(routes(desk))
        api.router.routes.extend(others)
        demand_visitor(api.router.routes)
        self._guarded = Guard(api, door, is_loopback=is_loopback, max_body=max_body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._guarded(scope, receive, send)

    async def end_streams(self) -> None:
        """End the event streams, and close the connections to the issuer."""
        await self._feed.aclose()
        if self._sign_on is not None:
            await self._sign_on.issuer.aclose()

    def close(self) -> None:
        """Close the connections to the store."""
        self._desk.queue.close()
        self._door.close()


async def _unusable(request: Request, error: Exception) -> Response:
    """Answer a body that does not fit OpenAPI with a 422 that names the first mistake.

    A body that is not JSON gets a 400.
    """
    assert isinstance(error, RequestValidationError)
    problem = error.errors()[0]
    if problem["type"] == "json_invalid":
        return await envelope(request, _no_json(error))
    # pydantic ends the location of a wrong choice with the choices, which its sentence repeats
    places = (str(part) for part in problem["loc"] if part != "body")
    where = ".".join(place for place in places if not place.startswith("literal["))
    text = f"{where}: {problem['msg']}" if where else problem["msg"]
    return await envelope(request, UnusableBodyError(text, param=where or None))


def _no_json(error: RequestValidationError) -> BadRequestError:
    """Return the error with place that the proxy itself gives for a body that is not JSON.

    FastAPI would describe it as a mistake in a field.
    """
    problem = error.errors()[0]
    at = json.JSONDecodeError(problem["ctx"]["error"], error.body, problem["loc"][-1])
    text = f"the body is not JSON: {at.msg} at line {at.lineno}, column {at.colno}"
    return BadRequestError(text, code="invalid_json")


async def _fault(request: Request, error: Exception) -> Response:
    """Log an unexpected error by its place, and answer with a 500."""
    log.error("internal_error", path=request.scope["path"], **place(error))
    return await envelope(request, ProxyError("the desk failed; the proxy's log says where"))


async def _answer_nobody(request: Request, error: Exception) -> Response:
    """Answer a client that disconnected before its whole request arrived; nobody receives it."""
    return Response(status_code=400)


def metrics_route(*collectors: Collector) -> Route:
    """Return the route of `/metrics`, for admins, which serves what the collectors yield.

    It answers while the store is down too, without the metrics that are read from there.
    """

    def served(request: Request) -> Response:  # runs on a thread, since it waits for the store
        admin_of(request)
        accept = request.headers.get("accept", "")
        body, content_type = expose_metrics(accept, *collectors)
        return Response(body, headers={"content-type": content_type})

    return Route(METRICS, served)


def drain_route(drain: Callable[[], object]) -> Route:
    """Return the route with which an admin takes the proxy out of rotation, before a stop.

    A POST calls `drain`.
    """

    def served(request: Request) -> Response:
        admin_of(request)
        drain()
        return JSONResponse({"status": "draining"})

    return Route(DRAIN, served, methods=["POST"])
