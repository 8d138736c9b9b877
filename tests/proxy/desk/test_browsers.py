"""Pages in a browser on this machine: they can do nothing at the
proxy or the desk, and the cookies that a browser adds go nowhere.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.routing import BaseRoute, Route

from policies import load_policy
from proxy.config.policy_book import PolicyBook
from proxy.config.sections import Config
from proxy.config.setup import Setup
from proxy.desk.access.guard import is_for_strangers
from proxy.desk.access.sessions import Door
from proxy.desk.application import DeskApplication
from proxy.desk.decisions.desk import Desk
from proxy.desk.feed import Feed
from proxy.http.wire.http import Message
from proxy.store.database.client_keys import KeyStore
from proxy.store.queue import ReviewQueue
from tests.conftest import StartProxy
from tests.running.client_keys import bearer, make_key, wait_until_known
from tests.running.desk_client import DESK, HOLD, TOKEN, browser, desk_url, logged_in
from tests.running.live_proxy import LiveProxy, WordScorer, error_of, question
from tests.servers.engine_servers import ServedApp, live_scoring_server
from tests.servers.faulty_upstream import FaultyUpstream
from tests.servers.raw_server import Peer, RawServer

ROOT = Path(__file__).parents[3]
ELSEWHERE = {
    "a site": {"origin": "https://evil.example"},
    "a sandboxed frame or a file": {"origin": "null"},
    "a name that begins like ours": {"origin": "http://localhost.evil.example"},
    "an address that begins like ours": {"origin": "http://127.0.0.1.evil.example:8000"},
    "brackets that begin like ours": {"origin": "http://[::1].evil.example"},
    "somebody at it": {"origin": "http://localhost@evil.example"},
    "two in one": {"origin": "http://localhost,http://evil.example"},
    "no address": {"origin": "http://["},
    "an empty origin": {"origin": ""},
    "an image or a form without an origin": {"sec-fetch-site": "cross-site"},
    "a site that the browser names": {
        "origin": "https://e.example",
        "sec-fetch-site": "cross-site",
    },
    "a site in other letters": {"sec-fetch-site": "Cross-Site"},
}
HERE = {
    "a program": {},
    "a page of the proxy's own port": {"origin": "http://127.0.0.1", "sec-fetch-site": "same-site"},
    "a page of another port": {"origin": "http://localhost:3000", "sec-fetch-site": "same-site"},
    "a page under another name": {"origin": "http://[::1]:80", "sec-fetch-site": "cross-site"},
    "somebody who types the address": {"sec-fetch-site": "none"},
}
ASKED = [
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/embeddings"),
    ("OPTIONS", "/v1/chat/completions"),
    ("OPTIONS", "/v1/files"),
    ("DELETE", "/v1/files/file-1"),
    ("GET", "/v1/models"),
    ("GET", "/v1/chat/completions/chatcmpl-pinocchio-1"),
    ("GET", "/pinocchio/v1/results/req_1"),
    ("GET", "/livez"),
]


@pytest.mark.parametrize("page", ELSEWHERE)
@pytest.mark.parametrize(("method", "path"), ASKED)
def test_pages_from_elsewhere_get_nothing(
    proxy: LiveProxy, upstream: FaultyUpstream, method: str, path: str, page: str
) -> None:
    """While the proxy is open, requests and preflights of other pages
    get 403 and reach no upstream, and the page cannot read the answer.
    """
    fields = {"content-type": "text/plain", **ELSEWHERE[page]}
    body = question("hi") if method == "POST" else None
    reply = proxy.http.request(method, path, json=body, headers=fields)
    assert (reply.status_code, error_of(reply)["code"]) == (403, "origin_not_allowed")
    assert not [name for name in reply.headers if name.startswith("access-control")]
    assert upstream.requests == []


@pytest.mark.parametrize("page", HERE)
def test_pages_of_this_machine_and_programs_are_served(
    proxy: LiveProxy, upstream: FaultyUpstream, page: str
) -> None:
    reply = proxy.http.post("/v1/chat/completions", json=question("p=0.9"), headers=HERE[page])
    assert reply.status_code == 200
    assert upstream.last.header("origin") == HERE[page].get("origin")


def test_with_keys_any_page_may_ask(start_proxy: StartProxy, upstream: FaultyUpstream) -> None:
    """With required keys any page may ask, and its `Origin` is relayed unchanged."""
    proxy = start_proxy(keys="required", upstream={"api_key": "sk-own"})
    secret, _ = make_key(proxy.store_path, name="page")
    wait_until_known(proxy.base_url, secret)
    fields = {**bearer(secret), "origin": "https://app.example", "sec-fetch-site": "cross-site"}
    reply = proxy.http.post("/v1/chat/completions", json=question("p=0.9"), headers=fields)
    assert reply.status_code == 200
    assert upstream.last.header("origin") == "https://app.example"


@pytest.mark.parametrize("page", ELSEWHERE)
def test_a_scoring_server_without_a_token_answers_no_page(page: str, scoring: ServedApp) -> None:
    """A scoring server without a token answers programs on this machine, but no other pages."""
    reply = httpx.get(f"{scoring.url}/livez", headers=ELSEWHERE[page], trust_env=False)
    assert (reply.status_code, error_of(reply)["code"]) == (403, "origin_not_allowed")


@pytest.fixture(scope="module")
def scoring() -> Iterator[ServedApp]:
    with live_scoring_server(WordScorer(), calibrator={"checkpoint": "fake:0.5"}) as server:
        yield server


# Every route of the desk checks its visitor


@pytest.fixture
def desk_application(tmp_path: Path) -> Iterator[DeskApplication]:
    config = Config(store=f"sqlite:///{tmp_path}/held.db")
    queue = ReviewQueue(config.store)
    queue.rehearse()
    setup = Setup(None, config, PolicyBook(load_policy(config.policies)))
    application = DeskApplication(
        Desk(queue, lambda: setup, lambda _: None),
        Door(TOKEN, None, KeyStore(config.store)),
        Feed(queue),
        is_loopback=True,
        max_body=2**20,
    )
    yield application
    application.close()


def _routes(api: FastAPI) -> list[tuple[str, str]]:
    """Yield method and path of every route, including those of OpenAPI's description."""
    found = {
        (method.upper(), path) for path, item in api.openapi()["paths"].items() for method in item
    }
    routes: list[BaseRoute] = api.router.routes
    for route in routes:
        if isinstance(route, Route):
            found |= {(method, route.path) for method in route.methods or ()}
    return sorted((method, re.sub(r"\{[^}]*\}", "x", path)) for method, path in found)


