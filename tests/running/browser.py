"""A real Chromium for tests of pages, and a record of what each page did while it was open."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.running.desk_client import TOKEN, desk_url
from tests.running.live_proxy import LiveProxy

CHROME = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
NAMES = (
    "chromium-headless-shell",  # without windows, which nobody sees: a third of the CPU
    *("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", CHROME),
)

NOTICED = """
window.violations = [];
document.addEventListener("securitypolicyviolation",
  (event) => window.violations.push(`${event.effectiveDirective} ${event.blockedURI}`));
"""


READY = "button.reject:not([aria-disabled=true])[data-key=r]"
"""The button of a reply that takes decisions: it has been looked at."""


def look_at(page: Page, id: str | None = None) -> None:
    """Look at a page's reply for as long as the desk requires; with an id, open its page first."""
    if id is not None:
        page.goto(f"/console/reviews/{id}")
    page.wait_for_selector(READY)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Yield one browser; a machine that has none skips the test, and fails it on CI.

    Playwright keeps its event loop in this thread: close it before an asynchronous test begins.
    """
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        message = (
            "no Chromium is installed (apt-get install chromium-headless-shell, or Google Chrome)"
        )
        (pytest.fail if os.environ.get("CI") else pytest.skip)(message)
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=options)
        yield browser
        browser.close()


class Visit:
    """A browser context that is logged in at a proxy's desk with `secret`, and a page in it.

    `dialogs`, `elsewhere` (requests to other origins) and `errors` (exceptions of scripts) are what
    happened so far.
    """

    def __init__(
        self, browser: Browser, proxy: LiveProxy, secret: str = TOKEN, **options: Any
    ) -> None:
        self.origin = desk_url(proxy)
        self.context: BrowserContext = browser.new_context(base_url=self.origin, **options)
        self.context.set_default_timeout(10_000)
        self.dialogs: list[str] = []
        self.elsewhere: list[str] = []
        self.errors: list[str] = []
        self.context.add_init_script(NOTICED)
        self.context.on("request", self._note_request)
        self.page: Page = self.context.new_page()
        self._watch(self.page)
        self.context.on("page", self._watch)
        self.page.goto("/pinocchio/login")
        self.page.get_by_label("Token").fill(secret)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_url("**/console/reviews")

    def _watch(self, page: Page) -> None:
        page.on("dialog", lambda dialog: (self.dialogs.append(dialog.message), dialog.dismiss()))
        page.on("pageerror", lambda error: self.errors.append(str(error)))

    def _note_request(self, request: Any) -> None:
        if not request.url.startswith((self.origin, "data:")):
            self.elsewhere.append(request.url)

    def violations(self) -> list[str]:
        """Return what the page's Content-Security-Policy has blocked."""
        found: list[str] = self.page.evaluate("window.violations")
        return found

    def overflow(self) -> int:
        """Return by how many pixels the page is wider than its window."""
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        return int(self.page.evaluate(wide))

    def close(self) -> None:
        self.context.close()


@contextmanager
def visiting(browser: Browser, proxy: LiveProxy, **options: Any) -> Iterator[Visit]:
    visit = Visit(browser, proxy, **options)
    yield visit
    visit.close()
