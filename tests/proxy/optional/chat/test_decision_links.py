"""Links by which reviewers decide from a chat: for one person, once, and never by opening them."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from playwright.sync_api import Browser, expect

from proxy.config.settings.admin import LINKS
from proxy.config.settings.webhooks import WebhookConfig
from proxy.desk.decisions.desk import Desk, Verdict
from proxy.errors import DecidedError
from proxy.optional.chat.link_pages import queues_of
from proxy.optional.chat.links import DecisionLink, Signer, link_url
from proxy.store.database.database import open_engine
from proxy.store.queue import ReviewQueue
from proxy.store.reviews.events import KEPT_S
from proxy.store.reviews.held_replies import HELD, REJECTED, RELEASED, held_replies
from proxy.store.reviews.used_links import LinkUse, found_use
from tests.conftest import StartProxy
from tests.proxy.desk.console.test_console_pages import TOOL
from tests.proxy.desk.test_approvals import HELD_REPLY, events_of, put, queues
from tests.proxy.optional.chat.test_chat_messages import OTHER, SECRET, buttons
from tests.running.databases import execute
from tests.running.desk_client import (
    API,
    TOKEN,
    browser,
    decide,
    desk_url,
    held_id,
    make_key,
    scraped,
    stranger,
    value,
)
from tests.running.live_proxy import LiveProxy, until
from tests.servers.webhook_receiver import WebhookReceiver
from tests.sharing.captured_logs import capture_logs

TWO = """
version: 1
name: desk
rules:
  - {name: two, when: {confidence: {below: 0.2}}, then: {hold: {queue: refunds, approvals: 2}}}
  - {name: other, when: {confidence: {below: 0.3}}, then: {hold: {queue: billing}}}
default: {hold: {queue: refunds}}
"""
ONE, PAIR, ELSEWHERE = "a canary p=0.5", "a canary p=0.1", "a canary p=0.25"
SIGNER = Signer([SECRET])


@pytest.fixture(scope="module")
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver() as found:
        yield found


@pytest.fixture(scope="module")
def proxy(start_proxy: StartProxy, receiver: WebhookReceiver) -> LiveProxy:
    """Start a proxy that informs alice of refunds by Slack, and bob of everything by Teams."""
    common = {"url": receiver.url, "allow_private": True, "events": ["held"]}
    hooks = [
        {**common, "format": "slack", "reviewer": "alice", "queues": ["refunds"]},
        {**common, "format": "teams", "reviewer": "bob"},
    ]
    admin = {"token": TOKEN, "link_secrets": [SECRET, OTHER]}
    return start_proxy(policy=TWO, has_desk=True, admin=admin, webhooks=hooks)


@pytest.fixture
def page(proxy: LiveProxy) -> Iterator[httpx.Client]:
    """Yield a browser without a session, as anybody who opens a link may have."""
    with stranger(proxy) as client:
        yield client


def path_to(id: str, reviewer: str = "alice", signer: Signer = SIGNER, **changed: Any) -> str:
    """Return the path of a link, as a message would have it."""
    fields = {"revision": None, "expires_at": int(time.time()) + 600, **changed}
    return LINKS + signer.token(DecisionLink(id, reviewer, **fields))


def send(page: httpx.Client, path: str, **fields: str) -> httpx.Response:
    """Send the deciding form, as from a page that was opened five seconds ago."""
    looked = {"opened": f"{time.time() - 5:.3f}", "correct": "", "note": "", "verdict": "approve"}
    return page.post(path, data={**looked, **fields})


def state(proxy: LiveProxy, id: str) -> str:
    return str(proxy.desk.get(f"{API}/reviews/{id}").json()["state"])


def outcomes(proxy: LiveProxy, outcome: str) -> float:
    return value(scraped(proxy.desk), "pinocchio_decision_links_total", outcome=outcome)


# From the message to the decision


def test_a_reviewer_decides_from_a_message(
    proxy: LiveProxy, receiver: WebhookReceiver, page: httpx.Client
) -> None:
    """A message's link shows no text and decides nothing, however often it is
    opened. The form that shows the reply leads to the one that decides, once.
    """
    id = held_id(proxy, ONE)
    until(lambda: sum(id in each.body.decode() for each in receiver.received) == 2)
    messages = [each.json for each in receiver.received if id in each.body.decode()]
    [message] = [
        each for each in messages if "blocks" in each
    ]  # alice's, the other one is bob's card
    url = buttons(message)["Approve"]
    assert url.startswith(desk_url(proxy) + LINKS)
    path = url.removeprefix(desk_url(proxy))

    for method in ("GET", "HEAD", "GET"):
        opened = page.request(method, path)
        assert opened.status_code == 200
        assert "canary" not in opened.text
    assert "<bdi>alice</bdi>, and nobody else" in opened.text
    assert opened.headers["cache-control"] == "no-store"
    assert opened.headers["referrer-policy"] == "same-origin"
    assert "frame-ancestors 'none'" in opened.headers["content-security-policy"]
    assert state(proxy, id) == "open"

    target = re.search(r'<form method="post" action="([^"]+)"', opened.text)
    assert target is not None
    response = page.post(target[1], data={"step": "show", "wanted": "approve"})
    assert "a canary" in response.text
    assert state(proxy, id) == "open"
    before = outcomes(proxy, "approve")
    with capture_logs() as lines:
        done = send(page, target[1], correct="true", note="from the chat")
    assert (done.status_code, "<h1>Approved</h1>" in done.text) == (200, True)
    [line] = [each for each in lines if each["event"] == "link_decided"]
    assert (line["review_id"], line["reviewer"], line["outcome"]) == (id, "alice", "approve")
    assert outcomes(proxy, "approve") == before + 1
    review = proxy.desk.get(f"{API}/reviews/{id}").json()
    assert (review["state"], review["decided_by"], review["note"]) == (
        *("released", "alice"),
        "from the chat",
    )
    assert [(each["reviewer"], each["correct"]) for each in review["labels"]] == [("alice", True)]
    released = proxy.http.get(f"/v1/chat/completions/{id}").json()
    assert released["choices"][0]["finish_reason"] == "stop"

    again = send(page, target[1], verdict="reject")
    assert (again.status_code, "You have approved the reply by it" in again.text) == (410, True)
    assert state(proxy, id) == "released"


def test_rejection_reason_reaches_app(proxy: LiveProxy, page: httpx.Client) -> None:
    id = held_id(proxy, ONE)
    assert "Rejected" in send(page, path_to(id), verdict="reject", note="not today").text
    review = proxy.desk.get(f"{API}/reviews/{id}").json()
    assert (review["state"], review["decided_by"], review["note"]) == (
        *("rejected", "alice"),
        "not today",
    )


# What a link does not do


def altered(path: str) -> str:
    """Return a link for another reply and reviewer, with the original's signature."""
    signed, _, signature = path.removeprefix(LINKS).partition(".")
    other = SIGNER.token(DecisionLink("chatcmpl-other", "mallory", None, int(time.time()) + 600))
    assert signed != other.partition(".")[0]
    return f"{LINKS}{other.partition('.')[0]}.{signature}"


