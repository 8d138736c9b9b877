"""The guard in front of the whole desk: it answers nothing to unknown visitors.

A visitor is known by `Authorization: Bearer` or by a session's cookie. With a cookie, a request
that changes something must come from the desk's own pages. Browsers say so in `Sec-Fetch-Site` and
`Origin`, and they send no strict cookie with requests that another site starts.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final
from urllib.parse import parse_qsl, quote, urlsplit

from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from proxy.config.settings.admin import LINKS
from proxy.desk.access.sessions import Door, Visitor
from proxy.errors import InvalidKeyError, NotAllowedError, ProxyError, StoreError
from proxy.gate.host_check import check_host
from proxy.http.listener.endpoint import send_reply
from proxy.http.wire.http import CLIENT, ASGIApplication, Message, Receive, Scope, Send, error_reply
from proxy.http.wire.session_cookie import NAME, SECURE_NAME
from proxy.store.queue import SEEN_QUEUES

LOGOUT: Final = "/pinocchio/logout"


CSRF_HEADER: Final = "x-csrf-token"
CSRF_FIELD: Final = "csrf"
LOGIN: Final = "/pinocchio/login"
SINGLE_SIGN_ON: Final = "/pinocchio/login/oidc"
SINGLE_SIGN_ON_BACK: Final = "/pinocchio/login/oidc/callback"
STATIC: Final = "/static/"
API: Final = "/pinocchio/v1/"
METRICS: Final = "/metrics"
DRAIN: Final = "/drain"
_OF_LOGIN: Final = (LOGIN, SINGLE_SIGN_ON, SINGLE_SIGN_ON_BACK)
_OF_QUEUES: Final = (  # paths that show a bound reviewer only their queues
    *("/console/reviews", "/console/standing"),
    *(f"{API}reviews", f"{API}standing-approvals"),
)
_OF_ALL: Final = ("/", "/console", "/console/", "/pinocchio/logout", f"{API}me", f"{API}stats")
READING: Final = ("GET", "HEAD", "OPTIONS")
MOST_OF_A_STRANGERS_BODY: Final = 2**14  # bytes
_VISITOR: Final = "pinocchio.visitor"
_STAYS: Final = "pinocchio.stays"
# browsers send no strict cookie when a link on another site leads here; our page reloads with it
_RELOAD: Final = '<!doctype html><meta http-equiv="refresh" content="0"><title>Pinocchio</title>'


class Guard:
    """An ASGI application that lets only known visitors through to another application.

    With `is_loopback` the `Host` of a request must name this machine. `max_body` limits a visitor's
    body, in bytes.
    """

    def __init__(
        self, inner: ASGIApplication, door: Door, *, is_loopback: bool, max_body: int
    ) -> None:
        self._inner = inner
        self._door = door
        self._is_loopback = is_loopback
        self._max_body = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request of a known visitor, or to a public page, on to the inner application.

        Others get a redirect to the login page, or an error in the API. The visitor is put into the
        scope, and their queues into `SEEN_QUEUES`. A stranger's body is limited more.
        """
        request = Request(scope)
        send = _with_fields(send)
        try:
            visitor = await self._admit(request)
        except ProxyError as error:
            if isinstance(error, InvalidKeyError) and not is_api(request):
                await _to_login(request)(scope, receive, send)
            else:
                await send_reply(error_reply(error), send)
            return
        scope[_VISITOR] = visitor
        scope[_STAYS] = partial(self._stays, request)
        SEEN_QUEUES.set(None if visitor is None else visitor.queues)
        if visitor is not None and CLIENT in scope:
            scope[CLIENT].note_known(has_key=True)
        limit = MOST_OF_A_STRANGERS_BODY if visitor is None else self._max_body
        await self._inner(scope, _limit_body(receive, limit), send)

    async def _admit(self, request: Request) -> Visitor | None:
        """Return the visitor of a request, or None for a stranger at a public page.

        Raises ProxyError where the request is refused: by its `Host`, without a known visitor, for
        a page that the visitor may not see, or sent by another site's page.
        """
        if self._is_loopback:
            check_host(request.scope["headers"], "for the review desk")
        visitor = await asyncio.to_thread(self._visitor, request)
        if visitor is None and not is_for_strangers(request.scope["path"]):
            raise InvalidKeyError("the review desk asks for a session, or for a bearer token")
        if visitor is not None and visitor.queues is not None:
            _check_bound(request.scope["path"], visitor)
        if request.method not in READING and (visitor is None or visitor.csrf is not None):
            check_site(request, visitor)
        return visitor

    def _stays(self, request: Request) -> bool:
        """Return whether the visitor would still be admitted, and True while the store is down.

        Call it on a thread.
        """
        try:
            return self._visitor(request) is not None
        except StoreError:
            return True  # unknown, and without the store there are no events to send
        except ProxyError:
            return False

    def _visitor(self, request: Request) -> Visitor | None:
        """Return the visitor by bearer token or session cookie, or None for a stranger.

        Raises as `Door.identify` does.
        """
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and secret:
            return self._door.identify(secret.strip(), address_of(request))
        cookie = request.cookies.get(cookie_name(request))
        return self._door.session(cookie) if cookie else None


