"""Access to the review desk: tokens, keys, sessions, the login link, and other sites' pages."""

from __future__ import annotations

import re
import socket
import stat
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from pinocchio.desk import Desk, DeskError
from proxy.config.settings.admin import AdminConfig
from proxy.desk.access.sessions import ATTEMPTS_A_MINUTE
from proxy.desk.console.shell import PAGES
from proxy.desk.listening import DEFAULT_PORT, bind_admin
from proxy.errors import StartupError
from proxy.gate.rate_limits import Buckets
from tests.conftest import StartProxy
from tests.running.desk_client import (
    API,
    DESK,
    HOLD,
    bearer,
    browser,
    code_of,
    held_id,
    logged_in,
    make_key,
    revoke_key,
    stranger,
)
from tests.running.live_proxy import LiveProxy, ProxyProcess, run_cli, until
from tests.servers.faulty_upstream import FaultyUpstream
from tests.sharing.captured_logs import capture_logs

STATS = f"{API}/stats"


@pytest.fixture(scope="module")
def proxy(start_proxy: StartProxy) -> LiveProxy:
    return start_proxy(policy=HOLD, **DESK)


@pytest.fixture(scope="module")
def alice(proxy: LiveProxy) -> str:
    """Return a reviewer's key."""
    return make_key(proxy, "reviewer", "alice")


def test_nobody_gets_anything_without_a_secret(proxy: LiveProxy) -> None:
    """Without a secret, programs get an error, and people the login page and then their page."""
    with stranger(proxy) as client:
        for path in ("/reviews", "/stats", "/openapi.json", "/nothing"):
            assert code_of(client.get(API + path)) == (401, "invalid_api_key")
        assert code_of(client.get(STATS, headers=bearer("wrong"))) == (401, "invalid_api_key")
        page = client.get("/?a=b")
        assert page.headers["location"] == "/pinocchio/login?next=/%3Fa%3Db"
        assert (page.status_code, client.get("/pinocchio/login").status_code) == (303, 200)
        policy = page.headers["content-security-policy"]
        assert policy == "default-src 'none'; frame-ancestors 'none'"


def test_keys_are_for_one_side_each(proxy: LiveProxy, alice: str) -> None:
    """A caller's key does not open the desk; a reviewer's does, and names its owner."""
    caller = make_key(proxy, "caller", "app")
    assert code_of(proxy.desk.get(STATS, headers=bearer(caller))) == (401, "invalid_api_key")
    assert proxy.desk.get(STATS, headers=bearer(alice)).status_code == 200


def test_a_reviewers_key_is_none_of_the_api(start_proxy: StartProxy) -> None:
    """Where keys are required, the API refuses a reviewer's key and says what it is."""
    proxy = start_proxy(policy=HOLD, keys="required", upstream={"api_key": "x"}, load=lambda: None)
    secret = make_key(proxy, "reviewer", "carol")

    def refused() -> httpx.Response:
        return proxy.http.get("/v1/models", headers=bearer(secret))

    until(lambda: "review desk" in refused().text)
    assert code_of(refused()) == (401, "invalid_api_key")


def test_a_session_ends_with_its_key(proxy: LiveProxy) -> None:
    """A login with a key gives a strict cookie that is void once the key is revoked."""
    secret = make_key(proxy, "reviewer", "bob")
    with browser(proxy) as page:
        entered = page.post("/pinocchio/login", data={"token": secret, "next": "/reviews"})
        assert (entered.status_code, entered.headers["location"]) == (303, "/reviews")
        assert re.search("HttpOnly.*SameSite=strict", entered.headers["set-cookie"])
        assert "Secure" not in entered.headers["set-cookie"]
        assert page.get(STATS).status_code == 200
        revoke_key(proxy, "bob")
        assert page.get(STATS).status_code == 401


def test_behind_https_the_cookie_is_secure(proxy: LiveProxy, alice: str) -> None:
    with browser(proxy) as page:
        https = {"x-forwarded-proto": "https"}
        entered = page.post("/pinocchio/login", data={"token": alice}, headers=https)
        assert "; Secure" in entered.headers["set-cookie"]


@pytest.mark.parametrize("next", ["//evil.example", "https://evil.example", "/\\evil.example", ""])
def test_nobody_is_led_elsewhere(proxy: LiveProxy, alice: str, next: str) -> None:
    """The login leads to a page of the desk, whatever the link says."""
    with browser(proxy) as page:
        entered = page.post("/pinocchio/login", data={"token": alice, "next": next})
        assert (entered.status_code, entered.headers["location"]) == (303, "/")


