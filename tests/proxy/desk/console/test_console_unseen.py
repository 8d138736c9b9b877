"""The desk never approves a reply that nobody has seen, played through in a real browser."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.conftest import StartProxy
from tests.proxy.desk.console.test_console_pages import TOOL
from tests.running.browser import Visit, look_at, visiting
from tests.running.databases import execute
from tests.running.desk_client import DESK, HOLD, held_id
from tests.running.live_proxy import LiveProxy, until

LONG = "\n\n".join(f"Paragraph {number} of a long question." for number in range(120))
NEW = count()
VERDICT = re.compile(r"/verdict")
REPEAT_S = 0.033  # as keyboards repeat a key that is held


@pytest.fixture(scope="module")
def proxy(start_proxy: StartProxy) -> LiveProxy:
    return start_proxy(policy=HOLD.replace("desk", "unseen"), **DESK)


@pytest.fixture
def page(proxy: LiveProxy, visit: Visit) -> Page:
    execute(proxy.config.store, "UPDATE held_replies SET state = 'rejected' WHERE state = 'held'")
    return visit.page


def held_texts(proxy: LiveProxy, most: int) -> list[str]:
    return [held_id(proxy, f"text {number} p=0.{number + 1}") for number in range(most)]


def held_calls(proxy: LiveProxy, most: int) -> list[str]:
    """Return the ids of held replies that call `book_train`, the surest error first.

    None is bound to an earlier request.
    """
    return [
        held_id(proxy, f"City {next(NEW)} p=0.{number + 1}", model="tools", tools=[TOOL])
        for number in range(most)
    ]


def states(proxy: LiveProxy, ids: list[str]) -> list[str]:
    found = dict(execute(proxy.config.store, "SELECT id, state FROM held_replies"))
    return [found[id] for id in ids]


def leave_with(page: Page, proxy: LiveProxy, ids: list[str], *expected: str) -> None:
    """Leave the page, so that nothing can be undone, and check that these are the final states."""
    page.goto("about:blank")
    with suppress(AssertionError):  # then the comparison below shows the states
        until(lambda: states(proxy, ids) == list(expected))
    time.sleep(0.5)
    assert states(proxy, ids) == list(expected)


def soon(page: Page, holds: Callable[[], object]) -> None:
    """Wait for a condition, and let the page's requests be handled meanwhile."""

    def look() -> object:
        page.wait_for_timeout(50)
        return holds()

    until(look, within_s=20)


def hold_down(page: Page, key: str, for_s: float) -> None:
    end = time.monotonic() + for_s
    while time.monotonic() < end:
        page.keyboard.down(key)
        time.sleep(REPEAT_S)
    page.keyboard.up(key)


@pytest.mark.parametrize("for_s", [0.7, pytest.param(3.0, marks=pytest.mark.slow)])
def test_a_key_that_is_held_down_approves_one_text(
    proxy: LiveProxy, page: Page, for_s: float
) -> None:
    """A key that is held down approves one text; the replies that come next stay open."""
    ids = held_texts(proxy, 4)
    look_at(page, ids[0])
    hold_down(page, "a", for_s)
    leave_with(page, proxy, ids, "released", "held", "held", "held")


@pytest.mark.parametrize("key", ["a", pytest.param("c", marks=pytest.mark.slow), "Enter"])
def test_a_key_that_is_held_down_approves_no_call(proxy: LiveProxy, page: Page, key: str) -> None:
    """No single key releases a call however long it is held: the first, the second or Enter."""
    ids = held_calls(proxy, 3)
    look_at(page, ids[0])
    hold_down(page, key, 2.0)
    leave_with(page, proxy, ids, "held", "held", "held")


@pytest.mark.parametrize("pause_s", [0.0, pytest.param(0.25, marks=pytest.mark.slow), 0.6])
def test_a_double_press_decides_once(proxy: LiveProxy, page: Page, pause_s: float) -> None:
    """The second press of a double press falls on the next reply, and decides nothing."""
    ids = held_texts(proxy, 3)
    look_at(page, ids[0])
    page.keyboard.press("a")
    time.sleep(pause_s)
    page.keyboard.press("a")
    leave_with(page, proxy, ids, "released", "held", "held")


def test_the_next_reply_takes_a_decision_once_it_was_looked_at(
    proxy: LiveProxy, page: Page
) -> None:
    """After a second, with all of the next reply on the screen, the same key approves it."""
    ids = held_texts(proxy, 2)
    look_at(page, ids[0])
    page.keyboard.press("a")
    page.wait_for_url(f"**/{ids[1]}*")
    page.keyboard.press("r")
    expect(page.get_by_text("A new reply has appeared")).to_be_visible()
    look_at(page)
    page.keyboard.press("a")
    leave_with(page, proxy, ids, "released", "released")


