"""The console in a real browser: what a reviewer does there, and what a client gets."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from proxy.learning.drift import look
from proxy.store.database.database import open_engine
from tests.conftest import StartProxy
from tests.running.browser import Visit, look_at, visiting
from tests.running.databases import execute
from tests.running.desk_client import (
    API,
    DESK,
    HOLD,
    decide,
    desk_url,
    held_id,
    logged_in,
    make_key,
)
from tests.running.live_proxy import HearingScorer, LiveProxy, until

TOOL = {
    "type": "function",
    "function": {
        "name": "book_train",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "number": {"type": "integer"}},
        },
    },
}


@pytest.fixture(scope="module")
def proxy(start_proxy: StartProxy) -> LiveProxy:
    return start_proxy(policy=HOLD, **DESK)


def open_review(page: Page, id: str) -> None:
    page.goto(f"/console/reviews/{id}")
    expect(page.get_by_role("heading", name="A held reply")).to_be_visible()


def review(proxy: LiveProxy, id: str) -> dict[str, Any]:
    found: dict[str, Any] = proxy.desk.get(f"/pinocchio/v1/reviews/{id}").json()
    return found


def state_of(proxy: LiveProxy, id: str) -> str:
    return str(review(proxy, id)["state"])


def fetched(proxy: LiveProxy, id: str) -> str | None:
    return proxy.openai.chat.completions.retrieve(id).choices[0].message.content


def clean_up(proxy: LiveProxy) -> None:
    """Leave nothing open after each test."""
    execute(proxy.config.store, "UPDATE held_replies SET state = 'rejected' WHERE state = 'held'")


def test_a_held_reply_is_edited_and_the_client_gets_it(proxy: LiveProxy, visit: Visit) -> None:
    """A reviewer reads a held reply and sends another text, which the client gets."""
    clean_up(proxy)
    reply = proxy.openai.chat.completions.create(
        model="ok", messages=[{"role": "user", "content": "The war ended in **1649**. p=0.2"}]
    )
    page = visit.page
    page.goto("/console/reviews")
    page.get_by_role("link", name="1649").click()
    expect(page.locator(".reply strong")).to_have_text("1649")
    expect(page.locator(".score .big")).to_have_text("0.20")
    page.get_by_text("Edit the reply").click()
    field = page.get_by_label("Text")
    expect(field).to_have_value("The war ended in **1649**. p=0.2")
    field.fill("The war ended in **1648**.")
    page.get_by_label("No", exact=False).first.check(force=True)
    page.get_by_label("Note").fill("off by one")
    look_at(page)
    page.get_by_role("button", name="Send it as edited").click()
    expect(page.get_by_text("Sent as edited")).to_be_visible()
    assert fetched(proxy, reply.id) == "The war ended in **1648**."
    facts = review(proxy, reply.id)
    assert (facts["state"], facts["decided_by"], facts["note"]) == (
        "released",
        "admin",
        "off by one",
    )
    assert [label["correct"] for label in facts["labels"]] == [False]


def test_unsupported_text_is_shown(proxy: LiveProxy, visit: Visit) -> None:
    """Page and queue show support, the sentence with its words, and the
    basis of the number; the API and `reviews show` report the same.
    """
    clean_up(proxy)
    answer = "We close at noon. p=0.4 support=0.12 basis=context contradicted=noon"
    id = held_id(proxy, answer)
    page = visit.page
    page.goto("/console/reviews")
    line = page.locator("li", has_text="We close at")
    expect(line).to_contain_text("support 0.12")
    expect(line.locator("mark")).to_have_text("noon")
    open_review(page, id)
    expect(page.locator(".support")).to_contain_text("Support 0.12")
    sentence = page.locator(".unsupported li")
    expect(sentence).to_contain_text("contradicted")
    expect(sentence.locator("q")).to_have_text(answer)
    expect(sentence.locator("mark").first).to_have_text("noon")
    score = page.locator(".score")
    expect(score).to_contain_text("Of a hundred replies like this, about 40 are correct.")
    expect(score).to_contain_text("Based on: the text that the model was given.")
    shown_score = review(proxy, id)["score"]
    assert (shown_score["support"], shown_score["basis"], shown_score["status"]) == (
        0.12,
        ["context"],
        "scored",
    )
    assert shown_score["unsupported"][0]["words"] == ["noon"]


def test_unchecked_numbers_are_marked(proxy: LiveProxy, visit: Visit) -> None:
    """The page says that a number rests on likeness alone, or that its task is unfamiliar."""
    page = visit.page
    open_review(page, held_id(proxy, "p=0.4 task=unfamiliar facts=needed"))
    score = page.locator(".score")
    expect(score).to_contain_text("Nothing about this reply was checked.")
    expect(score).to_contain_text("not trained on tasks of this kind")
    expect(score).to_contain_text("only evidence from outside can settle")
    expect(score).not_to_contain_text("Of a hundred")


def test_tool_calls_are_edited_field_by_field(proxy: LiveProxy, visit: Visit) -> None:
    """Arguments are fields; a value that does not fit the tool's schema
    is refused with the reason, and untouched values keep their bytes.
    """
    id = held_id(proxy, "Paris p=0.1", model="tools", tools=[TOOL])
    page = visit.page
    open_review(page, id)
    expect(page.locator(".call .tool")).to_have_text("book_train")
    page.keyboard.press("e")
    page.get_by_label("number number").fill('"many"')
    look_at(page)
    page.get_by_role("button", name="Send it as edited").click()
    expect(page.locator(".toast.bad")).to_contain_text("do not fit book_train")
    assert state_of(proxy, id) == "open"
    page.get_by_label("number number").fill("7")
    page.get_by_role("button", name="Send it as edited").click()
    expect(page.get_by_text("Sent as edited")).to_be_visible()
    call = review(proxy, id)["revised"]["choices"][0]["message"]["tool_calls"][0]["function"]
    assert json.loads(call["arguments"]) == {"city": "Paris p=0.1", "number": 7}


def test_an_edit_under_way_is_not_approved(proxy: LiveProxy, visit: Visit) -> None:
    """While the form is open, neither a button nor a key approves the old call."""
    id = held_id(proxy, "Lyon p=0.1", model="tools", tools=[TOOL])
    page = visit.page
    open_review(page, id)
    approve = page.locator("button[data-key=a]")
    expect(approve).to_be_visible()
    page.keyboard.press("e")
    expect(approve).to_be_hidden()
    page.keyboard.press("Escape")
    page.keyboard.press("a")
    expect(page.locator("[data-confirm]")).to_be_hidden()
    page.locator("[data-edit] summary").click()
    expect(approve).to_be_visible()


def test_the_second_step_is_above_a_phones_bar(browser: Browser, proxy: LiveProxy) -> None:
    """After Approve, Confirm can be tapped without scrolling."""
    id = held_id(proxy, "Nice p=0.1", model="tools", tools=[TOOL])
    size = {"width": 390, "height": 844}
    with visiting(browser, proxy, viewport=size) as visit:
        page = visit.page
        open_review(page, id)
        page.wait_for_timeout(1_200)
        page.locator("button[data-key=a]").click()
        confirm = page.locator("[data-confirmed]")
        expect(confirm).to_be_visible()
        box, bar = confirm.bounding_box(), page.locator(".side").bounding_box()
        assert box is not None
        assert bar is not None
        assert box["y"] + box["height"] <= bar["y"], (box, bar)


def test_calls_like_one_are_approved_and_revoked(proxy: LiveProxy, visit: Visit) -> None:
    """A standing approval is made with the confirmed call, also with
    the page's script; the queue lists it with a button that revokes it.
    """
    id = held_id(proxy, "Pisa p=0.1", model="tools", tools=[TOOL])
    page = visit.page
    open_review(page, id)
    page.get_by_text("Approve calls like this").click()
    page.get_by_label("go without a reviewer").check()
    page.get_by_label("city", exact=True).check()
    look_at(page)
    time.sleep(0.8)  # the buttons have just moved, and take no click
    page.locator("button[data-key=a]").click()
    time.sleep(0.8)
    page.get_by_role("button", name="Confirm").click()
    expect(page.get_by_text("Approved", exact=True)).to_be_visible()
    page.goto("about:blank")  # leaving sends what could still be undone
    until(lambda: state_of(proxy, id) == "released")
    page.goto("/console/reviews")
    page.get_by_text("1 standing approval").click()
    expect(page.locator(".standing")).to_contain_text("any city: 0 of 10 used")
    page.get_by_role("button", name="Revoke").click()
    expect(page.get_by_text("Revoked.")).to_be_visible()
    expect(page.locator(".standing")).to_have_count(0)


def test_the_keyboard_is_enough(proxy: LiveProxy, visit: Visit) -> None:
    """A reviewer can work by keys alone: down, open, label,
    approve, undo, reject; then the next reply opens by itself.
    """
    clean_up(proxy)
    surest, unsure = held_id(proxy, "first p=0.1"), held_id(proxy, "second p=0.3")
    page, keys = visit.page, visit.page.keyboard
    page.goto("/console/reviews")
    keys.press("j")
    keys.press("j")
    keys.press("k")
    expect(page.get_by_role("link", name="first")).to_be_focused()
    keys.press("Enter")
    page.wait_for_url(f"**/{surest}*")
    look_at(page)
    keys.press("n")
    keys.press("a")
    page.wait_for_url(f"**/{unsure}*")
    keys.press("u")
    page.wait_for_url(f"**/{surest}*")
    expect(page.get_by_role("radio", name="No", exact=False).nth(0)).to_be_checked()
    assert state_of(proxy, surest) == "open"
    look_at(page)
    keys.press("r")
    page.wait_for_url(f"**/{unsure}*")
    expect(page.locator(".toast")).to_contain_text("Rejected")
    look_at(page)
    keys.press("y")
    keys.press("a")  # a second verdict sends the first
    until(lambda: state_of(proxy, surest) == "rejected")
    assert review(proxy, surest)["labels"][0]["correct"] is False
    expect(page.locator(f"li.gone[data-id={unsure}]")).to_be_visible()
    assert state_of(proxy, unsure) == "open"  # it can still be undone
    page.goto("about:blank")
    until(lambda: state_of(proxy, unsure) == "released")  # closing the page sends it
    assert fetched(proxy, unsure) == "second p=0.3"


def test_a_verdict_is_sent_when_its_time_is_up(browser: Browser, proxy: LiveProxy) -> None:
    """A verdict is sent when the seconds for its undo are over, without
    another key; a reviewer who was slower than another one is told so.
    """
    first, second = held_id(proxy), held_id(proxy)
    with visiting(browser, proxy) as visit:
        page = visit.page
        page.clock.install()
        open_review(page, first)
        look_at(page)
        page.get_by_role("button", name="Approve").click()
        page.clock.fast_forward(4_000)
        assert state_of(proxy, first) == "open"
        page.clock.fast_forward(2_000)
        until(lambda: state_of(proxy, first) == "released")
        open_review(page, second)
        look_at(page)
        proxy.desk.post(f"/pinocchio/v1/reviews/{second}/verdict", json={"verdict": "reject"})
        page.get_by_role("button", name="Approve").click()
        page.clock.fast_forward(6_000)
        expect(page.locator(".toast.bad")).to_contain_text("rejected by admin already")


def test_two_people_approve_in_their_browsers(browser: Browser, start_proxy: StartProxy) -> None:
    """The first of two reviewers sees that the reply waits for another, and
    cannot approve it twice; the second sees who approved, and releases it.
    """
    two = HOLD.replace("seniors", "seniors, approvals: 2").replace("desk", "two")
    proxy = start_proxy(policy=two, **DESK)
    id = held_id(proxy, "Rome p=0.1")
    keys = {name: make_key(proxy, "reviewer", name) for name in ("alice", "bob")}
    with (
        visiting(browser, proxy, secret=keys["alice"]) as alice,
        visiting(browser, proxy, secret=keys["bob"]) as bob,
    ):
        look_at(alice.page, id)
        expect(alice.page.locator(".approvals")).to_contain_text(
            "0 of 2 approved. 2 different people"
        )
        alice.page.keyboard.press("a")
        expect(alice.page.locator("[data-toasts]")).to_contain_text("Approved by you")
        alice.page.goto("about:blank")  # leaving sends what could still be undone
        until(lambda: review(proxy, id)["approvals"]["given"] != [])
        alice.page.goto(f"/console/reviews/{id}")
        notice = "1 of 2 approved: by alice. You have: it waits for somebody else."
        expect(alice.page.locator(".approvals")).to_have_text(notice)
        assert decide(proxy, id, keys["alice"], verdict="approve").json()["state"] == "open"
        look_at(bob.page, id)
        expect(bob.page.locator(".approvals")).to_contain_text("by alice. 2 different people")
        bob.page.keyboard.press("a")
        expect(bob.page.locator("[data-toasts]")).to_contain_text("Approved")
        bob.page.goto("about:blank")
        until(lambda: state_of(proxy, id) == "released")
        assert (alice.errors, bob.errors) == ([], [])
    assert fetched(proxy, id) == "Rome p=0.1"


def test_pages_work_without_script(browser: Browser, proxy: LiveProxy) -> None:
    """Without script, filters, labels and decisions are plain forms,
    and a faulty edit is shown again with its mistake above it.
    """
    clean_up(proxy)
    first, second = held_id(proxy, "first p=0.1"), held_id(proxy, "second p=0.2")
    with visiting(browser, proxy, java_script_enabled=False) as visit:
        page = visit.page
        page.goto("/console/reviews")
        page.get_by_role("combobox", name="Queue").select_option("seniors")
        page.get_by_role("button", name="Filter").click()
        page.get_by_role("link", name="first").click()
        page.get_by_text("Edit the reply").click()
        page.get_by_role("button", name="Send it as edited").click()
        expect(page.get_by_role("alert")).to_contain_text("nothing was changed")
        page.get_by_label("Text").fill("another")
        time.sleep(1)  # a reply has to be open for as long as this
        page.get_by_role("button", name="Send it as edited").click()
        page.wait_for_url(f"**/{second}*")
        expect(page.get_by_text("Sent as edited.")).to_be_visible()
        time.sleep(1)
        page.get_by_role("button", name="Reject").click()
        expect(page.get_by_text("Nothing waits")).to_be_visible()
    assert fetched(proxy, first) == "another"
    assert state_of(proxy, second) == "rejected"


def test_new_replies_are_listed_on_click(proxy: LiveProxy, visit: Visit) -> None:
    """A reply that is held meanwhile is announced by a chip, and is listed after a click on it."""
    clean_up(proxy)
    held_id(proxy, "early p=0.3")
    page = visit.page
    page.goto("/console/reviews")
    held_id(proxy, "late p=0.1")
    page.get_by_text("1 new").click(timeout=15_000)
    expect(page.get_by_role("link", name="late")).to_be_visible()


PAGES = ("reviews", "traffic", "quality", "policies", "policies/desk", "calibrator")


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_every_page_fits_a_phone_in_both_colours(
    browser: Browser, proxy: LiveProxy, scheme: Any
) -> None:
    """At 375 pixels no page scrolls sideways, no script fails,
    and nothing is fetched from elsewhere, in both colours.
    """
    long = "averyveryverylongwordwithoutanyblank" * 20
    id = held_id(proxy, f"{long} p=0.1", tools=[TOOL])
    phone = {"width": 375, "height": 740}
    with visiting(browser, proxy, viewport=phone, color_scheme=scheme) as visit:
        for path in (*PAGES, f"reviews/{id}"):
            response = visit.page.goto(f"/console/{path}")
            assert response is not None
            assert response.status == 200, path
            assert visit.overflow() == 0, path
            assert visit.violations() == [], path
        paper = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (paper == "rgb(15, 16, 19)") == (scheme == "dark")
        assert (visit.errors, visit.elsewhere) == ([], [])


def test_the_colours_can_be_chosen(browser: Browser, proxy: LiveProxy) -> None:
    """The switch for colours overrules the system's, also on the next page."""
    with visiting(browser, proxy, color_scheme="light") as visit:
        page = visit.page
        page.get_by_role("button", name=re.compile("Colours")).click()
        page.get_by_role("button", name=re.compile("Colours: light")).click()
        page.goto("/console/policies")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(15, 16, 19)"


