"""Client keys: a good one lets its client in and identifies it, and never goes upstream."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import AuthenticationError, NotFoundError, OpenAI
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

from proxy.gate.secret_keys import BROWSER_KEY, PREFIX
from proxy.store.database.database import open_engine
from tests.conftest import StartProxy
from tests.running.client_keys import (
    NOTICED_WITHIN_S,
    OWN_KEY,
    ask_with,
    bearer,
    make_key,
    revoke_key,
    wait_until_known,
)
from tests.running.live_proxy import LiveProxy, error_of, question, run_cli, until
from tests.servers.faulty_upstream import FaultyUpstream
from tests.servers.realtime_upstream import RealtimeUpstream

HOLD = "{version: 1, name: desk, default: {hold: {queue: seniors}}}"
OPTIONS: dict[str, Any] = {"keys": "required", "upstream": {"api_key": OWN_KEY}}
GUARDED = [
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("POST", "/v1/responses"),
    ("GET", "/v1/chat/completions/chatcmpl-held-1"),
    ("GET", "/v1/responses/resp_1"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/demo"),
    ("POST", "/v1/embeddings"),
    ("DELETE", "/v1/files/file-1"),
    ("GET", "/pinocchio/v1/results/req_1"),
    ("GET", "/nowhere"),
]


@pytest.fixture
def proxy(start_proxy: StartProxy) -> LiveProxy:
    """Start a proxy that requires keys, in front of an upstream with a key of its own."""
    return start_proxy(**OPTIONS)


@pytest.fixture
def secret(proxy: LiveProxy) -> str:
    """Return the secret of a key that the proxy knows."""
    made, _ = make_key(proxy.store_path, name="bot")
    wait_until_known(proxy.base_url, made)
    return made


def refused(response: httpx.Response) -> str:
    """Return the message of the refusal; fail unless it is a 401 of ours."""
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    error = error_of(response)
    assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_api_key")
    return str(error["message"])


def post(proxy: LiveProxy, headers: list[tuple[str, str | bytes]], query: str = "") -> Any:
    """Post a question with exactly these header fields."""
    url = f"{proxy.base_url}/chat/completions{query}"
    return httpx.post(url, json=question("p=0.9"), headers=headers, timeout=20, trust_env=False)


# Who is let in


@pytest.mark.parametrize(
    "field",
    ["Authorization: Bearer {}", "authorization: bearer   {}", "x-api-key: {}", "api-key: {}"],
)
def test_a_key_opens_wherever_clients_put_it(
    proxy: LiveProxy, secret: str, upstream: FaultyUpstream, field: str
) -> None:
    """Wherever a client puts its key, upstream gets only its own key."""
    name, value = field.format(secret).split(": ")
    response = post(proxy, [(name, value)])
    assert response.status_code == 200
    assert upstream.last.header("authorization") == f"Bearer {OWN_KEY}"
    assert not {"x-api-key", "api-key"} & {name for name, _ in upstream.last.headers}
    assert PREFIX not in str(upstream.last.headers)


def test_the_official_client_needs_its_key_only(
    proxy: LiveProxy, secret: str, upstream: FaultyUpstream
) -> None:
    """With its key the official client gets answers and streams; with another, a typed error."""
    client = OpenAI(base_url=proxy.base_url, api_key=secret, max_retries=0)
    assert client.chat.completions.create(**question("p=0.9")).choices
    assert list(client.chat.completions.create(**question("p=0.9", stream=True)))
    upstream.forget()
    with pytest.raises(AuthenticationError) as caught:
        client.with_options(api_key="sk-other").chat.completions.create(**question("p=0.9"))
    assert caught.value.code == "invalid_api_key"
    assert "invalid API key" in str(caught.value)
    assert upstream.requests == []


@pytest.mark.parametrize(("method", "path"), GUARDED)
def test_nothing_is_answered_without_a_key(
    proxy: LiveProxy, upstream: FaultyUpstream, method: str, path: str
) -> None:
    """Every path needs a key, and requests without one do not reach upstream."""
    assert "Bearer" in refused(httpx.request(method, proxy.url + path, trust_env=False))
    assert upstream.requests == []


def test_probes_need_no_key(proxy: LiveProxy) -> None:
    """Probes need no key, so that whoever runs the proxy can check it."""
    for path in ("/livez", "/readyz"):
        assert httpx.get(proxy.url + path, trust_env=False).status_code == 200


def test_messages_are_refused_in_anthropics_words(proxy: LiveProxy) -> None:
    """On `/v1/messages` a refusal has Anthropic's envelope."""
    response = httpx.post(f"{proxy.base_url}/messages", json={"model": "ok"}, trust_env=False)
    assert response.status_code == 401
    body = response.json()
    assert (body["type"], body["error"]["type"]) == ("error", "authentication_error")
    assert body["error"]["code"] == "invalid_api_key"


