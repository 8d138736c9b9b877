"""Messages for Slack and Teams: their shapes, how much of a reply they show, and their links."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from policies import InvalidDocumentError
from proxy.config.sections import Config, load_config
from proxy.config.settings.admin import LINKS, AdminConfig
from proxy.config.settings.webhooks import WebhookConfig
from proxy.optional.chat.chat import Chat
from proxy.optional.chat.links import Signer
from proxy.store.queue import ReviewQueue
from proxy.store.reviews.approvals import revision_of
from proxy.store.reviews.events import ReviewEvent
from proxy.store.reviews.held_replies import RELEASED, HeldReply
from tests.proxy.desk.test_webhooks import DESK_URL, fresh, hold, running, soon
from tests.running.databases import execute
from tests.running.live_proxy import ROOT
from tests.servers.webhook_receiver import WebhookReceiver

SECRET, OTHER = "a secret of links, long enough...", "another secret of links, as long.."
ADMIN = AdminConfig.model_validate({"link_secrets": [SECRET]})
HOSTILE = "<!channel> & <https://evil.example|free> [go](https://evil.example) pay\u202e"
ARGUMENTS = json.dumps({"order_id": "A-1", "note": HOSTILE})
CALL = {"id": "a", "type": "function", "function": {"name": "refund_order", "arguments": ARGUMENTS}}
MESSAGE = {"role": "assistant", "content": "Here you are.", "tool_calls": [CALL]}
REPLY = json.dumps({"choices": [{"index": 0, "finish_reason": "stop", "message": MESSAGE}]})
REQUEST = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Refund A-1"}]})


def held(**changed: Any) -> HeldReply:
    request = {"reply": REPLY.encode(), "request": REQUEST.encode(), "path": "/chat/completions"}
    return fresh(**{**request, "expires_at": time.time() + 7_200.5, "queue": "refunds", **changed})


def event_of(reply: HeldReply, kind: str = "held") -> ReviewEvent:
    names = ("kind", "queue", "team", "model", "policy", "confidence", "request_id", "expires_at")
    facts = {name: getattr(reply, name) for name in names}
    return ReviewEvent(number=1, review_id=reply.id, event=kind, at=time.time(), by=None, **facts)


def told(reply: HeldReply | None, *, event: ReviewEvent | None = None, **webhook: Any) -> Any:
    """Return the message of a webhook about this reply."""
    hook = {"url": "https://chat.example/x", "format": "slack", **webhook}
    made = WebhookConfig.model_validate(hook)
    event = event or event_of(reply or held())
    return json.loads(Chat(ADMIN, DESK_URL).body(made, event, reply))


def buttons(message: Any) -> dict[str, str]:
    """Return the labels of a message's buttons with their addresses."""
    if "blocks" in message:
        [actions] = [each for each in message["blocks"] if each["type"] == "actions"]
        return {each["text"]["text"]: each["url"] for each in actions["elements"]}
    [attachment] = message["attachments"]
    return {each["title"]: each["url"] for each in attachment["content"]["actions"]}


def test_slack_has_facts_call_and_buttons() -> None:
    """In Block Kit a section has ten fields at most, texts are plain, buttons have an address."""
    message = told(held(policy="refunds/large@1"), shows="calls", reviewer="alice")
    title, facts, *texts, actions = message["blocks"]
    assert "A reply waits for review" in title["text"]["text"]
    fields = dict(each["text"].split("\n") for each in facts["fields"])
    assert (fields["*Queue*"], fields["*Policy*"]) == ("refunds", "refunds/large")
    assert fields["*Time left*"].startswith("2 h, until 20")
    assert fields["*Id*"] == "chatcmpl-held-1"
    assert len(fields) <= 10
    assert {each["text"]["type"] for each in [title, *texts]} <= {"mrkdwn", "plain_text"}
    assert "_Doubtful_: no read-only call came before this one" in texts[0]["text"]["text"]
    assert texts[1]["text"]["text"].startswith('refund_order(order_id="A-1", note="')
    styles = {each["text"]["text"]: each.get("style") for each in actions["elements"]}
    assert styles == {"Approve": "primary", "Reject": "danger", "At the desk": None}
    assert len({each["action_id"] for each in actions["elements"]}) == 3
    assert max(len(each["url"]) for each in actions["elements"]) < 3_000
    assert (message["unfurl_links"], message["unfurl_media"]) == (False, False)