def test_a_page_says_what_browsers_may_do_with_it(proxy: LiveProxy) -> None:
    """Pages allow only their own script, no frame and no cache; files are cached for good."""
    with logged_in(proxy) as client:
        page = client.get("/console/reviews")
        policy = page.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert page.headers["cache-control"] == "no-store"
        assert page.headers["x-content-type-options"] == "nosniff"
        assert not re.search(r"<script(?! (?:src|type=\"(?:module|application/json)))", page.text)
        assert " style=" not in page.text
        file = re.search(r"/static/console\.css\?v=\w+", page.text)
        assert file is not None
        assert "immutable" in client.get(file[0]).headers["cache-control"]
        assert client.get("/static/console.css").headers["cache-control"] == "no-cache"
        for path in ("../pages.py", "%2e%2e/pages.py", "nothing.css", "vendor"):
            assert client.get(f"/static/{path}").status_code == 404


def test_a_form_of_another_page_decides_nothing(proxy: LiveProxy) -> None:
    """A form without the session's token is refused, and the reply stays open."""
    id = held_id(proxy)
    with logged_in(proxy) as client:
        url = f"/console/reviews/{id}/verdict"
        assert client.post(url, data={"verdict": "approve"}).status_code == 403
        assert client.post(url, data={"verdict": "approve", "csrf": "x"}).status_code == 403
    assert state_of(proxy, id) == "open"


