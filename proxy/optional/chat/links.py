"""Links by which a reviewer decides from a chat message: signed, for one person, used once.

A link names the reply in its current state, the reviewer, and when the link expires:

    TOKEN = base64url([review id, reviewer, revision, expires]) . base64url(HMAC-SHA256)

It is no session and opens nothing else. Of two secrets the first one signs and both are accepted,
so that a secret can be replaced while links are in use.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Final
from urllib.parse import quote

from proxy.config.settings.admin import LINKS
from proxy.store.reviews.used_links import LinkUse

MOST_OF_A_TOKEN: Final = 4_096  # characters
_MEANING: Final = b"pinocchio: decide on a held reply\n"  # separates links from other signatures


@dataclass(frozen=True, slots=True)
class DecisionLink:
    """The content of a link.

    `revision` names the edit that waits for approval, or is None for upstream's own reply.
    `expires_at` is in seconds since the epoch.
    """

    review_id: str
    reviewer: str
    revision: str | None
    expires_at: int

    @property
    def use(self) -> LinkUse:
        """The decision that uses the link up."""
        return LinkUse(self.review_id, self.reviewer, self.revision)


class Signer:
    """Signs links and reads them; `secrets` has one or two."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._keys = [each.encode() for each in secrets]

    def token(self, link: DecisionLink) -> str:
        """Return the token of a link, signed with the first secret."""
        content = _encode(json.dumps(astuple(link)).encode())
        return f"{content}.{_signature(self._keys[0], content)}"

    def read(self, token: str) -> DecisionLink | None:
        """Return the link of a token, or None where none of our secrets has signed it."""
        content, _, signature = token.partition(".")
        if len(token) > MOST_OF_A_TOKEN:
            return None
        signatures = [_signature(key, content) for key in self._keys]
        if not any([hmac.compare_digest(each.encode(), signature.encode()) for each in signatures]):
            return None
        try:
            return DecisionLink(
                *json.loads(base64.urlsafe_b64decode(content + "=" * (-len(content) % 4)))
            )
        except (ValueError, TypeError, binascii.Error):  # signed, but not as a link
            return None


def link_url(desk_url: str, token: str, verdict: str | None = None) -> str:
    """Return the address of a link.

    `verdict` is the button that was pressed; it only preselects a decision.
    """
    query = f"?verdict={quote(verdict)}" if verdict else ""
    return f"{desk_url.rstrip('/')}{LINKS}{token}{query}"


def _signature(key: bytes, content: str) -> str:
    """Return the HMAC-SHA256 of a token's content under a key, in URL-safe base64."""
    return _encode(hmac.new(key, _MEANING + content.encode(), hashlib.sha256).digest())


def _encode(value: bytes) -> str:
    """Encode bytes in URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(value).decode().rstrip("=")
