"""Composes chat messages: what each webhook may show of a reply, and the links of its reviewer.

A reviewer's own webhook gets buttons that lead to a page where they decide, by a link signed for
them. Buttons in other webhooks lead to the desk, where people log in: in a channel it is unknown
who presses a button.

Names, arguments and excerpts come from others. They are sent as plain text, in which a chat makes
no link and mentions nobody, with invisible characters shown. The formats are Slack's Block Kit, and
Adaptive Cards, which Teams accepts at a workflow's webhook.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from proxy.config.settings.admin import AdminConfig
from proxy.config.settings.webhooks import WebhookConfig
from proxy.desk.decisions.unseen import one_line, visible
from proxy.desk.decisions.waiting_calls import Doubts, WaitingCall
from proxy.desk.webhooks import link
from proxy.formats.conversation import Turn, read_reply
from proxy.http.wire.json_splice import dumps
from proxy.optional.chat.links import DecisionLink, Signer, link_url
from proxy.store.reviews.approvals import approved_by, has_approved, revision_of
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

MOST_CALLS: Final = 5
MOST_OF_A_TEXT: Final = 500  # characters of a call or an excerpt
LINK_S: Final = 86_400.0  # the life of a link


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
    content: MessageContent
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
    content: MessageContent,
    buttons: Sequence[Button],
    url: str | None,
) -> ChatMessage:
    """Build a message about an event and the current state of its reply, if that is still stored.

    The reply may be decided by the time that the message is sent.
    """
    confidence = "none" if event.confidence is None else f"{event.confidence:.2f}"
    policy = event.policy.rpartition("@")[0] or event.policy
    facts = {"Queue": event.queue, "Policy": policy, "Model": event.model, "Confidence": confidence}
    facts |= {"Team": event.team or "", "By": event.by or ""}
    if held is not None and held.quorum > 1:
        facts["Approved"] = _describe_approvals(held)
    if held is not None and held.state == HELD:
        facts["Time left"] = _format_time_left(held.expires_at)
    facts["Id"] = event.review_id
    fields = [(name, one_line(value, MOST_OF_A_FACT)) for name, value in facts.items() if value]
    return ChatMessage(TITLES[event.event], fields, content, buttons, url)


def as_slack(message: ChatMessage) -> bytes:
    """Return the message as the JSON body of a Slack webhook."""
    title = _escape_text(message.title)
    title = f"*<{message.url}|{title}>*" if message.url else f"*{title}*"
    fields = [
        _markup_block(f"*{name}*\n{_escape_text(value)}") for name, value in message.facts[:10]
    ]
    blocks: list[dict[str, Any]] = [
        {"type": "section", "text": _markup_block(title)},
        {"type": "section", "fields": fields},
    ]
    if message.content.reasons:
        reasons = f"_Doubtful_: {_escape_text(', '.join(message.content.reasons))}"
        blocks.append({"type": "section", "text": _markup_block(reasons)})
    for text in _plain_lines(message.content):
        block = {"type": "plain_text", "text": text[:MOST_OF_A_SECTION], "emoji": False}
        blocks.append({"type": "section", "text": block})
    if message.buttons:
        blocks.append({"type": "actions", "elements": list(map(_slack_button, message.buttons))})
    body = {"text": _escape_text(message.summary), "blocks": blocks}
    return dumps({**body, "unfurl_links": False, "unfurl_media": False})


def _slack_button(button: Button) -> dict[str, Any]:
    """Return a button as an element of Slack's Block Kit."""
    label = {"type": "plain_text", "text": button.label}
    element = {
        "type": "button",
        "text": label,
        "url": button.url,
        "action_id": button.label.lower(),
    }
    return {**element, "style": button.kind} if button.kind else element


def _markup_block(text: str) -> dict[str, Any]:
    """Return text with Slack's markup; foreign words in it must be escaped.

    `verbatim` keeps Slack from turning words that look like links into links.
    """
    return {"type": "mrkdwn", "text": text[:MOST_OF_A_SECTION], "verbatim": True}


def _escape_text(text: str) -> str:
    """Escape a text for Slack, so that no name in it can mention a channel or make a link."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def as_teams(message: ChatMessage) -> bytes:
    """Return the message as the JSON body of a Teams webhook, an Adaptive Card."""
    body: list[dict[str, Any]] = [
        {"type": "TextBlock", "text": message.title, "weight": "Bolder", "size": "Medium"},
    ]
    body[0]["wrap"] = True
    for name, value in message.facts:
        body.append(_runs((f"{name}: ", True), (value, False)))
    if message.content.reasons:
        body.append(_runs(("Doubtful: ", True), (", ".join(message.content.reasons), False)))
    body += [_runs((text, False)) for text in _plain_lines(message.content)]
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


def _plain_lines(content: MessageContent) -> list[str]:
    """Return the calls, one below the other, then each excerpt."""
    calls = ["\n".join(content.calls)] if content.calls else []
    return calls + [f"{name}: {text}" for name, text in content.excerpts]


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
        decision_link = DecisionLink(held.id, webhook.reviewer, revision_of(held.proposed), until)
        return link_url(self._desk_url, self._signer.token(decision_link))

    def _message(
        self, webhook: WebhookConfig, event: ReviewEvent, held: HeldReply | None
    ) -> ChatMessage:
        """Return the message about an event of a held reply, with what this webhook may show.

        `held` is None where the reply is not kept any more: then only the event's facts are shown.
        """
        content = MessageContent()
        if held is not None and not held.is_forgotten:
            reasons = self._doubts.of(held)[1]
            calls = self._doubts.waiting_calls(held, None)
            content = content_of(held, calls, reasons, webhook.shows)
        buttons = list(self._buttons(webhook, event, held))
        return chat_message(event, held, content, buttons, link(event, self._desk_url))

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


def content_of(
    held: HeldReply, calls: Sequence[WaitingCall], reasons: Sequence[str], detail: str
) -> MessageContent:
    """Return as much of a reply as `detail` allows: `facts`, `calls` or `excerpt`.

    With `facts` only the names of the called tools are shown.
    """
    lines = [call.name if detail == "facts" else call.marked_line for call in calls]
    cut = [one_line(line, MOST_OF_A_TEXT) for line in lines[:MOST_CALLS]]
    if (more := len(lines) - MOST_CALLS) > 0:
        cut.append(f"and {more} more")
    excerpts = _excerpts(held) if detail == "excerpt" else []
    return MessageContent([visible(each) for each in reasons], cut, excerpts)


def _excerpts(held: HeldReply) -> list[tuple[str, str]]:
    """Return (name, beginning) of the question and of the reply, the edited one if there is one.

    Blank texts are left out.
    """
    texts = {
        "Question": held.question,
        "Reply": _text_of(read_reply(held.edit or held.reply, held.path)),
    }
    return [(name, one_line(text, MOST_OF_A_TEXT)) for name, text in texts.items() if text.strip()]


def _text_of(turns: Sequence[Turn]) -> str:
    """Return the parts of turns that are text, joined by blanks."""
    return " ".join(part.text for turn in turns for part in turn.parts if part.kind == "text")
