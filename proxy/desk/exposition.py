"""The proxy's metrics for Prometheus, for whoever has the admin's token or key."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from proxy.desk.access.guard import METRICS, admin_of
from proxy.exchange.metrics import Collector, exposed


def metrics_route(*collectors: Collector) -> Route:
    """Answers also while the store does not: then without what stands in it."""

    def served(request: Request) -> Response:  # on a thread, for it asks the store
        admin_of(request)
        accept = request.headers.get("accept", "")
        body, content_type = exposed(accept, *collectors)
        return Response(body, headers={"content-type": content_type})

    return Route(METRICS, served)