def test_what_is_not_signed_opens_nothing(proxy: LiveProxy, page: httpx.Client) -> None:
    """Links that are altered, signed otherwise, cut off or of another kind open nothing."""
    id = held_id(proxy, ONE)
    good = path_to(id)
    bad = [
        altered(good),
        path_to(id, signer=Signer(["a secret that nobody here has, ever"])),
        good[:-1],
        good + "A",
        f"{LINKS}x",
        f"{LINKS}{'x' * 9_000}",
        f"{LINKS}é.é",
    ]
    with capture_logs() as lines:
        for path in bad:
            for answer in (page.get(path), send(page, path)):
                assert (answer.status_code, "This link is not good" in answer.text) == (403, True)
    assert {each["outcome"] for each in lines if each["event"] == "link_refused"} == {"altered"}
    assert state(proxy, id) == "open"
    assert send(page, path_to(id, signer=Signer([OTHER]))).status_code == 200, "the second secret"


def test_each_ending_has_a_page_of_its_own(proxy: LiveProxy, page: httpx.Client) -> None:
    """A link has its own page for each ending: expired, reviewer gone, other queue,
    unknown reply, decided or edited meanwhile, approved already. None of them decides.
    """
    id, elsewhere, edited = (held_id(proxy, text) for text in (ONE, ELSEWHERE, PAIR))
    decide(proxy, edited, make_key(proxy, "reviewer", "carol"), verdict="edit", content="other")
    seen = {
        "expired": (path_to(id, expires_at=int(time.time()) - 1), 410, "It held until"),
        "unknown_reviewer": (path_to(id, "mallory"), 403, "mallory does not decide by links"),
        "not_found": (path_to(elsewhere), 404, "another queue"),
        "edited": (path_to(edited), 409, "carol has edited it"),
    }
    for outcome, (path, status, words) in seen.items():
        before = outcomes(proxy, outcome)
        for answer in (page.get(path), send(page, path)):
            assert (answer.status_code, words in answer.text) == (status, True), answer.text
        assert outcomes(proxy, outcome) == before + 2
    assert page.get(path_to("chatcmpl-none")).status_code == 404
    assert [state(proxy, each) for each in (id, elsewhere, edited)] == ["open"] * 3
    decide(proxy, id, verdict="reject")
    late = send(page, path_to(id))
    assert (late.status_code, "admin has rejected it" in late.text) == (409, True)
    revision = proxy.desk.get(f"{API}/reviews/{edited}").json()["revision"]
    assert "other" in page.post(path_to(edited, revision=revision), data={"step": "show"}).text
    assert "<h1>Approved</h1>" in send(page, path_to(edited, revision=revision)).text


