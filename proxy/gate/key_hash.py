"""The hash that identifies a client key once its request has been admitted."""

from __future__ import annotations

import hashlib
from typing import Final
from urllib.parse import parse_qsl

from proxy.gate.secret_keys import FIELDS
from proxy.http.wire.bounded_cache import remembers
from proxy.http.wire.http import Request

KEY_FIELDS: Final = FIELDS | {
    *(b"x-goog-api-key", b"ocp-apim-subscription-key", b"x-auth-token"),
}
KEY_PARAMETERS: Final = frozenset({"key", "api-key", "api_key", "apikey", "access_token"})


def hash_key(request: Request) -> str:
    """Return the id of our client key, or else the SHA-256 of the credentials for upstream.

    The same key always gives the same value, and the key cannot be recovered from the hash.
    """
    if request.caller.id is not None:
        return request.caller.id
    return _hash_credentials(read_credentials(request))


def read_credentials(request: Request) -> bytes:
    """Return the credentials of a request, from all header fields and query parameters for keys.

    A single key is returned by itself; different ones are joined, each with its name. Cookies are
    used only where there is no key, because they change with every visit. The value is kept in
    `request.presented`.
    """
    if request.presented is None:
        request.presented = _find_credentials(request)
    return request.presented


def _find_credentials(request: Request) -> bytes:
    """Return the credentials of a request, read from its header fields and its query."""
    values = request.values
    names = KEY_FIELDS.intersection(values)
    if len(names) == 1 and not request.query and len(values) == len(request.headers):
        [name] = names  # fast path for nearly every request
        return values[name] or values.get(b"cookie", b"")
    fields = [field for field in request.headers if field[0] in names and field[1]]
    if request.query:
        fields += [
            (name.encode(), value.encode())
            for name, value in parse_qsl(request.query)
            if name.casefold() in KEY_PARAMETERS
        ]
    if not fields:
        return request.values.get(b"cookie", b"")
    if len({value for _, value in fields}) == 1:
        return fields[0][1]
    return b"\n".join(b"%b: %b" % field for field in sorted(fields))


@remembers(1_024)
def _hash_credentials(presented: bytes) -> str:
    """Return the SHA-256 of credentials, in hexadecimal."""
    return hashlib.sha256(presented).hexdigest()
