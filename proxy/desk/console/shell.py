"""The frame that all pages behind the desk's guard share, and their error pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from proxy.desk.access.guard import LOGOUT, visitor_of
from proxy.desk.console.pages import render_page
from proxy.desk.decisions.desk import Desk
from proxy.errors import ProxyError

Handler = Callable[[Request], Response]


class NavigationEntry(NamedTuple):
    """An entry of the navigation; `name` is also the name of its icon."""

    name: str
    title: str

    @property
    def path(self) -> str:
        """The address of the page."""
        return f"/console/{self.name}"


PAGES: Final = (
    NavigationEntry("reviews", "Queue"),
    NavigationEntry("traffic", "Traffic"),
    NavigationEntry("quality", "Quality"),
    NavigationEntry("policies", "Policies"),
    NavigationEntry("calibrator", "Calibrator"),
)


def page(
    desk: Desk, request: Request, template: str, active: str, status: int = 200, **values: Any
) -> Response:
    """Render a template in the frame of the desk's pages; raises StoreError.

    `active` is the entry of the navigation that is marked. `values` are the template's.
    """
    visitor = visitor_of(request)
    return render_page(
        template,
        status,
        pages=PAGES,
        here=active,
        open_count=desk.stats()["open"],
        reviewer=visitor.name,
        role=visitor.role,
        csrf=visitor.csrf or "",
        logout_path=LOGOUT,
        refusal=desk.refusal(),
        sees_problems=visitor.is_admin,
        **values,
    )


def with_error_pages(desk: Desk, handler: Handler) -> Handler:
    """Wrap a handler so that a ProxyError it raises becomes a page with its status.

    Without the store, which the frame needs, that page has no frame.
    """

    def answer(request: Request) -> Response:
        """Call the handler, and return a page for a ProxyError."""
        try:
            return handler(request)
        except ProxyError as error:
            path: str = request.scope["path"]
            active = path.split("/")[2] if path.count("/") > 1 else ""
            title = "Not found" if error.status == 404 else "That did not work"
            values = {"title": title, "text": error.message}
            try:
                return page(desk, request, "message.html", active, error.status, **values)
            except ProxyError:  # the frame needs the store too
                return render_page("outside/door.html", error.status, **values)

    return answer
