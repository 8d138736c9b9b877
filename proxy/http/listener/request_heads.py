"""The rules for a request's head, beyond those of llhttp.

There may be a proxy between a client and us, and another one between us and the upstream. Whatever
one of them could read differently than we do is refused, so that nobody can hide a request in
another: any transfer coding but `chunked` alone, a coding with HTTP/1.0, versions but 1.0 and 1.1,
no, several or invalid `Host` fields, a target that is no path or above the root. Methods are
refused that turn the connection into something else, or that make the upstream repeat what it was
sent (TRACE), our key included.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from proxy.errors import BadRequestError, ProxyError
from proxy.http.wire.bounded_cache import remembers
from proxy.http.wire.headers import Headers

STATUS_LINES = {
    400: b"HTTP/1.1 400 Bad Request\r\n",
    408: b"HTTP/1.1 408 Request Timeout\r\n",
    431: b"HTTP/1.1 431 Request Header Fields Too Large\r\n",
    500: b"HTTP/1.1 500 Internal Server Error\r\n",
    503: b"HTTP/1.1 503 Service Unavailable\r\n",
}
LONGEST_HOST = 255 + len(":65535")
_NAME = rb"[A-Za-z0-9._~!$&'()*+,;=%-]*"
_ADDRESS = rb"\[[0-9A-Fa-f:.]+\]"
_HOST = re.compile(rb"(?:%b|%b)(?::[0-9]{0,5})?" % (_NAME, _ADDRESS))
_PATH = rb"/(?:[!-\"$&->@-~]|%(?!00))*"  # an invalid percent escape is left unchanged
_QUERY = rb"(?:\?[!-\"$-~]*)?"
_TARGET = re.compile(rb"(?:[Hh][Tt][Tt][Pp][Ss]?://([^/?]*))?%b%b|\*" % (_PATH, _QUERY))
_REFUSED_METHODS = (b"CONNECT", b"PRI", b"TRACE")

Target = tuple[str, bytes, bytes]
"""A decoded path, the raw path and the query."""


@remembers(1_024)
def read_target(target: bytes) -> Target:
    """Split a request's target into its decoded path, its raw path and its query.

    `/v1/a%20b?q=1` becomes `("/v1/a b", b"/v1/a%20b", b"q=1")`; an absolute URL loses its scheme
    and host. Raises BadRequestError for a target that is no path, or whose `..` segments lead above
    the root.
    """
    match = _TARGET.fullmatch(target)
    if match is None:
        raise _unreadable("its target is no path")
    raw = target if match[1] is None else b"/" + target.split(b"/", 3)[3]
    raw_path, _, query = raw.partition(b"?")
    path = raw_path.decode("ascii")
    path = unquote(path) if "%" in path else path
    if ".." in path and _climbs_out(path):
        raise _unreadable("its target lies above the root")
    return path, raw_path, query


def _climbs_out(path: str) -> bool:
    """Return whether `..` segments of a path lead above its root, as in `/a/../../b`."""
    depth = 0
    for name in path.split("/"):
        depth += {"..": -1, ".": 0, "": 0}.get(name, 1)
        if depth < 0:
            return True
    return False


def check_head(method: bytes, target: bytes, version: str, headers: Headers) -> None:
    """Refuse a head that two parsers could read differently; `headers` have lower-case names.

    Raises BadRequestError.
    """
    if version not in ("1.1", "1.0"):
        raise _unreadable("its version is neither HTTP/1.1 nor HTTP/1.0")
    if method in _REFUSED_METHODS:
        raise _unreadable("its method is none for an API")
    values = dict(headers)
    host, coding = values.get(b"host"), values.get(b"transfer-encoding")
    if len(values) < len(headers):
        _check_once(headers)
    if coding is not None and (version == "1.0" or coding.lower() != b"chunked"):
        raise _unreadable("its transfer coding is not 'chunked' alone, in HTTP/1.1")
    if host is None:
        if version == "1.1":
            raise _unreadable("it has no Host")
    elif not is_host(host):
        raise _unreadable("its Host is no host")
    if target[:1] != b"/":
        _check_other_forms(method, target, host)


def _check_once(headers: Headers) -> None:
    """Refuse several fields of a name that may occur once only."""
    names = [name for name, _ in headers]
    for name in (b"host", b"transfer-encoding"):
        if names.count(name) > 1:
            raise _unreadable(f"it has several fields {name.decode()}")


def _check_other_forms(method: bytes, target: bytes, host: bytes | None) -> None:
    """Refuse a target that begins with no slash, but for `*` of OPTIONS and URLs on its Host."""
    if target == b"*" and method == b"OPTIONS":
        return
    match = _TARGET.fullmatch(target)
    if match is None or match[1] is None or host is None or match[1].lower() != host.lower():
        raise _unreadable("its target is no path on its Host")


@remembers(256)
def is_host(value: bytes) -> bool:
    """Return whether the value of a `Host` field is `host` or `host:port`, and nothing else."""
    return len(value) <= LONGEST_HOST and _HOST.fullmatch(value) is not None


def _unreadable(why: str) -> ProxyError:
    """Return the error (400, `invalid_http`) for a head that is refused because of `why`."""
    return BadRequestError(f"the request cannot be read as HTTP/1.1: {why}", code="invalid_http")


def refusal(error: ProxyError | None) -> bytes:
    """Return an error as the bytes of a whole HTTP reply with `connection: close`.

    None means that the data were no HTTP and gives 400. The status must be one of `STATUS_LINES`.
    """
    error = error or BadRequestError("the request cannot be read as HTTP/1.1", code="invalid_http")
    body = error.body()
    head = (
        b"content-type: application/json\r\nx-pinocchio-error: true\r\n"
        b"content-length: %d\r\nconnection: close\r\n\r\n"
    )
    own = b"".join(b"%b: %b\r\n" % field for field in error.headers)
    return STATUS_LINES[error.status] + own + head % len(body) + body


def asks_for_websocket(headers: Headers) -> bool:
    """Return whether a head has `connection: upgrade` and `upgrade: websocket`.

    Names of fields are in lower case.
    """
    values = dict(headers)
    options = [option.strip() for option in values.get(b"connection", b"").lower().split(b",")]
    return b"upgrade" in options and values.get(b"upgrade", b"").lower() == b"websocket"


def head_bytes(method: bytes, target: bytes, version: str, headers: Headers) -> bytes:
    """Serialize a request's head as HTTP bytes, from request line to blank line."""
    lines = [b"%b %b HTTP/%b" % (method, target, version.encode())]
    lines += [name + b": " + value for name, value in headers]
    return b"\r\n".join([*lines, b"", b""])


def without_upgrade(method: bytes, target: bytes, version: str, headers: Headers) -> bytes:
    """Serialize a request's head without `upgrade` and without that option of `connection`."""
    kept = []
    for name, value in headers:
        if name == b"connection":
            options = [option.strip() for option in value.split(b",")]
            value = b", ".join(option for option in options if option.lower() != b"upgrade")
        if name != b"upgrade":
            kept.append((name, value))
    return head_bytes(method, target, version, kept)
