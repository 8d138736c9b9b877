"""`admin.oidc` of proxy.yaml: logins at an OpenID issuer, with rights by group."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, model_validator

from proxy.config.settings.section import Secret, Section

EVERYBODY = "*"  # the group of all whom the issuer lets in


def _issuer(value: str) -> str:
    """Return an issuer's address unchanged, a final slash included: tokens are compared with it.

    Raises ValueError for anything but https, or http on this machine.
    """
    parts = urlsplit(value)
    if not parts.hostname or parts.username is not None or parts.query or parts.fragment:
        raise ValueError("an issuer is an address such as https://login.example/realms/main")
    if parts.scheme == "https" or (parts.scheme == "http" and is_here(parts.hostname)):
        return value
    raise ValueError("an issuer is asked over https://; http:// is for this machine alone")


def is_here(host: str) -> bool:
    """Return whether a host is a loopback address, such as `127.0.0.1` or `::1`, or `localhost`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class GroupConfig(Section):
    """The rights of a group's people at the desk."""

    role: Literal["reviewer", "admin"] = "reviewer"
    queues: Annotated[tuple[str, ...], Field(strict=False, min_length=1)] | None = None  # None: all

    @model_validator(mode="after")
    def _is_one(self) -> GroupConfig:
        """Raise ValueError for an admin with `queues`, as admins see all of them."""
        if self.role == "admin" and self.queues is not None:
            raise ValueError("an admin sees all queues; remove queues, or make it a reviewer")
        return self


class OidcConfig(Section):
    """The issuer where people log in, and the groups that may; claims are those of the ID token."""

    issuer: Annotated[str, AfterValidator(_issuer)]
    client_id: str = Field(min_length=1)
    client_secret: Secret = SecretStr("")  # empty: a public client, which has none
    title: str = Field(default="single sign-on", min_length=1)  # on the login page
    scopes: Annotated[tuple[str, ...], Field(strict=False)] = ("openid", "profile", "email")
    name_claim: str = Field(default="preferred_username", min_length=1)  # a person's name
    groups_claim: str = Field(default="groups", min_length=1)  # `a.b`: b within a
    groups: dict[str, GroupConfig] = Field(min_length=1)

    @model_validator(mode="after")
    def _asks_for_openid(self) -> OidcConfig:
        """Raise ValueError where `scopes` lack `openid`, without which there is no ID token."""
        if "openid" not in self.scopes:
            raise ValueError("scopes must name openid, else there is no ID token")
        return self