def test_logging_out_ends_the_session(proxy: LiveProxy, alice: str) -> None:
    """After a logout the session's cookie is void, even where it was kept."""
    with logged_in(proxy, alice) as page:
        cookies = dict(page.cookies)
        token = csrf_token(proxy, page)
        assert code_of(page.post("/pinocchio/logout", data={})) == (403, "csrf_token")
        assert page.post("/pinocchio/logout", data={"csrf": token}).status_code == 303
    with stranger(proxy) as thief:
        thief.cookies.update(cookies)
        assert thief.get(STATS).status_code == 401


def csrf_token(proxy: LiveProxy, page: httpx.Client) -> str:
    return str(page.get(f"{API}/me").json()["csrf"])


def test_a_made_up_session_is_none(proxy: LiveProxy) -> None:
    with stranger(proxy, cookie="pinocchio_session=" + "A" * 43) as client:
        assert code_of(client.get(STATS)) == (401, "invalid_api_key")


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://evil.example", "sec-fetch-site": "same-origin"},
        {"origin": "null"},
        {"sec-fetch-site": ""},
    ],
)
def test_another_sites_page_decides_nothing(
    proxy: LiveProxy, alice: str, headers: dict[str, str]
) -> None:
    """With a valid cookie, a form that no page of the desk made is refused and changes nothing."""
    id = held_id(proxy)
    with logged_in(proxy, alice) as page:
        bare = stranger(proxy, **headers)
        bare.cookies = page.cookies
        post = bare.post(f"{API}/reviews/{id}/verdict", json={"verdict": "approve"})
        bare.close()
        assert code_of(post) == (403, "cross_site")
        assert page.get(f"{API}/reviews/{id}").json()["state"] == "open"


def test_without_browser_headers_the_session_token_is_required(
    proxy: LiveProxy, alice: str
) -> None:
    """A request without a browser's headers needs the session's token to change anything."""
    id = held_id(proxy)
    url, body = f"{API}/reviews/{id}/verdict", {"verdict": "approve"}
    with logged_in(proxy, alice) as page, stranger(proxy) as old:
        token = csrf_token(proxy, page)
        old.cookies = page.cookies
        assert code_of(old.post(url, json=body)) == (403, "csrf_token")
        assert code_of(old.post(url, json=body, headers={"x-csrf-token": "x"}))[0] == 403
        done = old.post(url, json=body, headers={"x-csrf-token": token})
        assert done.json()["decided_by"] == "alice"


def test_other_hosts_are_refused(proxy: LiveProxy) -> None:
    """On loopback another name for the desk is refused (DNS rebinding)."""
    answer = proxy.desk.get(STATS, headers={"host": "evil.example"})
    assert code_of(answer) == (403, "host_not_allowed")


def test_a_cross_site_link_reloads_the_page(proxy: LiveProxy) -> None:
    """A link from another site, which lacks strict cookies, makes the page load itself again."""
    with stranger(proxy) as client:
        page = client.get("/", headers={"sec-fetch-site": "cross-site"})
        assert (page.status_code, "http-equiv" in page.text) == (200, True)


def test_strangers_send_little(proxy: LiveProxy) -> None:
    """Before the login a body may have a few kilobytes, chunked or not."""
    with browser(proxy) as client:
        for body in (b"token=" + b"x" * 20_000, iter([b"token=", b"x" * 20_000])):
            assert client.post("/pinocchio/login", content=body).status_code == 413


@pytest.mark.parametrize("enters", ["with a key", "with a session"])
def test_the_stream_of_events_ends_with_its_key(proxy: LiveProxy, enters: str) -> None:
    """A stream of events ends within a second of its key, even an idle one; others go on."""
    name = f"fred {enters}"
    fred, greta = make_key(proxy, "reviewer", name), make_key(proxy, "reviewer", f"greta {enters}")
    with logged_in(proxy, fred) as page, stranger(proxy) as client:
        client_in = page if enters == "with a session" else client
        fields = {} if enters == "with a session" else bearer(fred)
        with (
            client.stream("GET", f"{API}/events", headers=bearer(greta)) as others,
            client_in.stream("GET", f"{API}/events", headers=fields) as his,
        ):
            lines = his.iter_lines()
            assert next(lines) == ": ping"
            revoke_key(proxy, name)
            revoked_at = time.monotonic()
            for line in lines:
                assert not line.startswith("event: review")
                assert time.monotonic() - revoked_at < 20  # a second, if nothing else runs
            id = held_id(proxy)
            assert any(id in line for line in others.iter_lines())
        assert client_in.get(STATS, headers=fields).status_code == 401


# Startup