def test_a_page_says_how_long_a_reply_still_waits(proxy: LiveProxy) -> None:
    id = held_id(proxy)
    page = proxy.desk.get(f"/console/reviews/{id}").text
    assert re.search(r"<time [^>]*data-left[^>]*>\d{1,2} (d|h|min|s) left</time>", page)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"verdict": "delete"},
        {"verdict": "approve", "correct": "perhaps"},
        {"verdict": "approve", "note": "x" * 2_001},
        {"verdict": "edit"},
        {"verdict": "edit", "text.0": "  "},
    ],
)
def test_a_broken_form_is_a_sentence(proxy: LiveProxy, fields: dict[str, str]) -> None:
    """A form that makes no sense is refused with a sentence, and loses nothing."""
    id = held_id(proxy)
    with logged_in(proxy) as client:
        csrf = token_of(client, id)
        answer = client.post(
            f"/console/reviews/{id}/verdict",
            data={"csrf": csrf, **fields},
            headers={"accept": "application/json"},
        )
        assert 400 <= answer.status_code < 500
        assert answer.json()["error"]["message"]
    assert state_of(proxy, id) == "open"


def token_of(client: httpx.Client, id: str) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', client.get(f"/console/reviews/{id}").text)
    assert found is not None
    return found[1]


def test_what_is_not_there_is_a_page(proxy: LiveProxy) -> None:
    """Unknown replies, policies and cursors give a page that says so."""
    with logged_in(proxy) as client:
        for path in ("reviews/nothing", "policies/nothing"):
            assert client.get(f"/console/{path}").status_code == 404
        broken = client.get("/console/reviews?after=nonsense")
        assert (broken.status_code, "<!doctype html>" in broken.text) == (400, True)
        assert client.get("/console/quality?threshold=x&days=y&model=%00").status_code == 200
    assert desk_url(proxy)


