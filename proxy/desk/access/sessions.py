"""Who may come to the desk: the admin token, keys of reviewers and admins, and sessions of both.

A secret is looked up by its hash and compared in constant time. Sessions live in memory: whoever is
logged in when the proxy stops logs in again. They end with the key that opened them. Keys that the
store has shown are remembered for as long as it cannot be read, as keys of clients are: Prometheus
and people at the desk see what is going on during an outage.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal

import structlog

from proxy.errors import InvalidKeyError, RateLimitedError, StoreError
from proxy.gate.rate_limits import Buckets
from proxy.gate.secret_keys import PREFIX, digest_of
from proxy.store.client_keys import ClientKey, KeyStore

log = structlog.get_logger(__name__)

SESSION_S: Final = 12 * 3_600.0
ATTEMPT_S: Final = 600.0  # in which somebody comes back from an issuer
MOST_SESSIONS: Final = 1_000  # the oldest go first
ATTEMPTS_A_MINUTE: Final = 10  # that fail, from one address

_UNKNOWN: Final = "this is no token and no reviewer's key of this proxy"

Role = Literal["reviewer", "admin"]


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who is at the desk. `csrf` is what their forms must send back; None with a bearer token."""

    name: str
    role: Role
    digest: str | None = None  # of the key that let them in; None: token, login link, or issuer
    csrf: str | None = None
    queues: frozenset[str] | None = None  # that a reviewer is bound to; None: all
    is_named: bool = True  # whether the name is a person's, and not the id of a key

    @property
    def is_admin(self) -> bool:
        return self.role == "admin"


ADMIN: Final = Visitor("admin", "admin")


@dataclass(slots=True)
class _Session:
    visitor: Visitor
    ends_at: float


class Door:
    """Methods may wait for the store and raise StoreError; call them from any thread."""

    def __init__(self, token: str, login_code: str | None, keys: KeyStore) -> None:
        self._token_digest = digest_of(token.encode()) if token else None
        self._code_digest = digest_of(login_code.encode()) if login_code else None
        self._keys = keys
        self._remembered: dict[str, ClientKey] = {}  # that opened the desk, by their digest
        self._is_store_readable = True
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._failures = Buckets()

    def close(self) -> None:
        self._keys.close()

    def identify(self, secret: str, address: str) -> Visitor:
        """Whom a token or key stands for; raises InvalidKeyError, and RateLimitedError for another
        wrong token from an address of which too many were wrong. The right one is always right:
        others may have the same address. Keys cannot be guessed, so they are not counted."""
        digest = digest_of(secret.encode())
        if not secret.startswith(PREFIX):
            return self._counting(address, lambda: self._of_token(digest))
        if (visitor := self._of_key(digest)) is None:
            raise InvalidKeyError(_UNKNOWN)
        return visitor

    def redeem(self, code: str, address: str) -> Visitor:
        """The admin, for the code of the login link, which works once; raises as `identify`."""
        return self._counting(address, lambda: self._redeemed(digest_of(code.encode())))

    def _of_token(self, digest: str) -> Visitor | None:
        is_it = self._token_digest is not None and hmac.compare_digest(digest, self._token_digest)
        return ADMIN if is_it else None

    def _of_key(self, digest: str) -> Visitor | None:
        key = self._key(digest)
        if key is None or key.role == "caller" or key.state(time.time()) != "active":
            return None
        queues = None if key.queues is None else frozenset(key.queues.split(","))
        name, is_named = key.name or key.id, bool(key.name)
        return Visitor(name, key.role, digest, queues=queues, is_named=is_named)

    def remember_keys(self) -> None:
        """Read the keys of reviewers and admins, which then count also while the store is away."""
        with contextlib.suppress(StoreError):
            known = {key.digest: key for key in self._keys.all() if key.role != "caller"}
            self._remembered = known

    def _key(self, digest: str) -> ClientKey | None:
        """Return the key with this digest, a remembered one while the store cannot be read.

        Raises StoreError for a key that is not remembered then.
        """
        try:
            key = self._keys.find(digest)
        except StoreError as error:
            if (known := self._remembered.get(digest)) is None:
                raise
            if self._is_store_readable:
                log.warning("desk_keys_remembered", reason=error.message)
            self._is_store_readable = False
            return known
        self._is_store_readable = True
        if key is None or key.role == "caller" or key.revoked_at is not None:
            self._remembered.pop(digest, None)
        else:
            self._remembered[digest] = key
        return key

    def _redeemed(self, digest: str) -> Visitor | None:
        if self._code_digest is None or not hmac.compare_digest(digest, self._code_digest):
            return None
        self._code_digest = None
        return ADMIN

    def _counting(self, address: str, find: Callable[[], Visitor | None]) -> Visitor:
        if (visitor := find()) is not None:
            return visitor
        if wait_s := self._failures.take([(address, ATTEMPTS_A_MINUTE)]):
            raise RateLimitedError("too many attempts to log in", wait_s)
        raise InvalidKeyError(_UNKNOWN)

    # --- sessions -------------------------------------------------------------------------------

    def open_session(self, visitor: Visitor, lasts_s: float = SESSION_S) -> str:
        """The secret of a new session, for a cookie."""
        secret = secrets.token_urlsafe(32)
        known = replace(visitor, csrf=secrets.token_urlsafe(32))
        self._sessions[digest_of(secret.encode())] = _Session(known, time.time() + lasts_s)
        while len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return secret

    def session(self, secret: str) -> Visitor | None:
        """Whose session it is, while it and the key behind it last."""
        id = digest_of(secret.encode())
        session = self._sessions.get(id)
        if session is None:
            return None
        visitor = session.visitor
        is_over = session.ends_at <= time.time()
        if is_over or (visitor.digest is not None and self._of_key(visitor.digest) is None):
            self._sessions.pop(id, None)
            return None
        return visitor

    def close_session(self, secret: str) -> None:
        self._sessions.pop(digest_of(secret.encode()), None)