def test_guessing_a_token_is_limited(start_proxy: StartProxy) -> None:
    """After ten wrong tokens in a minute the next wrong one has to wait. A right
    token or key is let in from the same address, by a program and on the login page.
    """
    proxy = start_proxy(policy=HOLD, has_desk=True, admin={"token": "short"})
    secret = make_key(proxy, "reviewer", "dora")
    with stranger(proxy) as client:
        for _ in range(ATTEMPTS_A_MINUTE):
            assert client.get(STATS, headers=bearer("guess")).status_code == 401
        for _ in range(30):
            limited = client.get(STATS, headers=bearer("guess"))
            assert code_of(limited) == (429, "rate_limit_exceeded")
            assert 1 <= int(limited.headers["retry-after"]) <= 60
            assert client.get(STATS, headers=bearer("short")).status_code == 200
        assert client.get(STATS, headers=bearer(secret)).status_code == 200
    with browser(proxy) as page:
        assert page.post("/pinocchio/login", data={"token": "guess"}).status_code == 429
        assert page.post("/pinocchio/login", data={"token": "short"}).status_code == 303


def test_buckets_are_forgotten() -> None:
    """A full bucket takes no memory, and the number of others is bounded."""
    now = [0.0]
    buckets = Buckets(lambda: now[0])
    for number in range(50_000):
        now[0] += 0.01
        assert buckets.take([(f"2001:db8::{number:x}", ATTEMPTS_A_MINUTE)]) == 0.0
    assert len(buckets) <= 6_001
    for _ in range(ATTEMPTS_A_MINUTE):
        assert buckets.take([("10.0.0.1", ATTEMPTS_A_MINUTE)]) == 0.0
    assert buckets.take([("10.0.0.1", ATTEMPTS_A_MINUTE)]) > 0
    now[0] += 61
    assert buckets.take([("10.0.0.1", ATTEMPTS_A_MINUTE)]) == 0.0
    assert len(buckets) == 1


def test_a_taken_port_that_was_set_stops_the_start() -> None:
    """A taken default port is replaced by a free one; a taken configured port stops the start."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartupError, match=f"admin.port {port} on 127.0.0.1 is taken"):
            bind_admin(AdminConfig(port=port))
    first, second = bind_admin(AdminConfig()), bind_admin(AdminConfig())
    assert first is not None
    assert second is not None
    ports = {each.listening.getsockname()[1] for each in (first, second)}
    assert len(ports) == 2
    assert all(port >= DEFAULT_PORT for port in ports)
    first.listening.close()
    second.listening.close()


def test_beyond_loopback_a_token_is_required() -> None:
    with pytest.raises(StartupError, match=r"set admin\.token"):
        bind_admin(AdminConfig(host="0.0.0.0"))
    with pytest.raises(StartupError, match="at least 16 characters"):
        bind_admin(AdminConfig(host="0.0.0.0", token=SecretStr("fifteen letters")))
    assert bind_admin(AdminConfig(enabled=False)) is None


@pytest.fixture(scope="module")
def process(
    running_upstream: FaultyUpstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ProxyProcess, Path]]:
    folder = tmp_path_factory.mktemp("desk")
    config = f"""
