"""What whoever runs the proxy asks of it, with the admin's token or key: metrics, and to drain."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from proxy.desk.access.guard import DRAIN, METRICS, admin_of
from proxy.exchange.metrics import Collector, exposed


def metrics_route(*collectors: Collector) -> Route:
    """Answers also while the store does not: then without what stands in it."""

    def served(request: Request) -> Response:  # on a thread, for it asks the store
        admin_of(request)
        accept = request.headers.get("accept", "")
        body, content_type = exposed(accept, *collectors)
        return Response(body, headers={"content-type": content_type})

    return Route(METRICS, served)


def drain_route(drain: Callable[[], object]) -> Route:
    """Takes the proxy out of rotation, as whoever stops it does beforehand."""

    def served(request: Request) -> Response:
        admin_of(request)
        drain()
        return JSONResponse({"status": "draining"})

    return Route(DRAIN, served, methods=["POST"])