GOOD = "GOOD"  # replaced by a good key


@pytest.mark.parametrize(
    ("headers", "query"),
    [
        ([("authorization", "Bearer")], ""),
        ([("authorization", "Bearer sk-other")], ""),
        ([("authorization", f"Bearer {PREFIX}{'0' * 64}")], ""),
        ([("authorization", GOOD)], ""),
        ([("authorization", f"Basic {GOOD}")], ""),
        ([("authorization", f"Bearer {GOOD}x")], ""),
        ([("authorization", f"Bearer {GOOD.upper()} ,")], ""),
        ([("authorization", b"Bearer \xc3\xa9\xff\xf0\x9f\x8d\x8b")], ""),
        ([("authorization", "Bearer " + "k" * 50_000)], ""),
        ([("x-api-key", "")], ""),
        ([("x-openai-key", "x")], ""),
        ([], f"?api_key={GOOD}"),
        ([("authorization", f"Bearer {GOOD}"), ("authorization", "Bearer sk-other")], ""),
        ([("authorization", "Bearer sk-other"), ("authorization", f"Bearer {GOOD}")], ""),
        ([("authorization", f"Bearer {GOOD}"), ("x-api-key", "sk-other")], ""),
    ],
    ids=str,
)
def test_what_is_no_good_key_is_refused(
    proxy: LiveProxy,
    secret: str,
    upstream: FaultyUpstream,
    headers: list[tuple[str, str | bytes]],
    query: str,
) -> None:
    """No key, half a key, another scheme, several keys or one in the query are refused."""
    fields = [(n, v.replace(GOOD, secret) if isinstance(v, str) else v) for n, v in headers]
    message = refused(post(proxy, fields, query.replace(GOOD, secret)))
    assert secret not in message
    assert "sk-other" not in message
    assert upstream.requests == []


@pytest.mark.parametrize(("size", "status"), [(2**15, 401), (2**20, 431)])
def test_a_huge_key_is_refused(
    proxy: LiveProxy, upstream: FaultyUpstream, size: int, status: int
) -> None:
    """A huge key is neither hashed nor quoted, and does the proxy no harm."""
    headers = {"authorization": "Bearer " + "k" * size}
    url = f"{proxy.base_url}/chat/completions"
    response = httpx.post(url, json={}, headers=headers, timeout=20, trust_env=False)
    assert response.status_code == status
    assert len(response.content) < 1_000
    assert upstream.requests == []


def test_the_same_key_in_several_fields_is_one(proxy: LiveProxy, secret: str) -> None:
    """A client with the same key in `Authorization` and `x-api-key` is let in."""
    fields: list[tuple[str, str | bytes]] = [(*bearer(secret).items(),)[0], ("x-api-key", secret)]
    assert post(proxy, fields).status_code == 200


@pytest.mark.parametrize(
    ("headers", "query"),
    [([("cookie", "k=GOOD")], ""), ([("x-goog-api-key", GOOD)], ""), ([], f"?key={GOOD}")],
    ids=str,
)
def test_a_key_in_another_place_does_not_go_upstream(
    proxy: LiveProxy,
    secret: str,
    upstream: FaultyUpstream,
    headers: list[tuple[str, str]],
    query: str,
) -> None:
    """A key in a place that would be sent upstream is refused, with the right place named."""
    fields: list[tuple[str, str | bytes]] = [(n, v.replace(GOOD, secret)) for n, v in headers]
    response = post(proxy, [*fields, ("x-api-key", secret)], query.replace(GOOD, secret))
    assert response.status_code == 400
    assert error_of(response)["code"] == "misplaced_api_key"
    assert upstream.requests == []


@pytest.mark.parametrize(("is_in_field", "status"), [(True, 400), (False, 401)])
def test_a_key_in_the_path_goes_nowhere(
    proxy: LiveProxy,
    secret: str,
    upstream: FaultyUpstream,
    capsys: pytest.CaptureFixture[str],
    is_in_field: bool,
    status: int,
) -> None:
    """A key in the path reaches neither upstream nor the log line of its refusal."""
    capsys.readouterr()
    headers = bearer(secret) if is_in_field else {}
    url = f"{proxy.base_url}/files/{secret}"
    response = httpx.get(url, headers=headers, trust_env=False)
    assert response.status_code == status
    assert secret not in response.text
    assert upstream.requests == []
    until(lambda: f"path=/v1/files/{PREFIX}..." in capsys.readouterr().out)