@pytest.mark.parametrize(
    ("left_s", "words"),
    [
        (100, "2 min, until"),
        (7_100, "118 min, until"),
        (90_000, "25 h, until"),
        (6e5, "7 d, until"),
    ],
)
def test_the_time_that_is_left(left_s: float, words: str) -> None:
    """The remaining time is in the largest unit of which there are two, with its end."""
    message = told(held(expires_at=time.time() + left_s))
    [field] = [each for each in message["blocks"][1]["fields"] if "Time left" in each["text"]]
    assert field["text"].startswith(f"*Time left*\n{words} 20")


def test_teams_has_the_same_in_a_card() -> None:
    """A Teams message is an Adaptive Card with buttons that open addresses."""
    message = told(held(), format="teams", shows="calls", reviewer="alice")
    assert message["type"] == "message"
    [attachment] = message["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    card = attachment["content"]
    assert (card["type"], card["version"]) == ("AdaptiveCard", "1.4")
    assert {each["type"] for each in card["actions"]} == {"Action.OpenUrl"}
    assert list(buttons(message)) == ["Approve", "Reject", "At the desk"]
    lines = [
        "".join(run["text"] for run in each["inlines"])
        for each in card["body"]
        if each["type"] == "RichTextBlock"
    ]
    assert "Queue: refunds" in lines
    assert any(line.startswith('refund_order(order_id="A-1"') for line in lines)
    assert len(json.dumps(message).encode()) < 28_000


@pytest.mark.parametrize("format", ["slack", "teams"])
def test_foreign_text_is_escaped_in_chats(format: str) -> None:
    """Foreign text in a message, a client's model name or a model's
    argument, has no mention and no link, and invisible characters are shown.
    """
    reply = held(model=HOSTILE, question=HOSTILE)
    message = told(reply, format=format, shows="excerpt")
    texts = foreign_texts(message)
    assert any("⸨U+202E⸩" in text for text in texts)
    assert "\u202e" not in json.dumps(message, ensure_ascii=False)
    for kind, text in ((each["kind"], each["text"]) for each in texts_of(message)):
        if kind == "mrkdwn" and "evil" in text:
            assert "<" not in text.replace("&lt;", "").replace(f"<{DESK_URL}", "")
        assert kind != "TextBlock" or "evil" not in text


def texts_of(part: Any, kind: str = "") -> list[dict[str, str]]:
    """Yield every text of a message with the kind of its element."""
    if isinstance(part, list):
        return [found for each in part for found in texts_of(each, kind)]
    if not isinstance(part, dict):
        return []
    kind = part.get("type", kind)
    own = [{"kind": kind, "text": part["text"]}] if isinstance(part.get("text"), str) else []
    return own + [found for each in part.values() for found in texts_of(each, kind)]


def foreign_texts(message: Any) -> list[str]:
    return [each["text"] for each in texts_of(message) if "evil" in each["text"]]


@pytest.mark.parametrize(
    ("shows", "has"), [("facts", (0, 0)), ("calls", (1, 0)), ("excerpt", (1, 1))]
)
def test_a_message_says_as_much_as_it_may(shows: str, has: tuple[int, int]) -> None:
    """By default a message has no text of the reply, and of a call only the tool's name."""
    text = json.dumps(told(held(), shows=shows))
    assert "refund_order" in text
    assert ("A-1" in text, "Here you are." in text) == tuple(map(bool, has))


def test_a_channel_gets_no_link_that_decides() -> None:
    """Without a reviewer a button leads to the desk, since it is unclear who presses it."""
    desk = f"{DESK_URL}console/reviews/chatcmpl-held-1"
    assert buttons(told(held())) == {"Decide at the desk": desk}
    assert buttons(told(held(state=RELEASED), reviewer="alice")) == {"At the desk": desk}
    assert buttons(told(None, reviewer="alice")) == {"At the desk": desk}


def test_whoever_has_approved_gets_no_button_to_do_it_again() -> None:
    """A reviewer who has approved gets no button to do so again, and sees who else must."""
    approvals = json.dumps([{"by": "Alice", "at": 1.0, "correct": None, "note": None}])
    reply = held(approvals=2, approved=approvals)
    message = told(reply, event=event_of(reply, "approved"), reviewer="alice")
    assert list(buttons(message)) == ["Decide at the desk"]
    assert "1 of 2, by Alice" in json.dumps(message)
    assert "Approve" in buttons(told(reply, reviewer="bob"))


def test_a_link_is_for_one_reviewer_and_what_waits_now() -> None:
    """A link is for one reviewer and the present edit, and ends with the reply or after a day."""
    reply = held(proposed=b"{}")
    url = buttons(told(reply, reviewer="alice"))["Approve"]
    token = url.removeprefix(DESK_URL.rstrip("/") + LINKS).removesuffix("?verdict=approve")
    link = Signer([OTHER, SECRET]).read(token)
    assert link is not None
    assert (link.review_id, link.reviewer) == (reply.id, "alice")
    assert link.revision == revision_of(b"{}")
    assert link.expires_at == int(reply.expires_at)
    late = held(expires_at=time.time() + 30 * 86_400)
    url = buttons(told(late, reviewer="alice"))["Reject"]
    far = Signer([SECRET]).read(url.rpartition("/")[2].partition("?")[0])
    assert far is not None
    assert far.expires_at <= time.time() + 24 * 3_600


def test_programs_get_the_link_too() -> None:
    """Programs such as bots get `decide_url` in `json`, for the named reviewer."""
    reply = held()
    chat = Chat(ADMIN, DESK_URL)
    hook = {"url": "https://a.example", "secret": "x", "reviewer": "alice"}
    assert chat.decide_url(WebhookConfig.model_validate(hook), event_of(reply), reply) is not None
    hook.pop("reviewer")
    assert chat.decide_url(WebhookConfig.model_validate(hook), event_of(reply), reply) is None


async def test_each_reviewer_hears_of_their_queues(store_url: str) -> None:
    """Each reviewer gets messages of their own queues alone, once
    from two couriers; a failure is tried again with the same link.
    """
    with WebhookReceiver() as receiver:
        receiver.answers = [(429, {"retry-after": "0"}), (500, {})]
        common = {"url": receiver.url, "format": "slack", "events": ["held"], "allow_private": True}
        hooks = [
            {**common, "reviewer": "alice"},
            {**common, "reviewer": "bob", "queues": ["refunds"]},
            {**common, "reviewer": "carol", "queues": ["billing"]},
        ]
        admin = {"link_secrets": [SECRET]}
        config = Config.model_validate({"store": store_url, "webhooks": hooks, "admin": admin})
        await hold(store_url, held())
        async with running(config), running(config):
            await soon(lambda: len(receiver.received) == 4)
            await asyncio.sleep(0.1)
        bodies = [each.json for each in receiver.received]
    links = [buttons(each)["Approve"].rpartition("/")[2].partition("?")[0] for each in bodies]
    read = [Signer([SECRET]).read(token) for token in links]
    assert sorted({each.reviewer for each in read if each}) == ["alice", "bob"]
    assert len(set(links)) == 2


def waiting_deliveries(store_url: str) -> int:
    """Return how many messages are still to be sent, or not confirmed."""
    return int(execute(store_url, "SELECT count(*) FROM webhook_deliveries")[0][0])


async def test_a_message_that_comes_late_has_no_buttons(tmp_path: Path) -> None:
    """A message is rendered for each attempt, so a late one has no buttons for what is decided."""
    store_url = f"sqlite:///{tmp_path}/held.db"
    reply = held()
    await hold(store_url, reply)
    queue = ReviewQueue(store_url)
    await asyncio.to_thread(queue.decide, reply, RELEASED, "bob")
    queue.close()
    with WebhookReceiver() as receiver:
        hook = {"url": receiver.url, "format": "teams", "events": ["held"], "allow_private": True}
        hook["reviewer"] = "alice"
        admin = {"link_secrets": [SECRET]}
        config = Config.model_validate({"store": store_url, "webhooks": [hook], "admin": admin})
        async with running(config):
            await soon(lambda: receiver.received and not waiting_deliveries(store_url))
    assert list(buttons(receiver.received[0].json)) == ["At the desk"]
    assert not waiting_deliveries(store_url)


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("", "set admin.link_secrets"),
        ("admin: {link_secrets: [short]}", "at least 32 characters"),
        (f"admin: {{link_secrets: ['{SECRET}', '{SECRET}', '{SECRET}']}}", "at most 2 items"),
        (f"admin: {{link_secrets: ['{SECRET}'], host: 0.0.0.0}}", "set admin.url"),
        (f"admin: {{link_secrets: ['{SECRET}'], url: desk.example}}", "begins with https://"),
        (f"admin: {{link_secrets: ['{SECRET}'], enabled: false}}", "switches off"),
        (f"admin: {{link_secret: ['{SECRET}']}}", "did you mean 'link_secrets'?"),
    ],
)
def test_an_incomplete_block_is_refused(tmp_path: Path, lines: str, sentence: str) -> None:
    file = tmp_path / "proxy.yaml"
    hook = "{url: 'https://a.example/x', format: slack, reviewer: alice}"
    file.write_text(f"webhooks: [{hook}]\n{lines}\n")
    with pytest.raises(InvalidDocumentError) as caught:
        load_config(file, {})
    assert sentence in str(caught.value)