upstreams: {{demo: {{demo: true}}}}
models: [{{match: "*", upstream: demo}}]
calibrator: {{checkpoint: "fake:0.1"}}
store: sqlite:///{folder}/held.db
"""
    with ProxyProcess(folder, config) as proxy:
        yield proxy, folder


def test_the_printed_link_opens_the_desk_once(process: tuple[ProxyProcess, Path]) -> None:
    """Without a token the start makes a login link, which works once. A key
    that is made beside it lets an admin in again. Where output is no terminal,
    and perhaps a log, the link is in a file that only its owner can read.
    """
    proxy, folder = process
    place = re.search(r"one-time login link: in (\S+), which only you can read", proxy.stdout())
    assert place is not None
    assert "token=" not in proxy.stdout()
    file = Path(place[1])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    found = re.fullmatch(r"(http://127\.0\.0\.1:\d+)(/pinocchio/login\S+)\n", file.read_text())
    assert found is not None
    with httpx.Client(base_url=found[1], trust_env=False) as page:
        entered = page.get(found[2])
        assert (entered.status_code, entered.headers["location"]) == (303, "/")
        assert page.get(f"{API}/me").json()["role"] == "admin"
    with httpx.Client(base_url=found[1], trust_env=False) as other:
        again = other.get(found[2])
        assert (again.status_code, "used before" in again.text) == (401, True)
        config = str(folder / "proxy.yaml")
        create = ("keys", "create", "--config", config, "--role", "admin")
        assert "needs a --name" in run_cli(*create).stderr
        secret = run_cli(*create, "--name", "eve").stdout.strip()
        me = other.get(f"{API}/me", headers=bearer(secret)).json()
        assert (me["name"], me["role"]) == ("eve", "admin")
    assert found[2].partition("=")[2] not in proxy.stderr()


def test_a_reviewer_can_be_bound_to_queues(proxy: LiveProxy) -> None:
    """A reviewer who is bound to queues neither sees nor decides on reviews
    of others, in API and console, and has no pages about all traffic.
    """
    id = held_id(proxy)
    bound = bearer(make_key(proxy, "reviewer", "bound", queues="juniors,legal"))
    senior = bearer(make_key(proxy, "reviewer", "senior", queues="seniors"))
    with stranger(proxy) as client:
        for path in (f"{API}/reviews/{id}", f"/console/reviews/{id}"):
            assert client.get(path, headers=bound).status_code == 404
            assert client.get(path, headers=senior).status_code == 200
        verdict = {"verdict": "approve"}
        refused = client.post(f"{API}/reviews/{id}/verdict", json=verdict, headers=bound)
        assert code_of(refused) == (404, "review_not_found")
        label = client.post(f"{API}/reviews/{id}/label", json={"correct": True}, headers=bound)
        assert label.status_code == 404
        assert client.get(f"{API}/reviews", headers=bound).json()["items"] == []
        listed = client.get(f"{API}/reviews", headers=senior).json()["items"]
        assert id in [each["id"] for each in listed]
        assert client.get(STATS, headers=bound).json()["open"] == 0
        assert client.get(STATS, headers=senior).json()["open"] > 0
        for path in ("/console/quality", "/console/traffic", f"{API}/events", f"{API}/feedback"):
            assert client.get(path, headers=bound).status_code == 403
        assert client.get(f"{API}/me", headers=bound).json()["name"] == "bound"


def test_a_reviewer_is_no_admin(proxy: LiveProxy, alice: str) -> None:
    """A reviewer cannot see webhooks' addresses or the configuration's faults, as an admin can."""
    with stranger(proxy) as client:
        for_admin = client.get(STATS, headers=bearer(proxy.config.admin.token.get_secret_value()))
        for_reviewer = client.get(STATS, headers=bearer(alice))
    assert for_admin.json()["webhooks"] == {"waiting": 0, "given_up": 0}
    assert for_reviewer.json()["webhooks"] == {}
    assert for_reviewer.json()["configuration"]["problems"] == []


def test_who_may_see_which_page(proxy: LiveProxy, alice: str) -> None:
    """Of all pages, strangers see the login, reviewers of certain queues their
    reviews, other reviewers all except for the metrics, and admins everything.
    """
    with stranger(proxy) as client:
        admin = bearer(proxy.config.admin.token.get_secret_value())
        bound = bearer(make_key(proxy, "reviewer", "narrow", queues="juniors"))
        described = client.get(f"{API}/openapi.json", headers=admin).json()["paths"]
        paths = [path for path, methods in described.items() if "get" in methods]
        paths = [path for path in paths if "{" not in path and not path.endswith("/events")]
        paths += ["/metrics", "/pinocchio/login", f"{API}/openapi.json"]
        paths += [page.path for page in PAGES]

        def seen(headers: dict[str, str]) -> set[str]:
            replies = {path: client.get(path, headers=headers) for path in paths}
            strangely = [path for path, reply in replies.items() if reply.status_code >= 500]
            assert strangely == []
            return {path for path, reply in replies.items() if reply.status_code == 200}

        assert seen({}) == {"/pinocchio/login"}
        everything = seen(admin)
        assert everything >= {"/metrics", f"{API}/stats", f"{API}/reviews", "/console/calibrator"}
        assert seen(bearer(alice)) == everything - {"/metrics"}
        of_queues = {"/console/reviews", f"{API}/reviews", f"{API}/standing-approvals"}
        assert seen(bound) == {*of_queues, "/pinocchio/login", f"{API}/me", f"{API}/stats"}
        refused = client.get("/metrics", headers=bearer(alice))
        assert code_of(refused) == (403, "not_allowed")


def test_a_short_token_warns() -> None:
    """A short token opens the desk on loopback, and a warning is logged that does not quote it."""
    with capture_logs() as lines:
        opened = bind_admin(AdminConfig(port=0, token=SecretStr("short")))
    assert opened is not None
    opened.listening.close()
    [line] = lines
    assert line["event"] == "admin_token_is_short"
    assert "short" not in line["hint"]


def test_a_helper_at_another_server_says_so() -> None:
    """Where an agent's base_url is no proxy's, the helper's error asks for the address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        with pytest.raises(DeskError) as error:
            Desk(url, "key").hold("a", "f", {}, [])
        server.shutdown()
        thread.join()
    assert f"no review desk at {url}" in str(error.value)
    assert error.value.status == 501