def test_any_host_is_answered_for_a_key(proxy: LiveProxy, secret: str) -> None:
    """With a key any host is answered, as `Host` is checked only while the proxy is open."""
    assert ask_with(proxy.base_url, secret, host="proxy.example").status_code == 200


# Made and revoked while the proxy runs


def test_a_revoked_key_is_refused_without_a_restart(proxy: LiveProxy) -> None:
    """A new key opens, and is refused once it is revoked, both within about a second."""
    secret, key = make_key(proxy.store_path)
    wait_until_known(proxy.base_url, secret)
    revoke_key(proxy.store_path, key.id)
    revoked_at = time.perf_counter()
    until(lambda: ask_with(proxy.base_url, secret).status_code == 401, NOTICED_WITHIN_S)
    print(f"noticed after {time.perf_counter() - revoked_at:.2f} s")
    assert refused(ask_with(proxy.base_url, secret)) == f"the client key {key.id} was revoked"


def test_the_record_says_who_still_uses_a_revoked_key(proxy: LiveProxy) -> None:
    """The record has the use of a revoked key, so that its owner can be found."""
    secret, key = make_key(proxy.store_path, name="old", revoked_at=time.time())
    until(lambda: "revoked" in refused(ask_with(proxy.base_url, secret)), NOTICED_WITHIN_S)
    ask_with(proxy.base_url, "sk-nobodys")

    def refusals() -> list[Any]:
        with closing(sqlite3.connect(proxy.store_path)) as database:
            query = "SELECT DISTINCT key_hash, key FROM exchanges WHERE status = 401"
            return database.execute(query).fetchall()

    until(lambda: (key.id, "old") in refusals())
    assert all(id.startswith("key_") for id, _ in refusals())


def test_a_key_expires_by_itself(proxy: LiveProxy) -> None:
    """A key opens until its time is over; then it is refused with that reason."""
    secret, key = make_key(proxy.store_path, expires_at=time.time() + 4)
    wait_until_known(proxy.base_url, secret)
    until(lambda: ask_with(proxy.base_url, secret).status_code == 401, NOTICED_WITHIN_S)
    assert refused(ask_with(proxy.base_url, secret)) == f"the client key {key.id} has expired"


# What a key is known by


def test_only_the_key_that_asked_may_fetch(start_proxy: StartProxy) -> None:
    """A held reply and a stream's result exist for the key that asked, and for no other."""
    proxy = start_proxy(policy=HOLD, **OPTIONS)
    (mine, _), (other, _) = make_key(proxy.store_path), make_key(proxy.store_path)
    wait_until_known(proxy.base_url, mine)
    wait_until_known(proxy.base_url, other)
    client = OpenAI(base_url=proxy.base_url, api_key=mine, max_retries=0)
    id = client.chat.completions.create(**question("p=0.9")).id
    assert client.chat.completions.retrieve(id).id == id
    with pytest.raises(NotFoundError):
        client.with_options(api_key=other).chat.completions.retrieve(id)


def test_results_require_the_key_that_asked(proxy: LiveProxy, secret: str) -> None:
    """A stream's outcome is given neither to another key nor without one."""
    other, _ = make_key(proxy.store_path)
    wait_until_known(proxy.base_url, other)
    body = question("p=0.9", stream=True)
    url = f"{proxy.base_url}/chat/completions"
    id = httpx.post(url, json=body, headers=bearer(secret)).headers["x-pinocchio-request-id"]
    result = f"{proxy.url}/pinocchio/v1/results/{id}"
    assert httpx.get(result, headers=bearer(secret)).json()["confidence"] == 0.9
    assert httpx.get(result, headers=bearer(other)).status_code == 404
    refused(httpx.get(result))


