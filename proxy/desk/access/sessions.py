"""The visitors of the desk: the admin token, keys of reviewers and admins, and sessions of both.

A secret is looked up by its hash and compared in constant time. Sessions are in memory: people log
in again after the proxy restarts. A session ends with the key that opened it. Keys that were read
from the store are remembered for as long as it cannot be read, like client keys, so that Prometheus
and people at the desk can follow an outage.
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
from proxy.store.database.client_keys import ClientKey, KeyStore
from proxy.store.patience import Patience

log = structlog.get_logger(__name__)

SESSION_S: Final = 12 * 3_600.0
ATTEMPT_S: Final = 600.0  # how long a login at an issuer may take
MOST_SESSIONS: Final = 1_000  # the oldest go first
ATTEMPTS_A_MINUTE: Final = 10  # failures from one address

_UNKNOWN: Final = "this is no token and no reviewer's key of this proxy"

READ_WITHIN_S: Final = 1.0  # seconds that a known key waits for the store
MOST_READS: Final = 8  # reads of known keys at a time

Role = Literal["reviewer", "admin"]


@dataclass(frozen=True, slots=True)
class Visitor:
    """Somebody whom a token, a key or a login at an issuer has made known to the desk.

    `csrf` is the token that their forms must send back, or None with a bearer token.
    """

    name: str
    role: Role
    digest: str | None = None  # of their key; None for the token, a login link, or an issuer
    csrf: str | None = None
    queues: frozenset[str] | None = None  # the queues that a reviewer is bound to; None for all
    is_named: bool = True  # whether the name is a person's, and not the id of a key

    @property
    def is_admin(self) -> bool:
        """Whether the visitor is an admin."""
        return self.role == "admin"


ADMIN: Final = Visitor("admin", "admin")


@dataclass(slots=True)
class _Session:
    """An open session: its visitor, and its end in seconds since the epoch."""

    visitor: Visitor
    ends_at: float


class Door:
    """The secrets and sessions that open the desk.

    Methods may wait for the store and raise StoreError; they are safe on any thread.
    """

    def __init__(self, token: str, login_code: str | None, keys: KeyStore) -> None:
        self._token_digest = digest_of(token.encode()) if token else None
        self._code_digest = digest_of(login_code.encode()) if login_code else None
        self._keys = keys
        self._patience = Patience(MOST_READS)
        self._remembered: dict[str, ClientKey] = {}  # keys of the desk, by their digests
        self._is_store_readable = True
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._failures = Buckets()

    def close(self) -> None:
        """Close the connection to the store of keys."""
        self._keys.close()

    def identify(self, secret: str, address: str) -> Visitor:
        """Return the visitor of the admin token or of a key.

        `address` is the client's. Raises InvalidKeyError for a wrong one, and RateLimitedError
        after `ATTEMPTS_A_MINUTE` wrong tokens from one address. The right token is always accepted,
        since others may share the address. Keys cannot be guessed, so wrong ones are not counted.
        """
        digest = digest_of(secret.encode())
        if not secret.startswith(PREFIX):
            return self._find_or_count(address, lambda: self._token_visitor(digest))
        if (visitor := self._key_visitor(digest)) is None:
            raise InvalidKeyError(_UNKNOWN)
        return visitor

    def redeem(self, code: str, address: str) -> Visitor:
        """Return the admin for the code of the login link, which works once.

        Raises as `identify` does.
        """
        return self._find_or_count(address, lambda: self._redeem_code(digest_of(code.encode())))

    def _token_visitor(self, digest: str) -> Visitor | None:
        """Return ADMIN if this is the digest of the admin token, else None."""
        is_token = self._token_digest is not None and hmac.compare_digest(
            digest, self._token_digest
        )
        return ADMIN if is_token else None

    def _key_visitor(self, digest: str) -> Visitor | None:
        """Return the visitor of a key's digest, or None where it is no active key of the desk.

        Keys of callers, and expired or revoked ones, are none. Raises StoreError.
        """
        key = self._key(digest)
        if key is None or key.role == "caller" or key.state(time.time()) != "active":
            return None
        queues = None if key.queues is None else frozenset(key.queues.split(","))
        name, is_named = key.name or key.id, bool(key.name)
        return Visitor(name, key.role, digest, queues=queues, is_named=is_named)

    def remember_keys(self) -> None:
        """Read the keys of reviewers and admins into memory, for when the store is away.

        Errors of the store are ignored.
        """
        with contextlib.suppress(StoreError):
            by_digest = {key.digest: key for key in self._keys.all() if key.role != "caller"}
            self._remembered = by_digest

    def _key(self, digest: str) -> ClientKey | None:
        """Return the key with this digest, or None; remember or forget it by what the store says.

        While the store cannot be read, or does not answer, a remembered key is returned, and the
        first time logged. Raises StoreError for a key that is not remembered then.
        """
        try:
            if digest in self._remembered:
                key = self._patience.within(READ_WITHIN_S, lambda: self._keys.find(digest))
            else:
                key = self._keys.find(digest)
        except StoreError as error:
            if (remembered := self._remembered.get(digest)) is None:
                raise
            if self._is_store_readable:
                log.warning("desk_keys_remembered", reason=error.message)
            self._is_store_readable = False
            return remembered
        self._is_store_readable = True
        if key is None or key.role == "caller" or key.revoked_at is not None:
            self._remembered.pop(digest, None)
        else:
            self._remembered[digest] = key
        return key

    def _redeem_code(self, digest: str) -> Visitor | None:
        """Use up the login code with this digest, and return the admin; otherwise None."""
        if self._code_digest is None or not hmac.compare_digest(digest, self._code_digest):
            return None
        self._code_digest = None
        return ADMIN

    def _find_or_count(self, address: str, find: Callable[[], Visitor | None]) -> Visitor:
        """Return the visitor that `find` finds; otherwise count a failure of this address.

        Then it raises InvalidKeyError, or RateLimitedError after too many failures.
        """
        if (visitor := find()) is not None:
            return visitor
        if wait_s := self._failures.take([(address, ATTEMPTS_A_MINUTE)]):
            raise RateLimitedError("too many attempts to log in", wait_s)
        raise InvalidKeyError(_UNKNOWN)

    # --- sessions -------------------------------------------------------------------------------

    def open_session(self, visitor: Visitor, lasts_s: float = SESSION_S) -> str:
        """Open a session of `lasts_s` seconds for a visitor, and return its secret for a cookie.

        Beyond `MOST_SESSIONS` the oldest session ends.
        """
        secret = secrets.token_urlsafe(32)
        session_visitor = replace(visitor, csrf=secrets.token_urlsafe(32))
        self._sessions[digest_of(secret.encode())] = _Session(
            session_visitor, time.time() + lasts_s
        )
        while len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return secret

    def session(self, secret: str) -> Visitor | None:
        """Return the visitor of a session, or None if there is none with this secret or it is over.

        A session also ends with the key that opened it. Raises StoreError.
        """
        id = digest_of(secret.encode())
        session = self._sessions.get(id)
        if session is None:
            return None
        visitor = session.visitor
        is_over = session.ends_at <= time.time()
        if is_over or (visitor.digest is not None and self._key_visitor(visitor.digest) is None):
            self._sessions.pop(id, None)
            return None
        return visitor

    def close_session(self, secret: str) -> None:
        """End the session with this secret, if there is one."""
        self._sessions.pop(digest_of(secret.encode()), None)