def test_one_address_may_serve_several_queues(tmp_path: Path) -> None:
    """The same webhook twice is refused; one address may serve several queues in different ways."""
    file = tmp_path / "proxy.yaml"
    hook = "{url: 'https://a.example/x', format: slack, queues: [%s], events: [%s]}"
    file.write_text(f"webhooks: [{hook % ('a', 'held')}, {hook % ('b', 'released')}]\n")
    one, other = load_config(file, {}).webhooks
    assert one.identity != other.identity
    file.write_text(f"webhooks: [{hook % ('a, b', 'held')}, {hook % ('b, a', 'released')}]\n")
    with pytest.raises(InvalidDocumentError, match=r"this is webhooks\[0\] once more"):
        load_config(file, {})


def test_docs_page_is_valid_config(tmp_path: Path) -> None:
    """The block of docs/chat.md is a valid configuration."""
    page = (ROOT / "docs" / "chat.md").read_text(encoding="utf-8")
    file = tmp_path / "proxy.yaml"
    file.write_text(page.split("```yaml\n")[1].split("```")[0])
    urls = {f"{name}_URL": "https://chat.example/x" for name in ("ALICE_SLACK", "BOB_TEAMS")}
    env = {**urls, "CHANNEL_SLACK_URL": "https://chat.example/y", "LINK_SECRET": SECRET}
    alice, bob, channel = load_config(file, env).webhooks
    assert (alice.reviewer, bob.reviewer, channel.reviewer) == ("alice", "bob", None)
    assert (alice.shows, bob.queues) == ("calls", ("refunds",))


def test_a_second_secret_may_be_empty(tmp_path: Path) -> None:
    """A second secret may be empty, as `${OLD:-}` is except while two are in use."""
    file = tmp_path / "proxy.yaml"
    file.write_text("admin: {link_secrets: ['${NEW}', '${OLD:-}']}\n")
    assert load_config(file, {"NEW": SECRET}).admin.link_keys == [SECRET]
    assert load_config(file, {"NEW": SECRET, "OLD": OTHER}).admin.link_keys == [SECRET, OTHER]


def test_message_about_deleted_reply_has_facts() -> None:
    """A message about a reply whose content was deleted meanwhile has its facts."""
    gone = replace(held(), reply=b"", request=None)
    assert "refund_order" not in json.dumps(told(gone, shows="excerpt"))
