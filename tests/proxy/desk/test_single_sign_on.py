"""Login at an OpenID issuer: a real one, node's oidc-provider, and one that lies."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key

from policies import InvalidDocumentError
from proxy.commands.checkup.doctor import examine
from proxy.config.sections import load_config
from proxy.config.settings.admin import AdminConfig
from proxy.config.settings.oidc import OidcConfig
from proxy.desk.access import issuer as issuer_module
from proxy.desk.access import single_sign_on
from proxy.desk.access.issuer import Issuer, IssuerError, LoginRefusedError
from proxy.desk.access.single_sign_on import visitor_of
from proxy.desk.listening import bind_admin
from proxy.errors import StartupError
from tests.conftest import StartProxy
from tests.running.browser import chromium
from tests.running.desk_client import (
    API,
    TOKEN,
    browser,
    code_of,
    desk_url,
    held_id,
    make_key,
)
from tests.running.live_proxy import ROOT, LiveProxy, environment
from tests.sharing.captured_logs import capture_logs

NODE = ROOT / "tests/node"
LOGIN = "/pinocchio/login/oidc"
BACK = f"{LOGIN}/callback"
PUBLIC = "https://desk.example"
GROUPS = {
    "admins": {"role": "admin"},
    "leads": {"queues": ["seniors"]},
    "juniors": {"queues": ["juniors"]},
}
TWO = "{version: 1, name: desk, default: {hold: {queue: seniors, approvals: 2}}}"


SECRET = "s3cret of +:"
CLIENTS = [  # as the real issuer knows them; it ignores the port of native ones
    {
        "client_id": "desk",
        "client_secret": SECRET,
        "redirect_uris": [PUBLIC + BACK],
        "post_logout_redirect_uris": [f"{PUBLIC}/pinocchio/login"],
    },
    {
        "client_id": "native",
        "token_endpoint_auth_method": "none",
        "application_type": "native",
        "redirect_uris": [f"http://127.0.0.1{BACK}"],
    },
]


@pytest.fixture(scope="module")
def issuers() -> Iterator[list[str]]:
    """Yield the addresses of node's oidc-provider.

    One issuer puts all claims into ID tokens, the other keeps them for userinfo.
    """
    node = shutil.which("node")
    assert node, "Node is not installed; these tests need version 20 or newer and npm"
    assert (NODE / "node_modules/oidc-provider").is_dir(), f"run npm ci in {NODE}, or scripts/test"
    process = subprocess.Popen(
        [node, "oidc_issuer.mjs", json.dumps(CLIENTS)],
        cwd=NODE,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture(scope="module")
def issuer(issuers: list[str]) -> str:
    return issuers[0]


def section(url: str, **changed: Any) -> dict[str, Any]:
    oidc = {"issuer": url, "client_id": "desk", "client_secret": SECRET, "groups": GROUPS}
    return {"token": TOKEN, "url": PUBLIC, "oidc": {**oidc, "title": "Acme", **changed}}


@pytest.fixture(scope="module")
def proxy(start_proxy: StartProxy, issuer: str) -> LiveProxy:
    return start_proxy(policy=TWO, has_desk=True, admin=section(issuer))


def begun(page: httpx.Client, wanted: str = "/") -> str:
    """Return the URL to which the desk sends a browser to log in."""
    answer = page.get(LOGIN, params={"next": wanted})
    assert answer.status_code == 303
    return answer.headers["location"]


def authenticated(url: str, account: str) -> str:
    """Return the URL to which the real issuer sends a browser after its login and consent."""
    with httpx.Client(trust_env=False, timeout=20) as agent:
        answer = agent.get(url)
        for _ in range(10):
            if answer.is_redirect:
                place = answer.url.join(answer.headers["location"])
                if place.path == BACK:
                    return str(place)
                answer = agent.get(place)
            elif 'name="login"' in answer.text:
                form = {"prompt": "login", "login": account, "password": "x"}
                answer = agent.post(answer.url, data=form)
            else:
                answer = agent.post(answer.url, data={"prompt": "consent"})
    raise AssertionError(answer.text)


def came_back(page: httpx.Client, url: str) -> httpx.Response:
    """Return the callback's response to a browser that another site redirected."""
    parts = urlsplit(url)
    headers = {"sec-fetch-site": "cross-site"}
    return page.get(f"{parts.path}?{parts.query}", headers=headers)