def test_a_threshold_can_be_dragged(browser: Browser, start_proxy: StartProxy) -> None:
    """Dragging the threshold shows its effect: of forty replies, half of them unsure and wrong,
    delivering all is wrong in half; above the unsure ones half are delivered and none is wrong.
    """
    proxy = start_proxy(policy=HOLD.replace("desk", "what-if"), **DESK)
    for number in range(40):
        is_correct = number % 2 == 0
        id = held_id(proxy, f"{number} p={0.9 if is_correct else 0.2}")
        url = f"/pinocchio/v1/reviews/{id}/label"
        assert proxy.desk.post(url, json={"correct": is_correct}).status_code == 200
    query = "SELECT count(*) FROM exchanges"
    until(lambda: execute(proxy.config.store, query) == [(40,)])
    with visiting(browser, proxy) as visit:
        page = visit.page
        page.goto("/console/quality?days=1&threshold=0")
        figures = page.locator("[data-at]")
        expect(figures).to_contain_text(["0.00", "100.0 %", "50.0 %"])
        expect(page.locator("canvas")).to_have_count(3)
        slider = page.get_by_label("Deliver at or above")
        box = slider.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 8, box["y"] + box["height"] / 2)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=4)
        page.mouse.up()
        expect(figures).to_contain_text([re.compile(r"0\.[45]\d"), "50.0 %", "0.0 %"])
        assert (visit.errors, visit.violations()) == ([], [])
        page.goto("/console/quality?days=1&threshold=0.5")  # the same without a script
        expect(figures).to_contain_text(["0.50", "50.0 %", "0.0 %"])