def test_what_was_not_looked_at_is_not_decided(proxy: LiveProxy, page: httpx.Client) -> None:
    """A form is refused without its page, within a second, with an odd word, or without a tick."""
    id = held_id(proxy, "Paris p=0.5", model="tools", tools=[TOOL])
    path = path_to(id)
    refused = [
        page.post(path, data={"verdict": "approve"}),
        send(page, path, opened=f"{time.time():.3f}", confirmed="yes"),
        send(page, path, verdict="edit"),
        send(page, path, correct="perhaps"),
        send(page, path, note="n" * 2_001),
        send(page, path),
    ]
    assert [each.status_code for each in refused] == [400] * 6
    assert "has to be confirmed" in refused[-1].text
    assert state(proxy, id) == "open"
    assert send(page, path, confirmed="yes").status_code == 200
    assert state(proxy, id) == "released"


def test_what_tools_may_read_differently_is_not_approved_by_a_link(
    proxy: LiveProxy, page: httpx.Client
) -> None:
    """A reply with a repeated member is shown marked, and can be decided on only at the desk."""
    twice = '{"order": "A-1", "amount": 1000000, "amount": 5}'
    id = held_id(proxy, "Lisbon p=0.5", model="tools", tools=[TOOL])
    change_arguments(proxy, id, twice)
    html = page.post(path_to(id), data={"step": "show"}).text
    assert ("1000000" in html, "read this differently" in html) == (True, True), html
    refused = send(page, path_to(id), confirmed="yes")
    assert (refused.status_code, state(proxy, id)) == (400, "open")
    [call] = proxy.desk.get(f"{API}/reviews/{id}").json()["calls"]
    assert call["arguments"] == twice
    assert send(page, path_to(id), verdict="reject").status_code == 200


def change_arguments(proxy: LiveProxy, id: str, arguments: str) -> None:
    """Write other arguments into the one call of a held reply."""
    engine = open_engine(proxy.config.store)
    with engine.begin() as connection:
        row = held_replies.c.id == id
        reply = json.loads(
            connection.execute(sa.select(held_replies.c.reply).where(row)).scalar_one()
        )
        [call] = reply["choices"][0]["message"]["tool_calls"]
        call["function"]["arguments"] = arguments
        connection.execute(
            held_replies.update().where(row).values(reply=json.dumps(reply).encode())
        )
    engine.dispose()


def test_another_site_cannot_send_the_form(proxy: LiveProxy) -> None:
    id = held_id(proxy, ONE)
    with stranger(proxy, origin="https://evil.example") as elsewhere:
        assert send(elsewhere, path_to(id)).status_code == 403
    assert state(proxy, id) == "open"


# Identity


def test_who_is_signed_in_as_another_decides_as_that_one(proxy: LiveProxy) -> None:
    """Bob's session does not decide by alice's link; alice's own does, in upper or lower case."""
    id = held_id(proxy, ONE)
    for name, status in (("bob", 403), ("Alice", 200)):
        with browser(proxy) as page:
            page.post("/pinocchio/login", data={"token": make_key(proxy, "reviewer", name)})
            answer = send(page, path_to(id))
            assert answer.status_code == status, answer.text
            assert ("You are signed in as bob" in answer.text) == (name == "bob")


def test_one_person_counts_once_across_ways(proxy: LiveProxy, page: httpx.Client) -> None:
    """Alice's link and key count as one approval in either order; with bob's there are two."""
    by_link, by_key = held_id(proxy, PAIR), held_id(proxy, PAIR)
    key = make_key(proxy, "reviewer", "ALICE")
    first = send(page, path_to(by_link))
    assert "waits until 1 more person has approved it" in first.text
    assert decide(proxy, by_link, key, verdict="approve").json()["state"] == "open"
    assert decide(proxy, by_key, key, verdict="approve").json()["state"] == "open"
    after = send(page, path_to(by_key))
    assert (after.status_code, "You have approved this reply" in after.text) == (409, True)
    for id in (by_link, by_key):
        assert "<h1>Approved</h1>" in send(page, path_to(id, "bob")).text
        approvals = proxy.desk.get(f"{API}/reviews/{id}").json()["approvals"]["given"]
        assert [each["by"].lower() for each in approvals] == ["alice", "bob"]


