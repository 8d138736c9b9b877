"""`webhooks` of proxy.yaml: who is notified about held replies, and who may decide by a message."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import Field, SecretStr, model_validator

from proxy.config.settings.admin import AdminConfig
from proxy.config.settings.oidc import is_here
from proxy.config.settings.section import Secret, Section

WebhookEvent = Literal["held", "approved", "edited", "escalated", "released", "rejected", "expired"]
Place = tuple[str | int, ...]
"""The keys and numbers of entries that lead to a place in the file."""


class WebhookConfig(Section):
    """A receiver of messages about held replies.

    A message holds their text only as far as `include_reply` or `shows` says.
    """

    url: str
    events: Annotated[tuple[WebhookEvent, ...], Field(strict=False, min_length=1)] = (
        "held",
        "released",
        "rejected",
        "expired",
    )
    secret: Secret = SecretStr("")  # signs messages
    format: Literal["json", "slack", "teams"] = "json"
    include_reply: bool = False  # of released replies, in `json`
    shows: Literal["facts", "calls", "excerpt"] = "facts"  # in a chat: also arguments, or text
    reviewer: str | None = Field(default=None, min_length=1, max_length=200)  # the only reader
    queues: Annotated[tuple[str, ...], Field(strict=False, min_length=1)] | None = None  # None: all
    allow_private: bool = False  # whether local addresses and http:// are allowed

    @property
    def identity(self) -> str:
        """A lasting text that tells this webhook from others: its address, reviewer and queues.

        One address may serve several reviewers, or each queue in another way.
        """
        parts = [self.url]
        parts += [f"reviewer {self.reviewer}"] if self.reviewer is not None else []
        parts += [f"queues {', '.join(sorted(self.queues))}"] if self.queues is not None else []
        return "\n".join(parts)

    @property
    def is_chat(self) -> bool:
        """Whether messages go to a chat, Slack or Teams."""
        return self.format != "json"

    @model_validator(mode="after")
    def _is_safe(self) -> WebhookConfig:
        """Raise ValueError for a bad address or secret.

        The address must be https, or http with `allow_private`, and name no user. A secret that
        begins with `whsec_` must be base64, and the format `json` needs a secret.
        """
        allowed = "https?" if self.allow_private else "https"
        if not re.fullmatch(allowed + r"://[^/@\s]+(/\S*)?", self.url):
            scheme = "http:// or https://" if self.allow_private else "https://"
            raise ValueError(f"url must begin with {scheme}, and name no user")
        secret = self.secret.get_secret_value()
        if secret.startswith("whsec_"):
            base64.b64decode(secret.removeprefix("whsec_"), validate=True)  # raises ValueError
        if self.format == "json" and not secret:
            raise ValueError("a secret is needed, by which the receiver knows who sent a message")
        return self

    @model_validator(mode="after")
    def _check_chat_settings(self) -> WebhookConfig:
        """Raise ValueError for `shows` in the format `json`, and for a blank reviewer."""
        if self.shows != "facts" and not self.is_chat:
            raise ValueError("shows is for slack and teams; json has include_reply")
        if self.reviewer is not None and not self.reviewer.strip():
            raise ValueError("a reviewer has a name")
        return self


def webhook_problems(
    admin: AdminConfig, webhooks: Sequence[WebhookConfig]
) -> list[tuple[Place, str]]:
    """Return the first problem of webhooks as [(place, sentence)], or [] where there is none.

    A place is a path such as `("webhooks", 1)`. Of two webhooks with the same identity, only the
    last would receive messages. A webhook with a `reviewer` needs a desk, a link secret and an
    address.
    """
    known = [each.identity for each in webhooks]
    for at, identity in enumerate(known):
        if (first := known.index(identity)) != at:
            text = f"this is webhooks[{first}] once more: name all events in one of them"
            return [(("webhooks", at), text)]
    with_reviewer = [at for at, each in enumerate(webhooks) if each.reviewer is not None]
    if not with_reviewer:
        return []
    place: Place = ("webhooks", with_reviewer[0], "reviewer")
    return [(place, text) for text in _list_missing(admin)][:1]


def _list_missing(admin: AdminConfig) -> Iterator[str]:
    """Yield a sentence for each thing that links for decisions lack.

    They need an enabled desk, `link_secrets`, and an http(s) `url` unless the desk is on this
    machine.
    """
    if not admin.enabled:
        yield "a reviewer decides at the desk, which 'admin: false' switches off"
    if not admin.link_secrets:
        yield (
            "links that decide are signed: set admin.link_secrets to a list with one secret "
            "(openssl rand -base64 32), or remove reviewer"
        )
    if admin.url is None and not is_here(admin.host):
        yield "links need the address under which people reach the desk: set admin.url"
    if admin.url is not None and not admin.url.startswith(("https://", "http://")):
        yield "links need an admin.url that begins with https:// or http://"