def test_one_day_of_traffic_is_no_empty_grid(browser: Browser, start_proxy: StartProxy) -> None:
    """One day of traffic is shown as a point, since a line would have no length."""
    proxy = start_proxy(policy=HOLD.replace("desk", "one-day"), **DESK)
    held_id(proxy, "p=0.6")
    until(lambda: execute(proxy.config.store, "SELECT count(*) FROM exchanges") == [(1,)])
    inked = """() => {
      const canvas = document.querySelector('[data-chart="time"] canvas');
      const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      let count = 0;
      for (let at = 0; at < data.length; at += 4) {
        const [r, g, b, a] = data.slice(at, at + 4);
        if (a > 200 && b - r > 80) count += 1;
      }
      return count;
    }"""
    with visiting(browser, proxy, color_scheme="light") as visit:
        visit.page.goto("/console/quality?days=7")
        expect(visit.page.locator('[data-chart="time"] canvas')).to_be_visible()
        until(lambda: visit.page.evaluate(inked) > 10)


def test_quality_without_a_label_is_one_sentence(start_proxy: StartProxy) -> None:
    """Without labels the quality page has one sentence in place of diagrams and dashes."""
    proxy = start_proxy(policy=HOLD.replace("desk", "unlabelled"), **DESK)
    id = held_id(proxy, "p=0.4")
    until(lambda: execute(proxy.config.store, "SELECT count(*) FROM exchanges") == [(1,)])
    page = proxy.desk.get("/console/quality").text
    assert "No labels yet: figures and diagrams begin with the first verdicts." in page
    assert "What if the threshold were" not in page
    assert "Share correct" not in page
    decide(proxy, id, verdict="approve", correct=True)
    page = proxy.desk.get("/console/quality").text
    assert "No labels yet" not in page
    assert "What if the threshold were" in page