def test_a_verdict_on_its_way_survives_the_page(proxy: LiveProxy, visit: Visit, page: Page) -> None:
    """A verdict whose request ends with its page is sent once more."""
    ids = held_texts(proxy, 1)
    sent: list[Route] = []

    def stop_the_first(route: Route) -> None:
        sent.append(route)
        if len(sent) > 1:
            route.continue_()

    visit.context.route(VERDICT, stop_the_first)
    look_at(page, ids[0])
    page.keyboard.press("a")
    soon(page, lambda: sent)  # nothing can be undone any more
    assert states(proxy, ids) == ["held"]
    page.goto("about:blank")
    soon(page, lambda: states(proxy, ids) == ["released"])
    visit.context.unroute(VERDICT)  # other tests visit with the same context


def test_a_call_takes_a_key_of_its_own(proxy: LiveProxy, page: Page) -> None:
    """`a` shows what the agent will do, Escape goes back, and only `c` after `a` approves it."""
    ids = held_calls(proxy, 2)
    look_at(page, ids[0])
    step = page.locator("[data-confirm]")
    page.keyboard.press("c")
    expect(step).to_be_hidden()
    page.keyboard.press("a")
    expect(step).to_contain_text(re.compile(r'book_train\(city="City \d+ p=0.1"'))
    page.keyboard.press("a")
    page.keyboard.press("Escape")
    expect(step).to_be_hidden()
    page.keyboard.press("c")
    assert states(proxy, ids) == ["held", "held"]
    page.keyboard.press("a")
    page.keyboard.press("c")
    page.wait_for_url(f"**/{ids[1]}*")
    leave_with(page, proxy, ids, "released", "held")


def test_what_is_out_of_sight_is_not_decided(proxy: LiveProxy, page: Page) -> None:
    """A key scrolls to a reply below the window's edge; a second after that it can approve it."""
    id = held_id(proxy, f"{LONG}\n\np=0.1")
    page.goto(f"/console/reviews/{id}")
    time.sleep(1.2)
    approve = page.locator("button[data-key=a]")
    expect(approve).to_have_attribute("title", "A part of it is out of sight: scroll there first")
    page.keyboard.press("a")
    expect(page.get_by_text("out of sight")).to_be_visible()
    assert states(proxy, [id]) == ["held"]
    expect(page.locator(".reply h2").first).to_be_in_viewport()
    leave_with(page, proxy, [id], "held")
    page.goto(f"/console/reviews/{id}")
    time.sleep(1.2)
    page.locator(".reply h2").first.scroll_into_view_if_needed()
    time.sleep(0.3)
    page.keyboard.press("End")
    look_at(page)
    expect(approve).to_have_attribute("title", "")
    page.keyboard.press("a")
    leave_with(page, proxy, [id], "released")


def click_twice(page: Page) -> None:
    page.locator("button[data-key=a]").dblclick(delay=20)


def click_in_a_row(page: Page) -> None:
    """Click twice, too slowly for a browser's double click."""
    button = page.locator("button[data-key=a]")
    button.click()
    time.sleep(0.55)
    button.click(force=True)


@pytest.mark.parametrize("act", [click_twice, click_in_a_row])
def test_a_second_click_approves_nothing_else(
    proxy: LiveProxy, page: Page, act: Callable[[Page], None]
) -> None:
    """A second click falls on the next reply's button, and decides nothing on that unread reply."""
    ids = held_texts(proxy, 3)
    look_at(page, ids[0])
    act(page)
    leave_with(page, proxy, ids, "released", "held", "held")


@pytest.mark.parametrize("act", [click_twice, click_in_a_row])
def test_a_second_click_confirms_no_call(
    proxy: LiveProxy, page: Page, act: Callable[[Page], None]
) -> None:
    """The confirming step has its button elsewhere, so that a second click does not confirm."""
    ids = held_calls(proxy, 2)
    look_at(page, ids[0])
    act(page)
    leave_with(page, proxy, ids, "held", "held")


def test_a_button_that_has_just_moved_takes_no_click(proxy: LiveProxy, page: Page) -> None:
    """A click on Approve is ignored just after it moved to where Reject was."""
    ids = held_texts(proxy, 2)
    look_at(page, ids[0])
    reject = page.locator("button[data-key=r]").bounding_box()
    assert reject is not None
    middle = reject["x"] + reject["width"] / 2, reject["y"] + reject["height"] / 2
    page.mouse.move(*middle)
    swap = "document.querySelector('[data-key=a]').before(document.querySelector('[data-key=r]'))"
    page.evaluate(swap)
    page.mouse.click(*middle)
    expect(page.get_by_text("The button has just moved")).to_be_visible()
    leave_with(page, proxy, ids, "held", "held")
    look_at(page, ids[0])
    page.evaluate(swap)
    time.sleep(0.7)
    page.mouse.click(*middle)
    leave_with(page, proxy, ids, "released", "held")


