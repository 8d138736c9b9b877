"""`admin` of proxy.yaml: the review desk's own listener, and the secrets that sign its links."""

from __future__ import annotations

import os
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from proxy.config.settings.oidc import OidcConfig
from proxy.config.settings.section import Secret, Section

SHORTEST_LINK_SECRET = 32  # characters; anybody who guesses a secret can decide on everything


def _drop_empty(value: Any) -> Any:
    """Return a list without "" and null, any other value unchanged.

    `${OLD_SECRET:-}` is empty until it is needed.
    """
    return [each for each in value if each not in ("", None)] if isinstance(value, list) else value


def _long(secrets: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
    """Return the secrets unchanged; raise ValueError for one of less than 32 characters."""
    if any(len(each.get_secret_value()) < SHORTEST_LINK_SECRET for each in secrets):
        raise ValueError(
            f"a secret has at least {SHORTEST_LINK_SECRET} characters: openssl rand -base64 32"
        )
    return secrets


LinkSecrets = Annotated[
    tuple[Secret, ...],
    Field(strict=False, max_length=2),
    BeforeValidator(_drop_empty),
    AfterValidator(_long),
]
"""At most two secrets: the first signs; links of both are valid, so one can replace the other."""


LINKS: Final = "/pinocchio/links/"
"""The path of the pages where a link in a chat message leads."""


class AdminConfig(Section):
    """The review desk's own listener; `admin: false` is `enabled: false`."""

    enabled: bool = True
    host: str = "127.0.0.1"
    port: int | None = Field(default=None, ge=0, le=65_535)  # None: 8001, or a free one
    token: Secret = Field(  # empty: a login link, printed at start
        default_factory=lambda: SecretStr(os.environ.get("PINOCCHIO_ADMIN_TOKEN", ""))
    )
    url: str | None = None  # the public address for links, where it differs from host and port
    oidc: OidcConfig | None = None  # None: people log in with tokens and keys alone
    link_secrets: LinkSecrets = ()  # sign the links by which reviewers decide in a chat

    @property
    def has_token(self) -> bool:
        """Whether an admin token is set."""
        return bool(self.token.get_secret_value())

    @property
    def link_keys(self) -> list[str]:
        """The secrets of links as text."""
        return [each.get_secret_value() for each in self.link_secrets]