def known_visitor(request: Request) -> Visitor | None:
    """Return the visitor that the guard admitted, or None for a stranger."""
    visitor = request.scope.get(_VISITOR)
    return visitor if isinstance(visitor, Visitor) else None


def visitor_of(request: Request) -> Visitor:
    """Return the visitor that the guard admitted for this request.

    Raises InvalidKeyError for a stranger, who may see only the login page and the pages of links.
    """
    if (visitor := known_visitor(request)) is None:
        raise InvalidKeyError("the review desk asks for a session, or for a bearer token")
    return visitor


def stays(request: Request) -> Callable[[], bool]:
    """Return a function that says whether the request's visitor would still be admitted.

    It is for long replies, such as event streams. Call the function on a thread.
    """
    may_stay: Callable[[], bool] = request.scope[_STAYS]
    return may_stay


def is_for_strangers(path: str) -> bool:
    """Return whether everybody may see a page: login, static files and the pages of chat links.

    `path` may be a template, such as `/static/{name:path}`.
    """
    return path in _OF_LOGIN or path.startswith((STATIC, LINKS))


def demand_visitor(routes: Iterable[BaseRoute]) -> None:
    """Wrap the application of each route, in place, so that it refuses strangers by itself.

    Public pages stay unchanged.
    """
    for route in routes:
        if isinstance(route, Route) and not is_for_strangers(route.path):
            route.app = _GuardedApplication(route.app)


class _GuardedApplication:
    """An ASGI application that refuses strangers."""

    def __init__(self, inner: ASGIApp) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        visitor_of(Request(scope))
        await self._inner(scope, receive, send)


def admin_of(request: Request) -> Visitor:
    """Return the visitor that the guard admitted, if they are an admin.

    Raises NotAllowedError for reviewers and InvalidKeyError for strangers.
    """
    visitor = visitor_of(request)
    if not visitor.is_admin:
        raise NotAllowedError(f"{visitor.name} is a reviewer; this is for admins")
    return visitor


def _check_bound(path: str, visitor: Visitor) -> None:
    """Refuse a path that shows more than the queues to which a reviewer is bound.

    Raises NotAllowedError.
    """
    is_of_queue = any(path == place or path.startswith(f"{place}/") for place in _OF_QUEUES)
    if not (is_of_queue or path in _OF_ALL or is_for_strangers(path)):
        raise NotAllowedError(f"{visitor.name} sees reviews of their queues only")


