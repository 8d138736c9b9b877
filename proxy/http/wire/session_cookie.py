"""The cookie of the review desk's sessions, which is not passed on.

Browsers keep cookies per host, whatever the port: a user who is logged in at the desk sends the
session to the proxy's own listener too. The proxy does not forward it, and a cookie of that name
from upstream does not reach the browser.
"""

from __future__ import annotations

from typing import Final

NAME: Final = "pinocchio_session"
SECURE_NAME: Final = f"__Host-{NAME}"  # can only be set by its own host, over https
LOGIN_NAME: Final = f"{NAME}_login"  # a login in progress at an issuer
SECURE_LOGIN_NAME: Final = f"__Host-{LOGIN_NAME}"
_NAMES: Final = tuple(name.encode() for name in (NAME, SECURE_NAME, LOGIN_NAME, SECURE_LOGIN_NAME))
_MARK: Final = NAME.encode()


def without_session(cookies: bytes) -> bytes | None:
    """Return a `Cookie` field's value without the desk's sessions; None if nothing is left."""
    if _MARK not in cookies:
        return cookies
    others = [each for each in cookies.split(b";") if _name_of(each) not in _NAMES]
    return b";".join(others).strip() or None


def sets_session(cookie: bytes) -> bool:
    """Return whether the value of a `Set-Cookie` field sets a cookie that could be taken for ours.

    Browsers send a cookie without a name as its bare value, so the value may hold the name.
    """
    return _MARK in cookie.partition(b";")[0].lower()


def _name_of(cookie: bytes) -> bytes:
    """Return the name in `name=value`, without blanks."""
    return cookie.partition(b"=")[0].strip()
