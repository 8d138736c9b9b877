"""Composes chat messages: what each webhook may show of a reply, and the links of its reviewer.

A reviewer's own webhook gets buttons that lead to a page where they decide, by a link signed for
them. Buttons in other webhooks lead to the desk, where people log in: in a channel it is unknown
who presses a button.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from proxy.config.settings.admin import AdminConfig
from proxy.config.settings.webhooks import WebhookConfig
from proxy.desk.decisions.unseen import one_line, visible
from proxy.desk.decisions.waiting_calls import Doubts, WaitingCall
from proxy.desk.notify.webhook_messages import link
from proxy.formats.conversation import Turn, read_reply
from proxy.optional.chat.chat_messages import (
    Button,
    ChatMessage,
    MessageContent,
    as_slack,
    as_teams,
    chat_message,
)
from proxy.optional.chat.links import DecisionLink, Signer, link_url
from proxy.store.reviews.approvals import has_approved, revision_of
from proxy.store.reviews.events import ReviewEvent
from proxy.store.reviews.held_replies import HELD, HeldReply

MOST_CALLS: Final = 5
MOST_OF_A_TEXT: Final = 500  # characters of a call or an excerpt
LINK_S: Final = 86_400.0  # the life of a link


class Chat:
    """Makes messages with signed links to the desk; without a `desk_url` they have no buttons."""

    def __init__(self, admin: AdminConfig, desk_url: str | None) -> None:
        self._desk_url = desk_url
        self._signer = Signer(admin.link_keys)
        self._doubts = Doubts()

    def body(self, webhook: WebhookConfig, event: ReviewEvent, held: HeldReply | None) -> bytes:
        """Return the message in the webhook's format; `held` is the reply as it is now."""
        message = self._message(webhook, event, held)
        return as_teams(message) if webhook.format == "teams" else as_slack(message)

    def decide_url(
        self, webhook: WebhookConfig, event: ReviewEvent, held: HeldReply | None
    ) -> str | None:
        """Return the address where the webhook's reviewer decides.

        None where it has no reviewer, or nothing is left for them to decide.
        """
        if webhook.reviewer is None or self._desk_url is None or held is None:
            return None
        if held.state != HELD or has_approved(held.approved, webhook.reviewer):
            return None
        until = int(min(held.expires_at, event.at + LINK_S))
        made = DecisionLink(held.id, webhook.reviewer, revision_of(held.proposed), until)
        return link_url(self._desk_url, self._signer.token(made))

    def _message(
        self, webhook: WebhookConfig, event: ReviewEvent, held: HeldReply | None
    ) -> ChatMessage:
        shown = MessageContent()
        if held is not None and not held.is_forgotten:
            reasons = self._doubts.of(held)[1]
            calls = self._doubts.waiting_calls(held, None)
            shown = shown_of(held, calls, reasons, webhook.shows)
        buttons = list(self._buttons(webhook, event, held))
        return chat_message(event, held, shown, buttons, link(event, self._desk_url))

    def _buttons(
        self, webhook: WebhookConfig, event: ReviewEvent, held: HeldReply | None
    ) -> Sequence[Button]:
        """Return the buttons of a message; none without the desk's address."""
        desk = link(event, self._desk_url)
        if desk is None:
            return []
        decide = self.decide_url(webhook, event, held)
        if decide is not None:
            return [
                Button("Approve", f"{decide}?verdict=approve", "primary"),
                Button("Reject", f"{decide}?verdict=reject", "danger"),
                Button("At the desk", desk),
            ]
        is_open = held is not None and held.state == HELD
        return [Button("Decide at the desk" if is_open else "At the desk", desk)]


def shown_of(
    held: HeldReply, calls: Sequence[WaitingCall], reasons: Sequence[str], how: str
) -> MessageContent:
    """Return as much of a reply as `how` allows: `facts`, `calls` or `excerpt`.

    With `facts` only the names of the called tools are shown.
    """
    lines = [call.name if how == "facts" else call.marked_line for call in calls]
    cut = [one_line(line, MOST_OF_A_TEXT) for line in lines[:MOST_CALLS]]
    if (more := len(lines) - MOST_CALLS) > 0:
        cut.append(f"and {more} more")
    excerpts = _excerpts(held) if how == "excerpt" else []
    return MessageContent([visible(each) for each in reasons], cut, excerpts)


def _excerpts(held: HeldReply) -> list[tuple[str, str]]:
    """Return the beginning of the question, and of the text that answers it, with their names."""
    texts = {
        "Question": held.question,
        "Reply": _text_of(read_reply(held.edit or held.reply, held.path)),
    }
    return [(name, one_line(text, MOST_OF_A_TEXT)) for name, text in texts.items() if text.strip()]


def _text_of(turns: Sequence[Turn]) -> str:
    return " ".join(part.text for turn in turns for part in turn.parts if part.kind == "text")