def test_drift_monitors_are_listed(start_proxy: StartProxy) -> None:
    """Each drift monitor is listed with what it has seen."""
    proxy = start_proxy(policy=HOLD.replace("desk", "drift"), **DESK)
    held_id(proxy, "p=0.4")
    until(lambda: execute(proxy.config.store, "SELECT count(*) FROM exchanges") == [(1,)])
    engine = open_engine(proxy.config.store)
    look(engine, lag_s=-60)
    engine.dispose()
    page = proxy.desk.get("/console/quality").text
    assert "score distribution" in page
    assert "quiet" in page
    assert "a day</small>" not in page, "a minute of traffic says nothing about a day"
    assert "Replies to review a day" not in page


AXE = Path(__file__).parents[3] / "node" / "node_modules" / "axe-core" / "axe.min.js"


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_pages_can_be_used_by_everybody(browser: Browser, proxy: LiveProxy, scheme: Any) -> None:
    """axe-core finds no fault: names, roles, order, and contrast of WCAG AA in both colours."""
    options = {} if scheme == "light" else {"runOnly": ["color-contrast"]}  # the rest is the same
    id = held_id(proxy, "Paris **p=0.1**", model="tools", tools=[TOOL])
    with visiting(browser, proxy, color_scheme=scheme) as visit:
        for path in (*PAGES, f"reviews/{id}"):
            visit.page.goto(f"/console/{path}")
            visit.page.keyboard.press("e")
            visit.page.evaluate(AXE.read_text(encoding="utf-8"))
            found = visit.page.evaluate("asked => axe.run(asked)", options)["violations"]
            faults = [
                (each["id"], [node["html"][:120] for node in each["nodes"]]) for each in found
            ]
            assert faults == [], path


COMPARED = """
version: 1
name: compared
second_opinion: {n: COUNT, from: [MODELS]}
rules: []
default: {hold: {queue: seniors}}
"""


def comparing(*models: str) -> str:
    return COMPARED.replace("COUNT", str(len(models))).replace("MODELS", ", ".join(models))