def test_the_record_says_which_key_asked(proxy: LiveProxy) -> None:
    """The record has id and name of the key, for answers and refusals, and no secret."""
    secret, key = make_key(proxy.store_path, name="nightly", requests_per_minute=1)
    until(lambda: ask_with(proxy.base_url, secret).status_code == 200, NOTICED_WITHIN_S)
    assert ask_with(proxy.base_url, secret).status_code == 429

    def rows() -> list[Any]:
        with closing(sqlite3.connect(proxy.store_path)) as database:
            query = "SELECT status, error, key, team, generation FROM exchanges WHERE key_hash = ?"
            return database.execute(query, (key.id,)).fetchall()

    until(lambda: len(rows()) == 2)
    assert rows() == [
        (200, None, "nightly", None, 1),
        (429, "rate_limit_exceeded", "nightly", None, 1),
    ]
    files = [path.read_bytes() for path in proxy.store_path.parent.iterdir()]
    assert not any(secret.encode() in content for content in files)


# WebSockets


@pytest.fixture
def realtime(tmp_path: Path) -> Iterator[tuple[LiveProxy, RealtimeUpstream, str]]:
    with RealtimeUpstream() as upstream:
        proxy = LiveProxy(upstream.base_url, tmp_path, **OPTIONS)
        secret, _ = make_key(proxy.store_path)
        wait_until_known(proxy.base_url, secret)
        yield proxy, upstream, secret
        proxy.stop()


async def test_websockets_need_a_key_too(realtime: tuple[LiveProxy, RealtimeUpstream, str]) -> None:
    """A handshake without a key is refused in HTTP; with one, upstream gets only its own key."""
    proxy, upstream, secret = realtime
    url = f"ws://127.0.0.1:{proxy.port}/v1/realtime?model=echo"
    upstream.forget()
    with pytest.raises(InvalidStatus) as caught:
        await connect(url, proxy=None)
    assert caught.value.response.status_code == 401
    assert json.loads(caught.value.response.body)["error"]["code"] == "invalid_api_key"

    as_browser = [Subprotocol("realtime"), Subprotocol(BROWSER_KEY + secret)]
    ways: list[dict[str, Any]] = [
        {"additional_headers": bearer(secret)},
        {"subprotocols": as_browser},
    ]
    for way in ways:
        async with connect(url, proxy=None, **way) as socket:
            await socket.send("hi")
            assert await socket.recv() == "hi"
        assert upstream.last.all("authorization") == [f"Bearer {OWN_KEY}"]
        assert PREFIX not in str((upstream.last.target, upstream.last.headers))


# The command line


@pytest.fixture
def config(tmp_path: Path) -> Callable[..., str]:
    """Return a function that writes a proxy.yaml with a team and returns its path."""

    def write(text: str = "keys: required\nteams: {support: {policy: helpdesk}}\n") -> str:
        path = tmp_path / "proxy.yaml"
        upstreams = "upstreams: {demo: {demo: true}}\nmodels: [{match: '*', upstream: demo}]\n"
        calibrator = "calibrator: {checkpoint: 'fake:0.5'}\n"
        path.write_text(f"{text}{upstreams}{calibrator}store: sqlite:///{tmp_path}/held.db\n")
        return str(path)

    return write


def test_a_broken_policy_keeps_no_key_from_being_revoked(
    config: Callable[..., str], tmp_path: Path
) -> None:
    """With a broken policy, keys can be listed and revoked and reviews decided on."""
    path = config("keys: required\npolicies: own.yaml\n")
    own = tmp_path / "own.yaml"
    own.write_text("{version: 1, name: own, default: deliver}")
    assert run_cli("keys", "create", "--config", path).returncode == 0
    own.write_text("x: [")
    assert "own.yaml:1" in run_cli("keys", "create", "--config", path).stderr
    [line] = run_cli("keys", "list", "--config", path, "--json").stdout.splitlines()
    assert run_cli("keys", "revoke", json.loads(line)["id"], "--config", path).returncode == 0
    listed = run_cli("reviews", "list", "--config", path)
    assert (listed.returncode, listed.stdout, listed.stderr) == (0, "", "no reply is open\n")
    labelled = run_cli("label", "req_1", "wrong", "--config", path)
    assert "there is no record of req_1" in labelled.stderr


