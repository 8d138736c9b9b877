"""The secrets of client keys: their form, their digests, and where a request may carry one.

A key is shown once, when it is made; only its SHA-256 is stored. 256 random bits cannot be guessed,
so the hash needs no salt and no stretching. A request carries its key in `Authorization: Bearer`,
`x-api-key` or `api-key`, or in the WebSocket subprotocol that browsers use. The key is removed from
the request before anything else reads it, so that it can reach neither upstream nor a log.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping
from typing import Any, Final, Literal

from proxy.errors import BadRequestError, InvalidKeyError
from proxy.http.wire.http import Scope

PREFIX: Final = "sk-pinocchio-"
FIELDS: Final = frozenset({b"authorization", b"x-api-key", b"api-key"})
BROWSER_KEY: Final = "openai-insecure-api-key."  # browsers cannot send Authorization to WebSockets
WHERE: Final = "'Authorization: Bearer', x-api-key or api-key"
UNKNOWN_KEY: Final = "invalid API key: this proxy does not know it"


Attach = Literal["both", "headers", "body", "none"]
ATTACH: Final[Mapping[str, dict[str, bool]]] = {
    "both": {"headers": True, "body": True},
    "headers": {"headers": True, "body": False},
    "body": {"headers": False, "body": True},
    "none": {"headers": False, "body": False},
}
"""The choices of a key's `--attach`, as the section `attach` of the configuration."""

_SECRET: Final = re.compile(PREFIX.encode() + rb"[0-9a-f]{64}")
_PREFIX: Final = PREFIX.encode()


def new_secret() -> str:
    """Return a new key: a prefix that secret scanners recognize, and 256 random bits."""
    return PREFIX + secrets.token_hex(32)


def new_key_id() -> str:
    """Return a random id for a key."""
    return f"key_{secrets.token_hex(6)}"


def digest_of(secret: bytes) -> str:
    """Return the SHA-256 of a secret, in hexadecimal."""
    return hashlib.sha256(secret).hexdigest()


def take_secret(scope: Scope) -> bytes:
    """Remove the client key from a request's scope and return it.

    Raises InvalidKeyError where there is none, several different ones, or one that this proxy
    cannot have made. Raises BadRequestError where a key also appears in a place that would go
    upstream.
    """
    fields, presented = [], set()
    for name, value in scope["headers"]:
        if name in FIELDS:
            presented.add(_bearer(value) if name == b"authorization" else value.strip())
        else:
            fields.append((name, value))
    if scope["type"] == "websocket":
        presented |= _take_from_subprotocols(scope)
        fields = [field for field in fields if field[0] != b"sec-websocket-protocol"]
    scope["headers"] = fields
    if not presented:
        raise InvalidKeyError(f"this proxy needs a client key, in {WHERE}")
    if len(presented) > 1:
        raise InvalidKeyError("the request carries several different keys; send one")
    path: bytes = scope.get("raw_path") or b""
    other_places = (path, scope["query_string"], *(value for _, value in fields))
    if any(_PREFIX in text for text in other_places):
        raise BadRequestError(f"a client key belongs in {WHERE} only", code="misplaced_api_key")
    secret = presented.pop()
    if not _SECRET.fullmatch(secret):
        raise InvalidKeyError(UNKNOWN_KEY)
    return secret


def mask_keys(path: str) -> str:
    """Return a path for a log, with any client key in it replaced by its prefix."""
    return re.sub(f"{PREFIX}[0-9a-f]+", f"{PREFIX}...", path)


def _bearer(value: bytes) -> bytes:
    """Return the secret of a Bearer `Authorization` field; empty for other schemes."""
    scheme, _, secret = value.strip().partition(b" ")
    return secret.strip() if scheme.lower() == b"bearer" else b""


def _take_from_subprotocols(scope: Scope) -> set[bytes]:
    """Remove the keys from a WebSocket's subprotocols and return them."""
    subprotocols: list[Any] = scope["subprotocols"]
    scope["subprotocols"] = [name for name in subprotocols if not name.startswith(BROWSER_KEY)]
    return {
        name.removeprefix(BROWSER_KEY).encode()
        for name in subprotocols
        if name.startswith(BROWSER_KEY)
    }