def test_on_a_slow_network_one_decision_is_one(browser: Browser, proxy: LiveProxy) -> None:
    """While the next reply loads, keys decide nothing on it, except for an undo."""
    execute(proxy.config.store, "UPDATE held_replies SET state = 'rejected' WHERE state = 'held'")
    ids = held_texts(proxy, 3)
    with visiting(browser, proxy) as visit:
        page = visit.page
        look_at(page, ids[0])
        slow = {
            "offline": False,
            "latency": 1_500,
            "downloadThroughput": -1,
            "uploadThroughput": -1,
        }
        visit.context.new_cdp_session(page).send("Network.emulateNetworkConditions", slow)
        page.keyboard.press("a")
        for key in ("a", "r", "n", "a"):
            page.keyboard.press(key)
            time.sleep(0.1)
        page.locator("button[data-key=r]").click(force=True)
        page.wait_for_url(f"**/{ids[1]}*")
        page.keyboard.press("a")
        time.sleep(0.2)
        page.keyboard.press("u")
        page.wait_for_url(f"**/{ids[0]}*")
        time.sleep(2.0)  # nothing that was on its way takes the reply's place
        assert page.url.count(ids[0]) == 1
        leave_with(page, proxy, ids, "held", "held", "held")
        look_at(page, ids[0])
        page.keyboard.press("r")
        page.keyboard.press("a")
        page.wait_for_url(f"**/{ids[1]}*")
        leave_with(page, proxy, ids, "rejected", "held", "held")


def test_of_two_tabs_one_decides(proxy: LiveProxy, visit: Visit, page: Page) -> None:
    """The second of two tabs learns of the first's decision, and decides on nothing else."""
    ids = held_texts(proxy, 3)
    other = visit.context.new_page()
    try:
        look_at(page, ids[0])
        look_at(other, ids[0])
        other.keyboard.press("r")
        other.wait_for_url(f"**/{ids[1]}*")
        page.bring_to_front()
        page.keyboard.press("a")
        page.wait_for_url(f"**/{ids[1]}*")
        look_at(page)
        page.keyboard.press("r")  # sends the first, and gets the answer
        until(lambda: "held" not in states(proxy, ids[:1]))
        other.goto("about:blank")
        page.goto("about:blank")
        time.sleep(0.5)
        assert states(proxy, ids)[2] == "held"
        assert states(proxy, ids[:2]) in (["released", "rejected"], ["rejected", "rejected"])
        [(events,)] = execute(
            proxy.config.store,
            f"SELECT count(*) FROM review_events WHERE review_id = '{ids[0]}' AND event != 'held'",
        )
        assert events == 1
    finally:
        other.close()


def test_without_script_the_server_looks_after_it(browser: Browser, proxy: LiveProxy) -> None:
    """Without script, the server refuses a form that comes at once or lacks a call's tick."""
    execute(proxy.config.store, "UPDATE held_replies SET state = 'rejected' WHERE state = 'held'")
    text, call = held_id(proxy, "first p=0.1"), held_calls(proxy, 3)[2]
    with visiting(browser, proxy, java_script_enabled=False) as visit:
        page = visit.page
        page.goto(f"/console/reviews/{text}")
        page.get_by_role("button", name="Approve").click(no_wait_after=True)
        expect(page.get_by_role("alert")).to_contain_text("within a second")
        assert states(proxy, [text]) == ["held"]
        page.goto(f"/console/reviews/{call}")
        time.sleep(1.1)
        page.get_by_role("button", name="Approve").click()
        expect(page.get_by_role("alert")).to_contain_text("tick the box")
        time.sleep(1.1)
        page.get_by_label("I have read this call").check()
        page.get_by_role("button", name="Approve").click()
        until(lambda: states(proxy, [call]) == ["released"])


def test_the_waiting_count_follows_a_decision(proxy: LiveProxy, page: Page) -> None:
    """After a decision, the next reply shows the right number of waiting replies."""
    ids = held_texts(proxy, 3)
    time.sleep(3.1)  # counts are up to three seconds old
    look_at(page, ids[0])
    expect(page.locator("nav [data-open-count]")).to_have_text("3")
    page.keyboard.press("r")
    expect(page.locator("nav [data-open-count]")).to_have_text("2", timeout=15_000)
    assert states(proxy, ids) == ["rejected", "held", "held"]