def test_queues_of_several_webhooks_come_together() -> None:
    """A reviewer of several webhooks has all their queues; a webhook without queues has all."""

    def found(*webhooks: dict[str, Any]) -> Any:
        made = [{"url": "https://a.example", "format": "slack", **each} for each in webhooks]
        return queues_of(tuple(map(WebhookConfig.model_validate, made)))

    both = [{"reviewer": "Ann", "queues": ["a"]}, {"reviewer": "ann", "queues": ["b"]}]
    assert found(*both, {}) == {"ann": {"a", "b"}}
    assert found(*both, {"reviewer": "ann"}) == found({"reviewer": "ann"}, *both) == {"ann": None}


# Races


@pytest.mark.parametrize("rounds", [10, pytest.param(100, marks=pytest.mark.slow)])
def test_a_link_decides_once_however_many_race(store_url: str, rounds: int) -> None:
    """Four desks on one store take the same link at the same time, two to
    approve and two to reject. One decides; the others change nothing and say so.
    """
    replies = [
        replace(HELD_REPLY, id=f"chatcmpl-held-{n}", approvals=1 + n % 2, request_id=None)
        for n in range(rounds)
    ]
    put(store_url, *replies)
    barrier = threading.Barrier(4)

    def race(queue: ReviewQueue, id: str, verdict: Any) -> str:
        barrier.wait(30)
        try:
            Desk(queue).decide(id, Verdict(verdict), "alice", link=LinkUse(id, "alice", None))
        except DecidedError as error:
            return error.machine_code
        return str(verdict)

    with queues(store_url, 4) as each, ThreadPoolExecutor(4) as pool:
        for held in replies:
            verdicts = ("approve", "reject", "approve", "reject")
            answers = list(pool.map(race, each, [held.id] * 4, verdicts))
            [winner] = [one for one in answers if one != "link_used"]
            after = each[0].get(held.id)
            use = found_use(each[0].engine, LinkUse(held.id, "ALICE", None))
            assert after is not None
            assert use is not None
            assert use.verdict == winner
            approved = HELD if held.quorum == 2 else RELEASED
            assert after.state == (REJECTED if winner == "reject" else approved)
            assert len(events_of(each[0], held.id)) == 2


def test_a_decision_that_fails_uses_nothing_up(store_url: str) -> None:
    """A decision that came too late leaves its link unused; old uses are forgotten."""
    put(store_url, HELD_REPLY)
    use = LinkUse(HELD_REPLY.id, "alice", None)
    with queues(store_url, 1) as [queue]:
        queue.decide(HELD_REPLY, REJECTED, "bob")
        with pytest.raises(DecidedError) as caught:
            Desk(queue).decide(HELD_REPLY.id, Verdict("approve"), "alice", link=use)
        assert caught.value.machine_code == "review_decided"
        assert found_use(queue.engine, use) is None
        old = time.time() - KEPT_S - 1
        values = f"'{HELD_REPLY.id}', 'alice', '', 'approve', {old}"
        execute(store_url, f"INSERT INTO used_links VALUES ({values})")
        assert found_use(queue.engine, use) is not None
        queue.forget_events()
        assert found_use(queue.engine, use) is None


# In Chromium


def test_a_person_decides_in_a_browser(proxy: LiveProxy, browser: Browser) -> None:
    """In Chromium, a link's page works under its own content
    policy, and the button of the message is ready to be pressed.
    """
    id = held_id(proxy, "Rome p=0.5", model="tools", tools=[TOOL])
    context = browser.new_context(viewport={"width": 390, "height": 800})
    page = context.new_page()
    violations: list[str] = []
    page.on("console", lambda message: violations.append(message.text))
    page.goto(
        link_url(desk_url(proxy), SIGNER.token(DecisionLink(id, "alice", None, 2**33)), "approve")
    )
    expect(page.get_by_role("heading", name="A reply waits for your decision")).to_be_visible()
    page.get_by_role("button", name="Show the reply").click()
    approve = page.get_by_role("button", name="Approve")
    expect(approve).to_be_focused()
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(wide) == 0
    page.get_by_role("checkbox").check()
    page.wait_for_timeout(1_000)
    approve.click()
    expect(page.get_by_role("heading", name="Approved")).to_be_visible()
    assert violations == []
    assert state(proxy, id) == "released"
    context.close()
