"""Routes for operators, with the admin's token or key: metrics, and draining."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from proxy.desk.access.guard import DRAIN, METRICS, admin_of
from proxy.observe.metrics import Collector, expose_metrics


def metrics_route(*collectors: Collector) -> Route:
    """Return the route of `/metrics`.

    It answers while the store is down too, without the metrics that are read from there.
    """

    def served(request: Request) -> Response:  # runs on a thread, since it waits for the store
        admin_of(request)
        accept = request.headers.get("accept", "")
        body, content_type = expose_metrics(accept, *collectors)
        return Response(body, headers={"content-type": content_type})

    return Route(METRICS, served)


def drain_route(drain: Callable[[], object]) -> Route:
    """Return the route that takes the proxy out of rotation, as its operator does before a stop."""

    def served(request: Request) -> Response:
        admin_of(request)
        drain()
        return JSONResponse({"status": "draining"})

    return Route(DRAIN, served, methods=["POST"])