@pytest.mark.slow  # the figures without a page: test_second_opinion_worth
def test_what_second_opinions_were_worth(browser: Browser, start_proxy: StartProxy) -> None:
    """Of forty replies with one confidence, those are right with which the other
    model agrees, so opinions rank them; page and API have the same figures.
    """
    policy = comparing("say Paris p=0.9")
    proxy = start_proxy(policy=policy, scorer=HearingScorer(), **DESK)
    for number in range(40):
        city = "London" if number % 2 else "Paris"
        id = held_id(proxy, f"{city} {number} p=0.5")
        label = {"correct": city == "Paris"}
        assert proxy.desk.post(f"{API}/reviews/{id}/label", json=label).status_code == 200
    until(lambda: execute(proxy.config.store, "SELECT count(*) FROM exchanges") == [(40,)])
    body = proxy.desk.get(f"{API}/quality/second-opinions?days=1").json()
    assert (body["asked"], body["failed"], body["replies"]) == (40, 0, 40)
    assert (body["agreed"], body["differed"], body["untold"]) == (20, 20, 0)
    [measured] = body["measured"]
    assert (measured["calibrator"], measured["labels"]) == ("words@1+opinion@1", 40)
    assert (measured["auroc"]["before"], measured["auroc"]["after"]) == (0.5, 1.0)
    assert (measured["kept"]["before"], measured["kept"]["after"]) == (0.0, 0.5)
    assert measured["auroc"]["gain"] == {"value": 0.5, "low": 0.5, "high": 0.5}
    with visiting(browser, proxy) as visit:
        page = visit.page
        page.goto("/console/quality?days=1")
        part = page.locator("#opinions")
        expect(part.get_by_role("heading")).to_have_text("Second opinions")
        expect(part.locator("dd")).to_contain_text(["40", "without an answer", "50.0 %"])
        row = part.locator("tbody tr")
        expect(row).to_have_count(1)
        cells = ["words@1+opinion@1", "40", "0.500", "1.000", "+0.500", "0.0 %", "50.0 %", "+50.0"]
        expect(row.locator("td")).to_contain_text(cells)
        page.evaluate(AXE.read_text(encoding="utf-8"))
        faults = page.evaluate("() => axe.run('#opinions')")["violations"]
        assert [each["id"] for each in faults] == []
        assert (visit.errors, visit.violations()) == ([], [])


def test_failed_second_opinions_are_counted(start_proxy: StartProxy) -> None:
    """Failed and incomparable second opinions are counted; without any, nothing is shown."""
    policy = comparing("say 12", "status-500").replace("compared", "silent")
    proxy = start_proxy(policy=policy, scorer=HearingScorer(), **DESK)
    assert "Second opinions" not in proxy.desk.get("/console/quality").text
    held_id(proxy, "Paris p=0.5")
    until(lambda: execute(proxy.config.store, "SELECT count(*) FROM exchanges") == [(1,)])
    body = proxy.desk.get(f"{API}/quality/second-opinions").json()
    assert (body["asked"], body["failed"], body["untold"], body["measured"]) == (2, 1, 1, [])
    page = proxy.desk.get("/console/quality").text
    assert "verdicts on such replies will say" in page
    assert proxy.desk.get(f"{API}/quality/second-opinions?model=other").json()["asked"] == 0
    assert proxy.desk.get(f"{API}/quality/second-opinions?days=0").status_code == 422


def test_calls_of_a_judge_are_counted(start_proxy: StartProxy) -> None:
    """The judge's calls are counted with their cost, and with how many said nothing."""
    policy = comparing("x").replace(
        "second_opinion: {n: 1, from: [x]}", "judge: {model: judge 0.9}"
    )
    proxy = start_proxy(policy=policy, scorer=HearingScorer(), **DESK)
    held_id(proxy, "Paris p=0.5")
    until(lambda: execute(proxy.config.store, "SELECT count(*) FROM exchanges") == [(1,)])
    body = proxy.desk.get(f"{API}/quality/second-opinions").json()
    assert (body["judged"], body["unjudged"], body["judge_tokens"], body["asked"]) == (1, 0, 7, 0)
    page = proxy.desk.get("/console/quality").text
    assert "Second opinions and judges" in page
    assert "Calls of a judge" in page
    assert "7 tokens" in page