@contextmanager
def logged_in(proxy: LiveProxy, account: str) -> Iterator[httpx.Client]:
    with browser(proxy) as page:
        entered = came_back(page, authenticated(begun(page), account))
        assert (entered.status_code, entered.headers["location"]) == (303, "/")
        yield page


# With a real issuer


def test_people_come_as_their_groups_say(proxy: LiveProxy) -> None:
    """Groups make somebody an admin or a reviewer of some queues;
    a person in no such group is refused and gets no session.
    """
    with logged_in(proxy, "ann+admins+leads") as page:
        me = page.get(f"{API}/me").json()
        assert (me["name"], me["role"]) == ("ann", "admin")
        assert page.get("/metrics").status_code == 200
    id = held_id(proxy)
    for account, status in (("lea+leads+others", 200), ("joe+juniors", 404)):
        with logged_in(proxy, account) as page:
            assert page.get(f"{API}/me").json()["role"] == "reviewer"
            assert page.get(f"{API}/reviews/{id}").status_code == status
            assert page.get("/console/traffic").status_code == 403
    with capture_logs() as lines, browser(proxy) as page:
        refused = came_back(page, authenticated(begun(page), "eve+others"))
        assert (refused.status_code, "in no group" in refused.text) == (403, True)
        assert page.get(f"{API}/me").status_code == 401
    assert [each["event"] for each in lines if "login" in each["event"]] == ["login_refused"]


def test_the_session_is_the_desks_own(proxy: LiveProxy) -> None:
    """The login gives a strict cookie, leads to the wanted page and is logged.
    The logout ends the session, and offers to end the one at the issuer too.
    """
    with browser(proxy) as page, capture_logs() as lines:
        url = authenticated(begun(page, "/console/reviews?queue=seniors"), "sue+leads")
        attempt = page.cookies["pinocchio_session_login"]
        entered = came_back(page, url)
        assert entered.headers["location"] == "/console/reviews?queue=seniors"
        cookies = entered.headers.get_list("set-cookie")
        assert re.search("pinocchio_session=.*HttpOnly.*SameSite=strict", cookies[0])
        assert re.search('pinocchio_session_login="";.*Max-Age=0', cookies[1])
        [line] = [each for each in lines if each["event"] == "logged_in"]
        assert (line["reviewer"], line["role"]) == ("sue", "reviewer")
        page.cookies.set("pinocchio_session_login", attempt)
        again = came_back(page, url)
        assert (again.status_code, "used before" in again.text) == (403, True)
        csrf = page.get(f"{API}/me").json()["csrf"]
        left = page.post("/pinocchio/logout", data={"csrf": csrf}, follow_redirects=True)
        assert "Sign out at Acme too" in left.text
        assert "/session/end?client_id=desk" in left.text
        assert page.get(f"{API}/me").status_code == 401


def test_a_code_works_once(proxy: LiveProxy) -> None:
    """The issuer gives no second token for a code, also where the desk has forgotten it."""
    with browser(proxy) as page:
        first = authenticated(begun(page), "kim+leads")
        assert came_back(page, first).status_code == 303
        second = parse_qs(urlsplit(begun(page)).query)["state"][0]
        stolen = re.sub("state=[^&]+", f"state={second}", first)
        refused = came_back(page, stolen)
        assert (refused.status_code, "log in again" in refused.text) == (403, True)


def test_a_person_counts_once(proxy: LiveProxy) -> None:
    """A person who approved with a key cannot approve again
    after a login of the same name; another person can.
    """
    key, id = make_key(proxy, "reviewer", "Pat"), held_id(proxy)
    url, body = f"{API}/reviews/{id}/verdict", {"verdict": "approve"}
    first = proxy.desk.post(url, json=body, headers={"authorization": f"Bearer {key}"})
    assert first.json()["state"] == "open"
    with logged_in(proxy, "pat+leads") as page:
        again = page.post(url, json=body).json()
        assert (again["state"], len(again["approvals"]["given"])) == ("open", 1)
    with logged_in(proxy, "lea+leads") as page:
        assert page.post(url, json=body).json()["state"] == "released"


def test_new_issuer_keys_are_fetched(proxy: LiveProxy, issuer: str) -> None:
    """When the issuer replaces its keys, the desk fetches the new ones and logins go on."""
    with logged_in(proxy, "ann+admins"):
        httpx.post(f"{issuer}/rotate", trust_env=False).raise_for_status()
        time.sleep(3.1)  # its keys are not fetched more often
    with logged_in(proxy, "ann+admins") as page:
        assert page.get(f"{API}/me").json()["name"] == "ann"