async def _answer(
    app: Any, method: str, path: str, host: bytes = b"localhost"
) -> tuple[int, bytes]:
    sent: list[Message] = []
    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode()}
    scope |= {"query_string": b"", "headers": [(b"host", host)], "scheme": "http"}
    scope |= {"http_version": "1.1", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2)}

    async def receive() -> Message:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope | {"root_path": ""}, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


async def test_every_route_of_the_desk_asks_for_its_visitor(
    desk_application: DeskApplication,
) -> None:
    """Every route refuses a stranger by itself, without the guard in front."""
    api: Any = desk_application._guarded._inner
    tried = [each for each in _routes(api) if not is_for_strangers(each[1])]
    assert len(tried) > 20
    for method, path in tried:
        status, body = await _answer(api, method, path)
        assert status == 401, (method, path, body)


STATIC_HOSTS = [
    "127.0.0.1:80/static/?",
    "127.0.0.1/static/",
    "127.0.0.1:80/static/#",
    "localhost/pinocchio/login",
    "localhost:80/pinocchio/login?",
    "[::1]/static/",
    "[::1]:80/static/?",
    "a@localhost",
    "localhost:80:80",
    "localhost:port",
    "localhost ",
    "127.0.0.1:\t80",
    "127.0.0.1, 127.0.0.1",
    "",
]


@pytest.mark.parametrize("host", STATIC_HOSTS)
async def test_a_host_is_a_host(desk_application: DeskApplication, host: str) -> None:
    """No `Host` makes a path of the desk look like a public one."""
    for path in ("/pinocchio/v1/reviews", "/pinocchio/v1/stats", "/console/reviews"):
        status, _ = await _answer(desk_application, "GET", path, host.encode())
        assert status == 403


