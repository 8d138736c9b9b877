"""The console: the pages on which people see and decide on held replies, and check the confidence.

The review desk mounts `routes`. The server renders the pages, and they work without JavaScript;
some scripts make them quicker. Everything that a model or a client wrote passes through `text.py`
first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.desk.console.pages import render_page, static_file

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

    from proxy.desk.decisions.desk import Desk

__all__ = ["display", "login_page", "pages", "reviews", "routes"]


def routes(desk: Desk) -> list[BaseRoute]:
    """Return the routes of the pages, which demand a visitor, and of static files."""
    from starlette.responses import RedirectResponse
    from starlette.routing import Route

    from proxy.desk.console.facts import Facts
    from proxy.desk.console.reviews import Reviews

    def home(_: Request) -> Response:
        return RedirectResponse("/console/reviews", 303)

    return [
        Route("/", home),
        Route("/console", home),
        Route("/static/{name:path}", static_file),
        *Reviews(desk).routes(),
        *Facts(desk).routes(),
    ]


def login_page(
    action: str,
    next_url: str,
    error: str | None = None,
    status: int = 200,
    *,
    sign_on: str | None = None,
    title: str = "",
    note: str | None = None,
    leave: str | None = None,
) -> Response:
    """Return the page that asks for a token or a key, with an error, if any.

    The form is sent to `action`; `next_url` is the page after it. `sign_on` is the address of a
    login at the issuer with that `title`, and `leave` the one that ends the session there. `note`
    is a sentence to show.
    """
    options = {"sign_on": sign_on, "issuer": title, "note": note, "leave": leave}
    return render_page(
        "outside/login.html", status, action=action, next_url=next_url, error=error, **options
    )