def test_in_a_browser(start_proxy: StartProxy, issuers: list[str]) -> None:
    """Chromium goes from the login page to the issuer, on another site,
    and arrives at the wanted page although the session's cookie is strict.
    This client has no secret, and the groups are in userinfo alone.
    """
    admin = section(issuers[1], client_id="native", client_secret="") | {"url": None}
    with chromium() as chrome:
        proxy = start_proxy(policy=TWO, has_desk=True, admin=admin)
        page = chrome.new_context(base_url=desk_url(proxy)).new_page()
        page.set_default_timeout(20_000)
        page.goto("/console/reviews?queue=seniors")
        page.get_by_role("link", name="Sign in with Acme").click()
        page.locator("input[name=login]").fill("ann+admins")
        page.locator("input[name=password]").fill("x")
        page.locator("button[type=submit]").click()
        page.get_by_role("button", name="Continue").click()
        page.wait_for_url("**/console/reviews?queue=seniors")
        me = page.request.get(f"{API}/me").json()
        assert (me["name"], me["role"]) == ("ann", "admin")
        page.close()


# With one that lies


@dataclass
class LyingIssuer:
    """An issuer whose next ID token is what `lie` makes of the right claims."""

    key: RSAPrivateKey = field(default_factory=lambda: generate_private_key(65_537, 2_048))
    lie: Callable[[dict[str, Any], LyingIssuer], str] | None = None
    url: str = ""
    nonce: str = ""
    changed: dict[str, Any] = field(default_factory=dict)

    def signed(self, claims: dict[str, Any], key: Any = None, alg: str = "RS256") -> str:
        secret = None if alg == "none" else key or self.key
        return jwt.encode(claims, secret, alg, headers={"kid": "one"})

    def claims(self) -> dict[str, Any]:
        now = int(time.time())
        fixed = {"iss": self.url, "aud": "desk", "sub": "1", "iat": now, "exp": now + 60}
        who = {"preferred_username": "ann", "groups": ["admins"]}
        return {**fixed, **who, "nonce": self.nonce}

    def answer(self, path: str) -> dict[str, Any]:
        if path == "/token":
            make = self.lie or (lambda claims, self: self.signed(claims))
            return {"id_token": make(self.claims(), self), "access_token": "x"}
        if path == "/keys":
            key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
            return {"keys": [{**key, "kid": "one", "use": "sig"}]}
        places = {
            "authorization_endpoint": "/auth",
            "token_endpoint": "/token",
            "jwks_uri": "/keys",
        }
        found = {name: self.url + place for name, place in places.items()}
        return {"issuer": self.url, **found, **self.changed}


@pytest.fixture(scope="module")
def lying() -> Iterator[LyingIssuer]:
    issuer = LyingIssuer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if length := int(self.headers.get("content-length", 0)):
                self.rfile.read(length)
            body = json.dumps(issuer.answer(self.path)).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    issuer.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield issuer
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def lied_to(start_proxy: StartProxy, lying: LyingIssuer) -> LiveProxy:
    return start_proxy(policy=TWO, has_desk=True, admin=section(lying.url))


def entered(lied_to: LiveProxy, lying: LyingIssuer, query: str = "", **cookies: str) -> Any:
    """Try a login with a code; return the desk's answer.

    Checks that the session is open only if the answer is a redirect (303).
    """
    with browser(lied_to) as page:
        sent = parse_qs(urlsplit(begun(page)).query)
        lying.nonce = sent["nonce"][0]
        for name, value in cookies.items():
            page.cookies.set(name, value)
        parameters = query or f"?code=c&state={sent['state'][0]}"
        answer = page.get(BACK + parameters)
        is_in = page.get(f"{API}/me").status_code == 200
    assert is_in == (answer.status_code == 303)
    return answer


