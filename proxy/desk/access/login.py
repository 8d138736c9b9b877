"""How people come in: with the link that the start prints, or a token or key on the login page."""

from __future__ import annotations

import asyncio

from fastapi import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from proxy.desk.access.guard import LOGIN, LOGOUT, address_of, checked_form, cookie_name, is_https
from proxy.desk.access.sessions import SESSION_S, Door, Visitor
from proxy.desk.console import login_page
from proxy.errors import ProxyError


def login_routes(door: Door) -> list[Route]:
    async def enter(request: Request) -> Response:
        """The page, or with the code of a login link the session at once."""
        code = request.query_params.get("token")
        wanted = request.query_params.get("next", "/")
        if code is None:
            return login_page(request, wanted)
        try:
            visitor = await asyncio.to_thread(door.redeem, code, address_of(request))
        except ProxyError:
            told = "This link was used before, or is of another start of the proxy."
            return login_page(request, wanted, told, 401)
        return _opened(door, visitor, request, wanted)

    async def log_in(request: Request) -> Response:
        fields = await checked_form(request)
        wanted, secret = fields.get("next", "/"), fields.get("token", "").strip()
        try:
            visitor = await asyncio.to_thread(door.identify, secret, address_of(request))
        except ProxyError as error:
            return login_page(request, wanted, error.message, error.status)
        return _opened(door, visitor, request, wanted)

    async def log_out(request: Request) -> Response:
        await checked_form(request)
        name = cookie_name(request)
        door.close_session(request.cookies.get(name, ""))
        response = RedirectResponse(LOGIN, 303)
        response.delete_cookie(name, secure=is_https(request), httponly=True, samesite="strict")
        return response

    return [
        Route(LOGIN, enter, methods=["GET"]),
        Route(LOGIN, log_in, methods=["POST"]),
        Route(LOGOUT, log_out, methods=["POST"]),
    ]


def _opened(door: Door, visitor: Visitor, request: Request, wanted: str) -> Response:
    """The cookie, and on to the page that was wanted, so that no secret stays in the address."""
    is_ours = wanted.startswith("/") and not wanted.startswith(("//", "/\\"))
    response = RedirectResponse(wanted if is_ours else "/", 303)
    response.set_cookie(
        cookie_name(request),
        door.open_session(visitor),
        max_age=int(SESSION_S),
        httponly=True,
        samesite="strict",
        secure=is_https(request),
    )
    response.headers["cache-control"] = "no-store"
    response.headers["referrer-policy"] = "no-referrer"
    return response