def test_a_key_is_made_listed_and_revoked(config: Callable[..., str], tmp_path: Path) -> None:
    """A new key is printed once and stored as a hash; the list has all except the secret."""
    path = config()
    options = ["--team", "support", "--name", "bot", "--requests-per-minute", "60"]
    made = run_cli("keys", "create", "--config", path, *options, "--expires", "90d")
    assert (made.returncode, made.stderr.count("\n")) == (0, 1)
    secret = made.stdout.strip()
    assert re.fullmatch(f"{PREFIX}[0-9a-f]{{64}}", secret)
    assert secret.encode() not in (tmp_path / "held.db").read_bytes()

    [line] = run_cli("keys", "list", "--config", path, "--json").stdout.splitlines()
    facts = json.loads(line)
    assert (facts["state"], facts["team"], facts["name"]) == ("active", "support", "bot")
    assert facts["expires_at"] - facts["created_at"] == pytest.approx(90 * 86_400)
    assert secret not in line
    assert "digest" not in line

    assert run_cli("keys", "revoke", facts["id"], "--config", path).returncode == 0
    listed = run_cli("keys", "list", "--config", path).stdout
    assert listed.startswith(f"{facts['id']}  revoked ")
    assert "team=support" in listed
    again = run_cli("keys", "revoke", facts["id"], "--config", path)
    assert again.returncode == 1
    assert again.stderr.startswith(f"{facts['id']} is revoked already\n")

    unknown = run_cli("keys", "revoke", "key_x", "--config", path)
    assert (unknown.returncode, "there is no key key_x" in unknown.stderr) == (1, True)


def test_without_a_store_only_a_new_key_makes_one(
    config: Callable[..., str], tmp_path: Path
) -> None:
    """Only making a key makes a store, so that a wrong folder does not look like an empty one."""
    path = config()
    for arguments in (["list"], ["revoke", "key_x"]):
        done = run_cli("keys", *arguments, "--config", path)
        assert (done.returncode, done.stdout) == (8, "")
        assert "held.db does not exist" in done.stderr
        assert not (tmp_path / "held.db").exists()
    open_engine(f"sqlite:///{tmp_path}/held.db").dispose()
    listed = run_cli("keys", "list", "--config", path)
    assert (listed.returncode, listed.stdout, listed.stderr) == (0, "", "there is no key\n")
    (tmp_path / "held.db").unlink()
    assert run_cli("keys", "create", "--config", path).returncode == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--team", "suport"], "there is no team 'suport'; did you mean 'support'?"),
        (["--policy", "helpdsk"], "there is no pack of this name"),
        (["--name", "a b"], "--name is at most 64 of"),
        (["--name", "key_1"], "begins with no 'key_'"),
        (["--attach", "all"], "--attach must be one of both, headers, body, none, not 'all'"),
        (["--expires", "soon"], "--expires must be a duration such as 30m, 12h, 90d or 52w"),
    ],
)
def test_a_key_that_could_not_be_served_is_not_made(
    config: Callable[..., str], options: list[str], message: str
) -> None:
    """A mistake gives one sentence and exit status 2, and no key is stored."""
    path = config()
    done = run_cli("keys", "create", "--config", path, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert run_cli("keys", "list", "--config", path).stdout == ""


def test_a_key_whose_team_is_gone_stops_the_start(
    config: Callable[..., str], tmp_path: Path
) -> None:
    """A key whose team is gone stops the start with what to do; revoking it helps."""
    _, key = make_key(tmp_path / "held.db", team="gone")
    for command in (("serve", "--port", "0"), ("check",)):
        done = run_cli(*command, "--config", config())
        assert done.returncode == 2
        assert f"key {key.id}: there is no team 'gone'; known here: support" in done.stderr
        assert "pinocchio keys revoke ID" in done.stderr


def test_check_names_the_policy_of_each_team(config: Callable[..., str]) -> None:
    """`check` checks the policy of each team that the configuration names."""
    done = run_cli("check", "--config", config())
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^team support: policy helpdesk@\w{8}$", done.stdout, re.MULTILINE)
    text = "keys: required\nteams: {support: {policy: helpdsk}}\n"
    broken = run_cli("check", "--config", config(text))
    assert (broken.returncode, "did you mean 'helpdesk'?" in broken.stderr) == (2, True)


def test_listening_beyond_loopback_takes_client_keys(config: Callable[..., str]) -> None:
    """Listening beyond loopback without client keys is refused, with how to make some."""
    upstream = "upstreams: {a: {base_url: 'http://127.0.0.1:1', api_key: x}}\n"
    path = Path(config(""))
    text = path.read_text().replace("upstreams: {demo: {demo: true}}\n", upstream)
    path.write_text(text.replace("upstream: demo", "upstream: a"))
    done = run_cli("serve", "--port", "0", "--host", "0.0.0.0", "--config", str(path))
    assert done.returncode == 7
    assert "'keys: required' in proxy.yaml, and `pinocchio keys create`" in done.stderr