OTHER_KEY = generate_private_key(65_537, 2_048)
LIES: dict[str, Callable[[dict[str, Any], LyingIssuer], str]] = {
    "another nonce": lambda claims, its: its.signed({**claims, "nonce": "n"}),
    "no nonce": lambda claims, its: its.signed({**claims, "nonce": None}),
    "another audience": lambda claims, its: its.signed({**claims, "aud": "shop"}),
    "several audiences": lambda claims, its: its.signed({**claims, "aud": ["desk", "shop"]}),
    "another party": lambda claims, its: its.signed({**claims, "azp": "shop"}),
    "another issuer": lambda claims, its: its.signed({**claims, "iss": "https://evil.example"}),
    "expired": lambda claims, its: its.signed({**claims, "exp": claims["exp"] - 600}),
    "without an end": lambda claims, its: its.signed({k: claims[k] for k in claims if k != "exp"}),
    "made in an hour": lambda claims, its: its.signed({**claims, "iat": claims["iat"] + 3_600}),
    "another key": lambda claims, its: its.signed(claims, OTHER_KEY),
    "no signature": lambda claims, its: its.signed(claims, alg="none"),
    "the public secret": lambda claims, its: its.signed(claims, SECRET * 4, "HS256"),
    "no token": lambda claims, its: "x",
    "two parts": lambda claims, its: its.signed(claims).rpartition(".")[0],
    "a signature of other claims": lambda claims, its: ".".join(
        [*its.signed(claims).split(".")[:2], its.signed({**claims, "x": 1}).split(".")[2]]
    ),
    "no name": lambda claims, its: its.signed({**claims, "preferred_username": " "}),
    "a list as name": lambda claims, its: its.signed({**claims, "preferred_username": ["ann"]}),
    "groups in one word": lambda claims, its: its.signed({**claims, "groups": "admins,leads"}),
}


REASONS = {
    "another nonce": "another login",
    "no nonce": "another login",
    "another audience": "Audience",
    "several audiences": "another client",
    "another party": "another client",
    "another issuer": "Invalid issuer",
    "expired": "has expired",
    "without an end": "missing",
    "made in an hour": "not yet valid",
    "another key": "Signature verification failed",
    "no signature": "signed with &#39;none&#39;",
    "the public secret": "signed with &#39;HS256&#39;",
    "no token": "Not enough segments",
    "two parts": "Not enough segments",
    "a signature of other claims": "Signature verification failed",
    "no name": "no name",
    "a list as name": "no name",
    "groups in one word": "in no group",
}


def test_a_right_token_opens_the_desk(lied_to: LiveProxy, lying: LyingIssuer) -> None:
    """A right token opens the desk, also one for several audiences that names this client."""
    assert entered(lied_to, lying).status_code == 303
    lying.lie = lambda claims, own: own.signed({**claims, "aud": ["desk", "b"], "azp": "desk"})
    try:
        assert entered(lied_to, lying).status_code == 303
    finally:
        lying.lie = None


@pytest.mark.parametrize("lie", LIES)
def test_a_wrong_token_opens_nothing(lied_to: LiveProxy, lying: LyingIssuer, lie: str) -> None:
    """A token with one fault opens no session, and the answer is a page that says so."""
    lying.lie = LIES[lie]
    try:
        refused = entered(lied_to, lying)
    finally:
        lying.lie = None
    assert refused.status_code == 403
    assert REASONS[lie] in refused.text.partition('role="alert"')[2]


@pytest.mark.parametrize(
    ("query", "cookies"),
    [
        ("?code=c&state=guess", {}),
        ("?code=c", {}),
        ("?state=guess", {}),
        ("", {"pinocchio_session_login": "e30=.0"}),
        ("", {"pinocchio_session_login": "x"}),
        ("?error=access_denied&state=guess", {}),
    ],
)
def test_unsolicited_answers_are_refused(
    lied_to: LiveProxy, lying: LyingIssuer, query: str, cookies: dict[str, str]
) -> None:
    """An answer with another state, or with a cookie that the desk has not
    signed, is refused: another site could log people in as somebody else.
    """
    assert entered(lied_to, lying, query, **cookies).status_code == 403


def test_a_login_counts_once(lied_to: LiveProxy, lying: LyingIssuer) -> None:
    """The same answer with the same cookie opens
    nothing the second time, whatever the issuer says.
    """
    with browser(lied_to) as page:
        sent = parse_qs(urlsplit(begun(page)).query)
        lying.nonce = sent["nonce"][0]
        [cookie] = [each for each in page.cookies.jar if each.name.endswith("_login")]
        answer = f"?code=c&state={sent['state'][0]}"
        assert page.get(BACK + answer).status_code == 303
    with browser(lied_to) as thief:
        thief.cookies.set(cookie.name, cookie.value or "")
        refused = thief.get(BACK + answer)
        assert (refused.status_code, "was used before" in refused.text) == (403, True)
        assert thief.get(f"{API}/me").status_code != 200


