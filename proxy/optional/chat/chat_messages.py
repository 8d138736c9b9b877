"""Chat messages about a held reply: its facts, and buttons that lead to where it is decided.

Names, arguments and excerpts come from others. They are sent as plain text, in which a chat makes
no link and mentions nobody, with invisible characters shown. The formats are Slack's Block Kit, and
Adaptive Cards, which Teams accepts at a workflow's webhook.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from proxy.desk.decisions.unseen import one_line
from proxy.http.wire.json_splice import dumps
from proxy.store.reviews.approvals import approved_by
from proxy.store.reviews.events import ReviewEvent
from proxy.store.reviews.held_replies import HELD, HeldReply

TITLES: Final = {
    "held": "A reply waits for review",
    "approved": "A held reply was approved, and needs another approval",
    "edited": "A held reply was edited, and needs another approval",
    "escalated": "Nobody decided in time on a held reply: it waits in another queue",
    "released": "A held reply was released",
    "rejected": "A held reply was rejected",
    "expired": "Nobody decided on a held reply in time",
}
MOST_OF_A_FACT: Final = 150
MOST_OF_A_SECTION: Final = 2_900  # characters; Slack accepts 3,000
MINUTE_S: Final = 60
UNITS: Final[tuple[tuple[str, int], ...]] = (("d", 86_400), ("h", 3_600), ("min", MINUTE_S))


@dataclass(frozen=True, slots=True)
class Button:
    """A button that opens an address."""

    label: str
    url: str
    kind: str = ""  # "primary", "danger", or empty for a plain button


@dataclass(frozen=True, slots=True)
class MessageContent:
    """What a message shows besides the facts, as far as its webhook allows.

    `calls` are shown as code, and `excerpts` with a name each.
    """

    reasons: Sequence[str] = ()
    calls: Sequence[str] = ()
    excerpts: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """A message, before it is put into a chat's format."""

    title: str
    facts: Sequence[tuple[str, str]]
    shown: MessageContent
    buttons: Sequence[Button]
    url: str | None = None  # the review's page at the desk

    @property
    def summary(self) -> str:
        """One line for notifications."""
        facts = dict(self.facts)
        return (
            f"{self.title}: {facts['Model']} in {facts['Queue']}, confidence {facts['Confidence']}"
        )


def chat_message(
    event: ReviewEvent,
    held: HeldReply | None,
    shown: MessageContent,
    buttons: Sequence[Button],
    url: str | None,
) -> ChatMessage:
    """Build a message about an event and the current state of its reply, if that is still stored.

    The reply may be decided by the time that the message is sent.
    """
    sure = "none" if event.confidence is None else f"{event.confidence:.2f}"
    policy = event.policy.rpartition("@")[0] or event.policy
    facts = {"Queue": event.queue, "Policy": policy, "Model": event.model, "Confidence": sure}
    facts |= {"Team": event.team or "", "By": event.by or ""}
    if held is not None and held.quorum > 1:
        facts["Approved"] = _describe_approvals(held)
    if held is not None and held.state == HELD:
        facts["Time left"] = _format_time_left(held.expires_at)
    facts["Id"] = event.review_id
    told = [(name, one_line(value, MOST_OF_A_FACT)) for name, value in facts.items() if value]
    return ChatMessage(TITLES[event.event], told, shown, buttons, url)


def as_slack(message: ChatMessage) -> bytes:
    """Serialize a message for Slack's incoming webhooks, with buttons that are links."""
    title = _escape_text(message.title)
    title = f"*<{message.url}|{title}>*" if message.url else f"*{title}*"
    fields = [
        _markup_block(f"*{name}*\n{_escape_text(value)}") for name, value in message.facts[:10]
    ]
    blocks: list[dict[str, Any]] = [
        {"type": "section", "text": _markup_block(title)},
        {"type": "section", "fields": fields},
    ]
    if message.shown.reasons:
        reasons = f"_Doubtful_: {_escape_text(', '.join(message.shown.reasons))}"
        blocks.append({"type": "section", "text": _markup_block(reasons)})
    for text in _plain_lines(message.shown):
        told = {"type": "plain_text", "text": text[:MOST_OF_A_SECTION], "emoji": False}
        blocks.append({"type": "section", "text": told})
    if message.buttons:
        blocks.append({"type": "actions", "elements": list(map(_slack_button, message.buttons))})
    whole = {"text": _escape_text(message.summary), "blocks": blocks}
    return dumps({**whole, "unfurl_links": False, "unfurl_media": False})


def _slack_button(button: Button) -> dict[str, Any]:
    label = {"type": "plain_text", "text": button.label}
    made = {"type": "button", "text": label, "url": button.url, "action_id": button.label.lower()}
    return {**made, "style": button.kind} if button.kind else made


def _markup_block(text: str) -> dict[str, Any]:
    """Return text with Slack's markup; foreign words in it must be escaped.

    `verbatim` keeps Slack from turning words that look like links into links.
    """
    return {"type": "mrkdwn", "text": text[:MOST_OF_A_SECTION], "verbatim": True}


def _escape_text(text: str) -> str:
    """Escape a text for Slack, so that no name in it can mention a channel or make a link."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def as_teams(message: ChatMessage) -> bytes:
    """Serialize a message as an Adaptive Card, for a Teams workflow that posts it."""
    body: list[dict[str, Any]] = [
        {"type": "TextBlock", "text": message.title, "weight": "Bolder", "size": "Medium"},
    ]
    body[0]["wrap"] = True
    for name, value in message.facts:
        body.append(_runs((f"{name}: ", True), (value, False)))
    if message.shown.reasons:
        body.append(_runs(("Doubtful: ", True), (", ".join(message.shown.reasons), False)))
    body += [_runs((text, False)) for text in _plain_lines(message.shown)]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "fallbackText": message.summary,
        "body": body,
        "actions": [_teams_button(each) for each in message.buttons],
    }
    attachment = {
        "contentType": "application/vnd.microsoft.card.adaptive",
        "contentUrl": None,
        "content": card,
    }
    return dumps({"type": "message", "attachments": [attachment]})


def _runs(*pieces: tuple[str, bool]) -> dict[str, Any]:
    """Return text without markup, some of it bold; a TextBlock would read it as markdown."""
    inlines = [
        {"type": "TextRun", "text": text, "weight": "Bolder" if is_bold else "Default"}
        for text, is_bold in pieces
    ]
    return {"type": "RichTextBlock", "inlines": inlines}


def _teams_button(button: Button) -> dict[str, Any]:
    style = {"primary": "positive", "danger": "destructive"}.get(button.kind, "default")
    return {"type": "Action.OpenUrl", "title": button.label, "url": button.url, "style": style}


def _plain_lines(shown: MessageContent) -> list[str]:
    """Return the calls, one below the other, then each excerpt."""
    calls = ["\n".join(shown.calls)] if shown.calls else []
    return calls + [f"{name}: {text}" for name, text in shown.excerpts]


def _describe_approvals(held: HeldReply) -> str:
    """Return how many people have approved, and who: `1 of 2, by alice`."""
    people = [each["by"] for each in approved_by(held.approved)]
    by = f", by {', '.join(people)}" if people else ""
    return f"{len(people)} of {held.quorum}{by}"


def _format_time_left(until: float) -> str:
    """Return how much time is left to decide, and when it ends."""
    left_s = max(0.0, until - time.time())
    unit, size = next(each for each in UNITS if left_s >= 2 * each[1] or each[1] == MINUTE_S)
    amount = f"{left_s / size:.0f} {unit}"
    return f"{amount}, until {time.strftime('%Y-%m-%d %H:%M', time.gmtime(until))} UTC"
