"""The cookie of the review desk's sessions, which is nobody else's.

Browsers keep cookies for a host, whatever its port: who is logged in at the desk sends the session
to the proxy's own listener too. It goes no further, and what upstream would set under its name
reaches no browser.
"""

from __future__ import annotations

from typing import Final

NAME: Final = "pinocchio_session"
SECURE_NAME: Final = f"__Host-{NAME}"  # which only its own host can set, over https
LOGIN_NAME: Final = f"{NAME}_login"  # of a login that goes by way of an issuer
SECURE_LOGIN_NAME: Final = f"__Host-{LOGIN_NAME}"
_NAMES: Final = tuple(name.encode() for name in (NAME, SECURE_NAME, LOGIN_NAME, SECURE_LOGIN_NAME))
_MARK: Final = NAME.encode()


def without_session(cookies: bytes) -> bytes | None:
    """The value of a `Cookie` field without our sessions; None where nothing else is in it."""
    if _MARK not in cookies:
        return cookies
    kept = [each for each in cookies.split(b";") if _name_of(each) not in _NAMES]
    return b";".join(kept).strip() or None


def sets_session(cookie: bytes) -> bool:
    """Whether the value of a `Set-Cookie` field sets a cookie that would be taken for ours.

    Browsers send a cookie without a name as its value alone, so that this may hold the name.
    """
    return _MARK in cookie.partition(b";")[0].lower()


def _name_of(cookie: bytes) -> bytes:
    return cookie.partition(b"=")[0].strip()
