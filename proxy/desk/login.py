"""The ways to log in: the link that the start prints, a token or key, or an OpenID issuer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from fastapi import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from proxy.desk.access.guard import (
    LOGIN,
    LOGOUT,
    SINGLE_SIGN_ON,
    SINGLE_SIGN_ON_BACK,
    address_of,
    checked_form,
    cookie_name,
    is_https,
)
from proxy.desk.access.sessions import ATTEMPT_S, SESSION_S, Door, Visitor
from proxy.desk.console import login_page
from proxy.errors import ProxyError
from proxy.http.wire.session_cookie import LOGIN_NAME, SECURE_LOGIN_NAME

if TYPE_CHECKING:
    from proxy.desk.access.single_sign_on import SingleSignOn

_LEFT: Final = "left"  # in the login page's query: somebody has just logged out
_LEFT_TEXT: Final = "You are signed out here."


def login_routes(door: Door, sign_on: SingleSignOn | None = None) -> list[Route]:
    """Return the routes to log in and out; those of an issuer only where `sign_on` is given."""
    page = _LoginPage(sign_on)

    async def enter(request: Request) -> Response:
        """Show the login page, or open a session with the code of a login link.

        A code that was used gets the page with an error and status 401.
        """
        code = request.query_params.get("token")
        next_url = request.query_params.get("next", "/")
        if code is None:
            return page.render(request, next_url)
        try:
            visitor = await asyncio.to_thread(door.redeem, code, address_of(request))
        except ProxyError:
            text = "This link was used before, or is of another start of the proxy."
            return page.render(request, next_url, text, 401)
        return _open_session(door, visitor, request, next_url)

    async def log_in(request: Request) -> Response:
        """Open a session for a token or key, or show the login page with the error."""
        fields = await checked_form(request)
        next_url, secret = fields.get("next", "/"), fields.get("token", "").strip()
        try:
            visitor = await asyncio.to_thread(door.identify, secret, address_of(request))
        except ProxyError as error:
            return page.render(request, next_url, error.message, error.status)
        return _open_session(door, visitor, request, next_url)

    async def log_out(request: Request) -> Response:
        """End the session, delete its cookie, and redirect to the login page."""
        await checked_form(request)
        name = cookie_name(request)
        door.close_session(request.cookies.get(name, ""))
        response = RedirectResponse(f"{LOGIN}?{_LEFT}=1" if sign_on else LOGIN, 303)
        response.delete_cookie(name, secure=is_https(request), httponly=True, samesite="strict")
        return response

    return [
        Route(LOGIN, enter, methods=["GET"]),
        Route(LOGIN, log_in, methods=["POST"]),
        Route(LOGOUT, log_out, methods=["POST"]),
        *([] if sign_on is None else _sign_on_routes(door, sign_on, page)),
    ]


def _sign_on_routes(door: Door, sign_on: SingleSignOn, page: _LoginPage) -> list[Route]:
    """Return the routes that lead to the issuer and back."""

    async def begin(request: Request) -> Response:
        """Redirect to the issuer, with a cookie that holds what this login asked for.

        The cookie is lax: browsers would not send a strict one with the issuer's link.
        """
        next_url = request.query_params.get("next", "/")
        try:
            url, cookie = await sign_on.begin(next_url, _back(sign_on, request))
        except ProxyError as error:
            return page.render(request, next_url, error.message, error.status)
        response = RedirectResponse(url, 303)
        response.set_cookie(
            _attempt_name(request),
            cookie,
            max_age=int(ATTEMPT_S),
            httponly=True,
            samesite="lax",
            secure=is_https(request),
        )
        return _keep_out_of_caches(response)

    async def end(request: Request) -> Response:
        """Check the issuer's answer and open a session, or show the login page with the error.

        The cookie of the attempt is deleted.
        """
        name = _attempt_name(request)
        try:
            visitor, next_url = await sign_on.end(
                request.query_params, request.cookies.get(name, ""), _back(sign_on, request)
            )
            response = _open_session(door, visitor, request, next_url, sign_on.session_s)
        except ProxyError as error:
            response = page.render(request, "/", error.message, error.status)
        response.delete_cookie(name, secure=is_https(request), httponly=True, samesite="lax")
        return response

    return [
        Route(SINGLE_SIGN_ON, begin, methods=["GET"]),
        Route(SINGLE_SIGN_ON_BACK, end, methods=["GET"]),
    ]


class _LoginPage:
    """The page where people log in, with the ways that are configured."""

    def __init__(self, sign_on: SingleSignOn | None) -> None:
        self._sign_on = sign_on

    def render(
        self, request: Request, next_url: str, error: str | None = None, status: int = 200
    ) -> Response:
        """Return the login page with an error, if any; `next_url` is the address to go on to."""
        if (sign_on := self._sign_on) is None:
            return login_page(LOGIN, next_url, error, status)
        has_left = _LEFT in request.query_params
        desk_login = f"{_desk_url(sign_on, request)}{LOGIN}"
        return login_page(
            LOGIN,
            next_url,
            error,
            status,
            title=sign_on.config.title,
            sign_on=f"{SINGLE_SIGN_ON}?{urlencode({'next': next_url})}",
            note=_LEFT_TEXT if has_left else None,
            leave=sign_on.issuer.logout_url(desk_login) if has_left else None,
        )


def _desk_url(sign_on: SingleSignOn, request: Request) -> str:
    """Return the desk's address: the configured one, or else the one of this request."""
    scheme = "https" if is_https(request) else "http"
    return sign_on.desk_url or f"{scheme}://{request.headers.get('host', '')}"


def _back(sign_on: SingleSignOn, request: Request) -> str:
    """Return the address to which the issuer sends people back; it must know that address."""
    return f"{_desk_url(sign_on, request)}{SINGLE_SIGN_ON_BACK}"


def _attempt_name(request: Request) -> str:
    """Return the name of the cookie for a login at an issuer, another one behind https."""
    return SECURE_LOGIN_NAME if is_https(request) else LOGIN_NAME


def _open_session(
    door: Door, visitor: Visitor, request: Request, next_url: str, lasts_s: float = SESSION_S
) -> Response:
    """Open a session of `lasts_s` seconds, set its cookie, and redirect to `next_url`.

    An address that leads elsewhere than to this desk becomes `/`. The redirect leaves no secret in
    the address.
    """
    is_ours = next_url.startswith("/") and not next_url.startswith(("//", "/\\"))
    response = RedirectResponse(next_url if is_ours else "/", 303)
    response.set_cookie(
        cookie_name(request),
        door.open_session(visitor, lasts_s),
        max_age=int(lasts_s),
        httponly=True,
        samesite="strict",
        secure=is_https(request),
    )
    return _keep_out_of_caches(response)


def _keep_out_of_caches(response: Response) -> Response:
    """Set headers that keep a response out of caches and its address out of referrers.

    Returns the same response.
    """
    response.headers["cache-control"] = "no-store"
    response.headers["referrer-policy"] = "no-referrer"
    return response
