"""The proxy's metrics for Prometheus, for whoever has the admin's token or key."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from proxy.desk.access.guard import METRICS, admin_of
from proxy.desk.desk import Desk
from proxy.errors import StoreError
from proxy.exchange.metrics import ConfigurationState, Metrics


def metrics_route(
    desk: Desk, metrics: Metrics, configuration: Callable[[], ConfigurationState]
) -> Route:
    """Answers also while the store does not: then without the replies that wait."""

    def exposed(request: Request) -> Response:  # on a thread, for it asks the store
        admin_of(request)
        try:
            waiting = desk.stats()["queues"]
        except StoreError:
            waiting = None
        accept = request.headers.get("accept", "")
        body, content_type = metrics.exposed(configuration(), waiting, accept)
        return Response(body, headers={"content-type": content_type})

    return Route(METRICS, exposed)
