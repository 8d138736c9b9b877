"""Rendering of pages: templates that escape every value and show invisible characters, and headers.

A page loads only what this package ships and runs only its own scripts. No other site can frame it,
or learn from a link that somebody reads it.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from policies import plural
from proxy.desk.console import text
from proxy.desk.decisions.times import format_time_left, in_words
from proxy.desk.decisions.unseen import one_line, visible
from proxy.store.reviews.held_replies import state_name

HERE: Final = Path(__file__).parent
STATIC: Final = HERE / "static"
TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
SAFE: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # without referrers, forms would not send their origin
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
NOTHING: Final = "\N{EN DASH}"


def render_page(template: str, status: int = 200, **values: Any) -> Response:
    """Render a template as a response with safe headers; it is not cached.

    `values` may hold text of clients, which the template escapes.
    """
    body = _templates().get_template(template).render(values)
    # no half surrogate pair is left: `visible` has replaced it
    return HTMLResponse(body, status, {**SAFE, "cache-control": "no-store"})


def static_file(request: Request) -> Response:
    """Return a static file, 404 for an unknown name, or 304 for one that the browser has.

    It may be cached for good where its address names its content (`?v=` and the digest).
    """
    name = request.path_params["name"]
    if name not in _files():
        return Response("there is no such file", 404, SAFE, "text/plain")
    content, digest = _files()[name]
    headers = {**SAFE, "etag": f'"{digest}"', "cache-control": "no-cache"}
    if request.query_params.get("v") == digest:
        headers["cache-control"] = "public, max-age=31536000, immutable"
    if request.headers.get("if-none-match") == headers["etag"]:
        return Response(status_code=304, headers=headers)
    return Response(content, 200, headers, TYPES[Path(name).suffix])


def _static(name: str) -> str:
    """Return the address of a static file with its digest, which changes with its content."""
    return f"/static/{name}?v={_files()[name][1]}"


@lru_cache(maxsize=1)
def _files() -> dict[str, tuple[bytes, str]]:
    """Return all static files by name, each as (content, digest).

    Requests look names up here, so that no path of theirs is ever opened.
    """
    files = {}
    for path in STATIC.rglob("*"):
        if path.suffix in TYPES:
            content = path.read_bytes()
            digest = hashlib.sha256(content).hexdigest()[:12]
            files[path.relative_to(STATIC).as_posix()] = content, digest
    return files


@lru_cache(maxsize=1)
def _templates() -> Environment:
    """Return the environment of the templates, made once.

    It escapes every value, shows invisible characters, and has the filters of the pages.
    """
    templates = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_show_invisible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals["static"] = _static
    templates.filters |= {
        "ago": lambda at: f"{in_words(time.time() - at)} ago",
        "amount": amount,
        "count": count,
        "iso": lambda at: datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "json": text.as_json,
        "left": _format_time_left,
        "number": lambda count: f"{round(count):,}",
        "counted": lambda count, one, many=None: plural(round(count), one, many),
        "query": query,
        "raw": text.raw,
        "rule": lambda label: label.rpartition("@")[0] or label,
        "share": lambda value: NOTHING if value is None else f"{value * 100:.1f} %",
        "short": one_line,
        "state": state_name,
        "span": lambda interval: f"{interval.low * 100:.1f} to {interval.high * 100:.1f} %",
    }
    return templates


def _show_invisible(value: Any) -> Any:
    """Return a template's value with its invisible characters shown, except for markup."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return visible(value)


def _format_time_left(until: float) -> str:
    """Return the time left until a time, such as `3 h left`, or `expired`."""
    seconds = until - time.time()
    return f"{format_time_left(seconds)} left" if seconds > 0 else "expired"


def amount(value: float) -> str:
    """Return a number of things as a text: `1,234`, or `2.5` for a fraction below ten."""
    is_small = 0 < value < 10 and value != round(value)
    return f"{value:.1f}" if is_small else f"{round(value):,}"


def count(value: float) -> str:
    """Return a count as a text: `1,234`, or `about 1,234` for an estimate with a fraction."""
    return f"{round(value):,}" if value == round(value) else f"about {max(1, round(value)):,}"


def query(filters: Mapping[str, Any], **changed: Any) -> str:
    """Return filters, updated by `changed`, as the query of an address, without empty ones."""
    return urlencode({name: value for name, value in {**filters, **changed}.items() if value})