def test_another_issuers_answer_is_refused(lied_to: LiveProxy, lying: LyingIssuer) -> None:
    with browser(lied_to) as page:
        state = parse_qs(urlsplit(begun(page)).query)["state"][0]
        query = {"code": "c", "state": state, "iss": "https://evil.example"}
        assert page.get(BACK, params=query).status_code == 403


@pytest.mark.parametrize("wanted", ["//evil.example", "https://evil.example", "/\\evil.example"])
def test_nobody_is_led_elsewhere(lied_to: LiveProxy, lying: LyingIssuer, wanted: str) -> None:
    with browser(lied_to) as page:
        sent = parse_qs(urlsplit(begun(page, wanted)).query)
        assert sent["redirect_uri"] == [PUBLIC + BACK]
        lying.nonce = sent["nonce"][0]
        answer = page.get(BACK, params={"code": "c", "state": sent["state"][0]})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")


def test_a_session_ends_after_its_hours(
    start_proxy: StartProxy, lying: LyingIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session ends after its configured hours, also where its browser keeps the cookie."""
    monkeypatch.setattr(single_sign_on, "SESSION_S", 1.0)
    admin = section(lying.url, title="Short")  # a proxy of its own
    proxy = start_proxy(policy=TWO, has_desk=True, admin=admin)
    with browser(proxy) as page:
        sent = parse_qs(urlsplit(begun(page)).query)
        lying.nonce = sent["nonce"][0]
        answer = page.get(BACK, params={"code": "c", "state": sent["state"][0]})
        secret = page.cookies["pinocchio_session"]
        assert "Max-Age=1;" in answer.headers["set-cookie"]
        time.sleep(1.1)
        page.cookies.set("pinocchio_session", secret)
        assert code_of(page.get(f"{API}/me")) == (401, "invalid_api_key")


# Configuration, and an issuer that is away


def test_a_desk_starts_without_its_issuer(start_proxy: StartProxy) -> None:
    """While the issuer is away a token still opens the desk; the login
    page says what is wrong, and the log does once for several people.
    """
    admin = section("http://127.0.0.1:9")
    proxy = start_proxy(policy=TWO, has_desk=True, admin=admin)
    with capture_logs() as lines, browser(proxy) as page:
        answers = [page.get(LOGIN) for _ in range(3)]
        assert [each.status_code for each in answers] == [502] * 3
        assert "cannot be reached" in answers[0].text
        assert page.post("/pinocchio/login", data={"token": TOKEN}).status_code == 303
    assert [each["event"] for each in lines].count("issuer_unusable") == 1


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("{client_id: a, groups: {a: {}}}", "admin.oidc.issuer: is missing"),
        ("{issuer: 'https://a.example', groups: {a: {}}}", "admin.oidc.client_id: is missing"),
        ("{issuer: 'https://a.example', client_id: a}", "admin.oidc.groups: is missing"),
        ("{issuer: 'http://a.example', client_id: a, groups: {a: {}}}", "over https://"),
        ("{issuer: a.example, client_id: a, groups: {a: {}}}", "an issuer is an address such as"),
        (
            "{issuer: 'https://a.example', client_id: a, groups: {a: {role: admin, queues: [b]}}}",
            "an admin sees all queues",
        ),
        (
            "{issuer: 'https://a.example', client_id: a, groups: {a: {queue: [b]}}}",
            "did you mean 'queues'?",
        ),
        (
            "{issuer: 'https://a.example', client_id: a, groups: {a: {}}, scopes: [email]}",
            "scopes must name openid",
        ),
    ],
)
def test_an_incomplete_block_is_refused(tmp_path: Path, lines: str, sentence: str) -> None:
    file = tmp_path / "proxy.yaml"
    file.write_text(f"admin:\n  oidc: {lines}\n")
    with pytest.raises(InvalidDocumentError, match=re.escape(sentence)):
        load_config(file)


def test_beyond_loopback_the_desks_address_is_needed() -> None:
    """Beyond loopback the desk's address must be configured, as `Host` cannot be trusted."""
    oidc = {"issuer": "https://a.example", "client_id": "a", "groups": {"a": {}}}
    admin = {"host": "0.0.0.0", "token": "x" * 32, "port": 0, "oidc": oidc}
    with pytest.raises(StartupError, match=r"set admin\.url"):
        bind_admin(AdminConfig.model_validate(admin))
    with pytest.raises(StartupError, match=r"admin\.url begins with"):
        bind_admin(AdminConfig.model_validate({**admin, "url": "desk.example"}))


def test_who_somebody_is() -> None:
    """Queues of several groups are combined, and a group without queues has all. `*` matches
    everybody, an email address counts once it is verified, and groups may be nested.
    """

    def seen(groups: dict[str, Any], claims: dict[str, Any], **changed: Any) -> Any:
        section = {"issuer": "https://a.example", "client_id": "a", "groups": groups, **changed}
        return visitor_of(OidcConfig.model_validate(section), claims)

    ann = {"preferred_username": " ann ", "groups": ["a", "b", 7]}
    both = seen({"a": {"queues": ["q"]}, "b": {"queues": ["r"]}}, ann)
    assert (both.name, both.queues, both.is_named) == ("ann", {"q", "r"}, True)
    assert seen({"a": {"queues": ["q"]}, "b": {}}, ann).queues is None
    assert seen({"*": {"queues": ["q"]}}, {"preferred_username": "b"}).queues == {"q"}
    deep = {"preferred_username": "c", "realm": {"roles": ["a"]}}
    assert seen({"a": {"role": "admin"}}, deep, groups_claim="realm.roles").is_admin
    mail = {"email": "a@a.example", "groups": ["a"]}
    with pytest.raises(LoginRefusedError, match="not verified"):
        seen({"a": {}}, mail, name_claim="email")
    assert (
        seen({"a": {}}, mail | {"email_verified": True}, name_claim="email").name == mail["email"]
    )


def test_the_documented_block_loads(tmp_path: Path) -> None:
    """The block of docs/single-sign-on.md is a valid configuration."""
    page = (ROOT / "docs" / "single-sign-on.md").read_text(encoding="utf-8")
    file = tmp_path / "proxy.yaml"
    file.write_text(page.split("```yaml\n")[1].split("```")[0])
    oidc = load_config(file, {}).admin.oidc
    assert oidc is not None
    assert oidc.groups["billing-leads"].queues == ("billing", "refunds")


def test_doctor_asks_the_issuer(tmp_path: Path, issuer: str, lying: LyingIssuer) -> None:
    """`doctor` checks that the issuer answers, has the configured name, and has keys."""

    def found(url: str) -> tuple[str, str]:
        file = tmp_path / "proxy.yaml"
        file.write_text(
            f"store: sqlite:///{tmp_path}/held.db\nupstreams: {{demo: {{demo: true}}}}\n"
            'models: [{match: "*", upstream: demo}]\n'
            f"admin: {{oidc: {{issuer: '{url}', client_id: desk, groups: {{a: {{}}}}}}}}\n"
        )
        findings = examine(file, "http://127.0.0.1:9", scores=False)
        [line] = [each for each in findings if each.about == "oidc"]
        return line.level, line.text

    assert found(issuer)[0] == "ok"
    level, text = found("http://127.0.0.1:9")
    assert (level, "cannot be reached" in text) == ("fail", True)
    level, text = found(f"{lying.url}/other")
    assert (level, "calls itself" in text) == ("fail", True)


async def test_a_slow_issuer_keeps_nobody_waiting_for_long(
    lying: LyingIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While eight logins wait for the issuer, a ninth gets an error after seconds."""
    monkeypatch.setattr(issuer_module, "TURN_S", 0.3)
    config = AdminConfig.model_validate(section(lying.url)).oidc
    assert config is not None
    issuer = Issuer(config)
    go_on = threading.Event()

    def slow(claims: dict[str, Any], own: LyingIssuer) -> str:
        go_on.wait(10)
        return own.signed(claims)

    lying.lie, lying.nonce = slow, "n"
    try:
        logins = [asyncio.create_task(issuer.claims("code", "v", "n", "back")) for _ in range(8)]
        await asyncio.sleep(0.2)
        with pytest.raises(IssuerError, match="is slow, and 8 logins wait for it: try again"):
            await issuer.claims("code", "v", "n", "back")
        go_on.set()
        found = await asyncio.gather(*logins)
        assert {each["preferred_username"] for each in found} == {"ann"}
        assert (await issuer.claims("code", "v", "n", "back"))["sub"] == "1"
    finally:
        lying.lie = None
        go_on.set()
        await issuer.aclose()
