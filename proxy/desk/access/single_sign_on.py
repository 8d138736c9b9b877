"""Logs people in at an OpenID issuer: the way there and back, and their role at the desk.

The values that an answer must match are in a cookie that this process has signed, valid for minutes
and once. So an answer that another browser began, or that arrives twice, opens nothing.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import structlog

from proxy.config.settings.oidc import EVERYBODY, OidcConfig
from proxy.desk.access.issuer import Issuer, LoginRefusedError, claim
from proxy.desk.access.sessions import ATTEMPT_S, Visitor

log = structlog.get_logger(__name__)

SESSION_S: Final = 43_200.0  # how long a session lasts
MOST_USED: Final = 10_000  # used attempts that are remembered; the oldest go first
MOST_WANTED: Final = 1_000  # characters of the address to go on to
MOST_OF_A_NAME: Final = 200
_LOG_IN_AGAIN: Final = "log in again"


def _random() -> str:
    """Return a random secret of 43 characters."""
    return secrets.token_urlsafe(32)


@dataclass(frozen=True, slots=True)
class Attempt:
    """A login that was begun, with the values that its answer must match."""

    wanted: str  # the address to go on to
    state: str = field(default_factory=_random)
    nonce: str = field(default_factory=_random)
    verifier: str = field(default_factory=_random)
    ends_at: float = field(default_factory=lambda: time.time() + ATTEMPT_S)


class SingleSignOn:
    """Logins at one issuer; raises LoginRefusedError and IssuerError."""

    def __init__(self, issuer: Issuer, desk_url: str | None) -> None:
        self.issuer = issuer
        self.config = issuer.config
        self.session_s = SESSION_S
        self.desk_url = desk_url and desk_url.rstrip("/")  # None: the address of the request
        self._key = secrets.token_bytes(32)
        self._used: OrderedDict[str, None] = OrderedDict()

    async def begin(self, next_url: str, back: str) -> tuple[str, str]:
        """Begin a login, and return (the issuer's address, the value of the browser's cookie).

        `next_url` is the address to go on to after the login, `back` the one to return to.
        """
        attempt = Attempt(next_url if len(next_url) <= MOST_WANTED else "/")
        url = await self.issuer.login_url(attempt.state, attempt.nonce, attempt.verifier, back)
        return url, self._sign(attempt)

    async def end(self, answer: Mapping[str, str], cookie: str, back: str) -> tuple[Visitor, str]:
        """Check the issuer's answer, and return (the visitor, the address to go on to).

        `answer` has the query's parameters. Logs the login, or that it was refused. Raises
        LoginRefusedError and IssuerError.
        """
        try:
            attempt = self._attempt(cookie, answer.get("state", ""))
            visitor = await self._visitor(answer, attempt, back)
        except LoginRefusedError as error:
            log.warning("login_refused", reason=error.message)
            raise
        log.info("logged_in", reviewer=visitor.name, role=visitor.role)
        return visitor, attempt.wanted

    async def _visitor(self, answer: Mapping[str, str], attempt: Attempt, back: str) -> Visitor:
        """Return the visitor that the issuer's answer names; exchanges its code.

        Raises LoginRefusedError and IssuerError.
        """
        await self.issuer.check_answer(answer)
        if error := answer.get("error"):
            raise LoginRefusedError(f"{self.config.title} says {error[:100]!r}: {_LOG_IN_AGAIN}")
        if not (code := answer.get("code")):
            raise LoginRefusedError(f"the answer has no code: {_LOG_IN_AGAIN}")
        claims = await self.issuer.claims(code, attempt.verifier, attempt.nonce, back)
        return visitor_of(self.config, claims)

    # --- the cookie -----------------------------------------------------------------------------

    def _sign(self, attempt: Attempt) -> str:
        """Return the cookie's value for a login: its fields in base64, and a signature."""
        text = base64.urlsafe_b64encode(json.dumps(asdict(attempt)).encode()).decode()
        return f"{text}.{self._signature(text)}"

    def _signature(self, text: str) -> str:
        """Return the HMAC-SHA-256 of a text, in hex, under this process's key."""
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()

    def _attempt(self, cookie: str, state: str) -> Attempt:
        """Return the login that a cookie holds, and mark it as used.

        Raises LoginRefusedError if the cookie is not ours, the login is late or was used before, or
        `state` is another login's.
        """
        text, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(text).encode()):
            raise LoginRefusedError(f"no login was begun in this browser: {_LOG_IN_AGAIN}")
        attempt = Attempt(**json.loads(base64.urlsafe_b64decode(text)))
        if not hmac.compare_digest(attempt.state.encode(), state.encode()):
            raise LoginRefusedError(f"this answer belongs to another login: {_LOG_IN_AGAIN}")
        if attempt.ends_at <= time.time():
            raise LoginRefusedError(f"the login took too long: {_LOG_IN_AGAIN}")
        if attempt.state in self._used:
            raise LoginRefusedError(f"this login was used before: {_LOG_IN_AGAIN}")
        self._used[attempt.state] = None
        while len(self._used) > MOST_USED:
            self._used.popitem(last=False)
        return attempt


def visitor_of(config: OidcConfig, claims: Mapping[str, Any]) -> Visitor:
    """Return the visitor that claims admit, with role and queues by their groups.

    The most powerful group counts: admin, then a reviewer of all queues, then the union of queues.
    Raises LoginRefusedError for claims without a name, with an unverified e-mail address as the
    name, or without a known group.
    """
    name = claim(claims, config.name_claim)
    if not isinstance(name, str) or not name.strip() or len(name) > MOST_OF_A_NAME:
        raise LoginRefusedError(f"the ID token has no name (claim {config.name_claim!r})")
    if config.name_claim == "email" and claims.get("email_verified") is not True:
        raise LoginRefusedError("the issuer has not verified this e-mail address")
    name = name.strip()
    value = claim(claims, config.groups_claim)
    values = value if isinstance(value, list) else [value]
    groups = {each for each in values if isinstance(each, str)} | {EVERYBODY}
    sections = [section for group, section in config.groups.items() if group in groups]
    if not sections:
        raise LoginRefusedError(f"{name} is in no group that may come to this desk")
    if any(each.role == "admin" for each in sections):
        return Visitor(name, "admin")
    if any(each.queues is None for each in sections):
        return Visitor(name, "reviewer")
    queues = frozenset(queue for each in sections for queue in each.queues or ())
    return Visitor(name, "reviewer", queues=queues)