async def checked_form(request: Request) -> dict[str, str]:
    """Return the fields of a form of the desk's own pages by name, without the token `csrf`.

    Raises NotAllowedError for a form of a session without that token.
    """
    fields = await form_of(request)
    visitor = known_visitor(request)
    if visitor is not None and visitor.csrf is not None:
        _check_token(fields.pop(CSRF_FIELD, ""), visitor)
    return fields


async def form_of(request: Request) -> dict[str, str]:
    """Return the fields of a form by name, without looking for the session's token.

    It is for pages whose address is a secret, which no other page knows.
    """
    body = (await request.body()).decode(errors="replace")
    return dict(parse_qsl(body, keep_blank_values=True))


def check_site(request: Request, visitor: Visitor | None) -> None:
    """Refuse a request that another site's page makes a browser send; raises NotAllowedError.

    It is known by `Sec-Fetch-Site` and `Origin`. A client that sends neither is no current browser;
    a known visitor's must then send the session's token.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site not in (None, "same-origin", "none"):
        raise NotAllowedError("a page of another site sent this", code="cross_site")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise NotAllowedError(f"a page of {origin} sent this", code="cross_site")
    if site is None and origin is None and visitor is not None:
        _check_token(request.headers.get(CSRF_HEADER, ""), visitor)


def _check_token(token: str, visitor: Visitor) -> None:
    """Refuse a token that is not the one of the visitor's session; raises NotAllowedError."""
    if not hmac.compare_digest(token.encode(), (visitor.csrf or "").encode()):
        raise NotAllowedError(
            f"this needs the session's token ({CSRF_HEADER}, or the field {CSRF_FIELD!r})",
            code="csrf_token",
        )


def address_of(request: Request) -> str:
    """Return the client's network address, or an empty text if it is unknown."""
    return request.client.host if request.client else ""


def is_api(request: Request) -> bool:
    """Return whether the path is one for programs, which have no use for a login page."""
    path: str = request.scope["path"]
    return path.startswith(API) or path in (METRICS, DRAIN)


def is_https(request: Request) -> bool:
    """Return whether the browser uses https, also to a proxy in front of the desk."""
    return "https" in (request.scope["scheme"], request.headers.get("x-forwarded-proto"))


def cookie_name(request: Request) -> str:
    """Return the name of the session's cookie.

    Behind https it is one that no other host, port or insecure page can set.
    """
    return SECURE_NAME if is_https(request) else NAME


def _to_login(request: Request) -> Response:
    """Return the redirect (303) to the login page, which leads back to the requested page.

    A link from another site first gets a page that reloads itself, so that the cookie is sent.
    """
    if request.method == "GET" and request.headers.get("sec-fetch-site") == "cross-site":
        return HTMLResponse(_RELOAD, headers={"cache-control": "no-store"})
    query: str = request.scope["query_string"].decode("latin-1")
    next_url = request.scope["path"] + (f"?{query}" if query else "")
    location = f"{LOGIN}?next={quote(next_url)}" if request.method == "GET" else LOGIN
    return RedirectResponse(location, 303)


_FIELDS: Final = (  # the default header fields of responses
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)


def _with_fields(send: Send) -> Send:
    """Return a `send` that adds the default header fields which a response does not set itself."""

    async def sending(message: Message) -> None:
        """Send a message; the start of a response gets the fields that it lacks."""
        if "headers" in message:  # the start of a response
            present = {name.lower() for name, _ in message["headers"]}
            added = [field for field in _FIELDS if field[0] not in present]
            message = {**message, "headers": [*message["headers"], *added]}
        await send(message)

    return sending


def _limit_body(receive: Receive, limit: int) -> Receive:
    """Return a `receive` that raises HTTPException (413) for a body of more than `limit` bytes."""
    size = 0

    async def counted() -> Message:
        """Receive a message and count its bytes; raises HTTPException beyond the limit."""
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > limit:
            raise HTTPException(413, f"the body is larger than {limit} bytes")
        return message

    return counted