def test_the_ranges_leave_out_the_starlette_that_went_by_host() -> None:
    """The allowed versions exclude Starlette up to 1.0.0, where `Host` could change the path."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert [each for each in listed if each.startswith("starlette")] == ["starlette>=1.0.1"]


# Cookies do not depend on the port


COOKIES = [
    ("{c}", None),
    ("a=1; {c}; b=2", "a=1; b=2"),
    ("{c}; a=1", "a=1"),
    ("a=1;{c}", "a=1"),
    ("a=1;\t{c} ; b=2", "a=1; b=2"),
    ("__Host-{c}; a=1", "a=1"),
    ("a=1; b=2", "a=1; b=2"),
    ("my_{c}; a", "my_{c}; a"),
    ('a="1; {c}; 2"', 'a="1; 2"'),
]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
@pytest.mark.parametrize(("sent", "arrives"), COOKIES)
def test_the_desks_session_goes_to_no_upstream(
    start_proxy: StartProxy, upstream: FaultyUpstream, path: str, sent: str, arrives: str | None
) -> None:
    """The desk's session cookie is not sent upstream when its browser
    opens the proxy's port; other cookies go upstream unchanged.
    """
    proxy = start_proxy(policy=HOLD.replace("hold: {queue: seniors}", "deliver"), **DESK)
    with logged_in(proxy) as page:
        name, secret = next(iter(page.cookies.items()))
    cookie = f"{name}={secret}"
    fields = {"cookie": sent.format(c=cookie)}
    assert proxy.http.post(path, json=question("p=0.9"), headers=fields).status_code == 200
    assert upstream.last.header("cookie") == (arrives and arrives.format(c=cookie))


@pytest.mark.parametrize(
    ("set_cookie", "passes"),
    [
        ("pinocchio_session=x; Path=/", False),
        (" pinocchio_session = x", False),
        ("__Host-pinocchio_session=x; Secure; Path=/", False),
        ("=pinocchio_session=x", False),
        ("pinocchio_session", False),
        ("PINOCCHIO_SESSION=x", False),
        ("theirs=1; Path=/", True),
        ("theirs=1; Comment=pinocchio_session", True),
    ],
)
def test_upstream_sets_no_session(tmp_path: Path, set_cookie: str, passes: bool) -> None:
    """A cookie of upstream's that the desk would take for its own is dropped; others arrive."""

    def answer(peer: Peer) -> None:
        head = f"HTTP/1.1 200 OK\r\nset-cookie: {set_cookie}\r\nset-cookie: b=2\r\n"
        while peer.request():
            peer.send(f"{head}content-length: 2\r\n\r\n{{}}".encode())

    with RawServer(answer) as server:
        proxy = LiveProxy(server.base_url, tmp_path)
        try:
            replies = [proxy.http.get("/v1/files"), proxy.ask()]
        finally:
            proxy.stop()
    for reply in replies:
        assert reply.headers.get_list("set-cookie") == [set_cookie.strip()] * passes + ["b=2"]


def test_behind_https_the_session_has_a_name_that_nobody_else_can_set(
    start_proxy: StartProxy,
) -> None:
    """Behind https the cookie is named `__Host-`, for this host alone; the plain name is void."""
    proxy = start_proxy(policy=HOLD, **DESK)
    https = {"x-forwarded-proto": "https"}
    with browser(proxy) as page:
        entered = page.post("/pinocchio/login", data={"token": TOKEN}, headers=https)
        set_cookie = entered.headers["set-cookie"]
        name, _, rest = set_cookie.partition("=")
        secret = rest.partition(";")[0]
    assert name == "__Host-pinocchio_session"
    assert "Secure" in set_cookie
    assert "Path=/" in set_cookie
    assert "domain" not in set_cookie.lower()
    stats = f"{desk_url(proxy)}/pinocchio/v1/stats"
    for cookie, status in (("__Host-pinocchio_session", 200), ("pinocchio_session", 401)):
        fields = {**https, "cookie": f"{cookie}={secret}"}
        assert httpx.get(stats, headers=fields, trust_env=False).status_code == status
