"""An upstream that is the proxy itself is refused at the start, or found by the first request."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from proxy.config.sections import Config
from proxy.errors import UpstreamLoopError
from proxy.upstreams.loops import is_at, mark_of, pass_on
from tests.running.client_keys import bearer, make_key
from tests.running.live_proxy import LiveProxy, free_port, question, run_cli, until
from tests.servers.faulty_upstream import FaultyUpstream


class Door:
    """Another address of a server, as a load balancer has one; counts the connections."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.leads_to = 0
        self.connections = 0
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def _serve(self) -> None:
        while True:
            try:
                inner, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            outer = socket.create_connection(("127.0.0.1", self.leads_to))
            self._ends += [inner, outer]
            for one, other in ((inner, outer), (outer, inner)):
                threading.Thread(target=_pump, args=(one, other), daemon=True).start()

    def close(self) -> None:
        for each in (self._listening, *self._ends):
            each.close()


def _pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65_536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return


@contextmanager
def opened_door() -> Iterator[Door]:
    door = Door()
    try:
        yield door
    finally:
        door.close()


Start = Callable[..., LiveProxy]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Yield a function that starts a proxy in front of any upstream, each with its own store."""
    started: list[LiveProxy] = []

    def begin(upstream_url: str, **options: Any) -> LiveProxy:
        folder = tmp_path / f"proxy{len(started)}"
        folder.mkdir()
        started.append(LiveProxy(upstream_url, folder, **options))
        return started[-1]

    yield begin
    for proxy in started:
        proxy.stop()


@pytest.fixture
def looping(start: Start) -> Iterator[tuple[LiveProxy, Door]]:
    """Yield a proxy whose upstream is itself, by an address that it does not know as its own."""
    with opened_door() as door:
        proxy = start(door.base_url)
        door.leads_to = proxy.port
        yield proxy, door


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/chat/completions", question("p=0.9")),
        ("POST", "/v1/chat/completions", question("p=0.9", stream=True)),
        ("POST", "/v1/completions", {"model": "ok", "prompt": "p=0.9"}),
        ("POST", "/v1/responses", {"model": "ok", "input": "p=0.9"}),
        ("POST", "/v1/embeddings", {"model": "ok", "input": "p=0.9"}),
        ("GET", "/v1/models", None),
    ],
)
def test_a_request_that_comes_back_is_refused_on_the_first_round(
    looping: tuple[LiveProxy, Door], method: str, path: str, body: Any
) -> None:
    """A request that comes back is refused on the first round, and the client learns why."""
    proxy, door = looping
    reply = proxy.http.request(method, path, json=body)
    assert reply.status_code == 508
    error = reply.json()["error"]
    assert error["code"] == "upstream_is_this_proxy"
    assert "base_url" in error["message"]
    assert reply.headers["x-should-retry"] == "false"
    assert door.connections == 1


def test_a_loop_is_found_where_keys_are_required(start: Start) -> None:
    """A request that comes back with upstream's key is refused as a loop, not for its key."""
    with opened_door() as door:
        proxy = start(door.base_url, keys="required", upstream={"api_key": "sk-upstream"})
        door.leads_to = proxy.port
        secret, _ = make_key(proxy.store_path)
        until(lambda: proxy.ask(headers=bearer(secret)).status_code == 508)


def test_a_circle_of_two_proxies_is_found(start: Start) -> None:
    """Where two proxies are each other's upstream, the request comes back once and is refused."""
    with opened_door() as there, opened_door() as back:
        one, other = start(there.base_url), start(back.base_url)
        there.leads_to, back.leads_to = other.port, one.port
        reply = one.ask()
        assert (reply.status_code, reply.json()["error"]["code"]) == (508, "upstream_is_this_proxy")
        assert (there.connections, back.connections) == (1, 1)


def test_a_loop_through_litellm_is_found(start: Start) -> None:
    """A translated request carries the marks too, so that its loop is found."""
    with opened_door() as door:
        proxy = start(door.base_url, upstream={"via": "litellm"})
        door.leads_to = proxy.port
        reply = proxy.ask()
        assert reply.status_code == 508
        assert door.connections == 1


def test_proxies_in_a_row_are_no_loop(start: Start, upstream: FaultyUpstream) -> None:
    """A proxy before another one is no loop: each adds its mark, and upstream answers."""
    company = start(upstream.base_url)
    team = start(company.base_url)
    assert team.ask().status_code == 200
    marks = dict(upstream.last.headers)["x-pinocchio-via"]
    assert marks == ",".join(mark_of(each.config).decode() for each in (team, company))


def test_what_a_client_writes_is_no_mark() -> None:
    """Only marks are forwarded, and nothing else that a client writes into the field."""
    scope: dict[str, Any] = {
        "headers": [(b"x-pinocchio-via", b"me, 0123456789abcdef"), (b"a", b"b")]
    }
    pass_on(scope, b"f" * 16)
    assert scope["headers"] == [
        (b"a", b"b"),
        (b"x-pinocchio-via", b"0123456789abcdef," + b"f" * 16),
    ]
    with pytest.raises(UpstreamLoopError):
        pass_on({"headers": [(b"x-pinocchio-via", b",".join([b"a" * 16] * 16))]}, b"f" * 16)


def test_a_mark_is_that_of_a_deployment() -> None:
    """The same store and upstreams give the same mark in every process, and others another."""
    one = Config(store="postgresql://a:b@host/db")
    assert mark_of(one) == mark_of(Config(store="postgresql://a:c@host/db"))
    assert mark_of(one) != mark_of(Config(store="postgresql://a:b@host/other"))
    others = Config.model_validate({"upstreams": {"openai": {"base_url": "http://b/v1"}}})
    assert mark_of(Config()) != mark_of(others)


@pytest.mark.parametrize(
    ("base_url", "host", "port", "is_it"),
    [
        ("http://127.0.0.1:8000/v1", "127.0.0.1", 8000, True),
        ("http://localhost:8000", "127.0.0.1", 8000, True),
        ("http://0.0.0.0:8000/v1", "127.0.0.1", 8000, True),
        ("http://127.0.0.1:8000/v1", "0.0.0.0", 8000, True),
        ("http://127.0.0.9:8000/v1", "0.0.0.0", 8000, True),
        ("http://127.0.0.1/v1", "127.0.0.1", 80, True),
        ("https://127.0.0.1/v1", "127.0.0.1", 443, True),
        ("http://127.0.0.1:8001/v1", "127.0.0.1", 8000, False),
        ("http://127.0.0.9:8000/v1", "127.0.0.1", 8000, False),
        ("http://192.0.2.1:8000/v1", "0.0.0.0", 8000, False),
        ("http://no-such-host.invalid:8000/v1", "127.0.0.1", 8000, False),
        ("http://[::1]:8000/v1", "::1", 8000, True),
        ("http://127.0.0.1:99999/v1", "127.0.0.1", 8000, False),
    ],
)
def test_where_an_upstream_is(base_url: str, host: str, port: int, is_it: bool) -> None:
    """An address is the proxy's own if a connection to it would arrive at the proxy."""
    assert is_at(base_url, host, port) is is_it


def test_the_start_refuses_the_clients_variable(tmp_path: Path) -> None:
    """OPENAI_BASE_URL that names the proxy itself, set for a client, is refused at the start."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/v1"
    done = run_cli("serve", "--port", str(port), cwd=tmp_path, OPENAI_BASE_URL=url)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"upstream 'openai' is this proxy itself ({url})" in done.stderr
    assert "unset OPENAI_BASE_URL" in done.stderr


def test_the_variable_is_named_where_a_file_refers_to_it(tmp_path: Path) -> None:
    """The variable is named where a file refers to it, as the project's own proxy.yaml does."""
    port = free_port()
    path = tmp_path / "proxy.yaml"
    path.write_text("upstreams:\n  openai: {base_url: '${OPENAI_BASE_URL:-http://x.example/v1}'}\n")
    path.write_text(path.read_text() + 'models: [{match: "*", upstream: openai}]\n')
    url = f"http://localhost:{port}/v1"
    options = ("--config", str(path), "--port", str(port))
    done = run_cli("serve", *options, cwd=tmp_path, OPENAI_BASE_URL=url)
    assert done.returncode == 2
    assert "unset OPENAI_BASE_URL" in done.stderr


def test_the_start_names_the_line(tmp_path: Path) -> None:
    """An upstream that is the proxy itself is refused with file and line."""
    port = free_port()
    path = tmp_path / "proxy.yaml"
    path.write_text(
        f"upstreams:\n  mine:\n    base_url: http://localhost:{port}/v1\n"
        'models: [{match: "*", upstream: mine}]\n'
        f"calibrator: {{checkpoint: none}}\nstore: sqlite:///{tmp_path}/held.db\n"
    )
    done = run_cli("serve", "--config", str(path), "--port", str(port))
    assert done.returncode == 2
    assert f"{path}:3: upstreams.mine.base_url: upstream 'mine' is this proxy" in done.stderr


def test_the_greeting_says_where_requests_go(tmp_path: Path) -> None:
    """The greeting lists each upstream with its address, its models and whose key it gets."""
    from proxy.config.setup import load_setup
    from proxy.startup.startup import greeting

    path = tmp_path / "proxy.yaml"
    path.write_text(
        "upstreams:\n"
        "  one: {base_url: 'http://one.example/v1', api_key: '${ONES_KEY:-}'}\n"
        "  two: {base_url: 'http://two.example/v1', api_key: sk-secret}\n"
        "  three: {base_url: '${THREE:-http://three.example/v1}'}\n"
        "  all: {litellm: auto}\n"
        "  demo: {demo: true}\n"
        "models: [{match: 'a-*', upstream: one}, {match: b, upstream: two},\n"
        "         {match: c, upstream: one}, {match: demo, upstream: demo}]\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONES_KEY", "sk-of-one")
        patch.setenv("THREE", "http://elsewhere.example/v1")
        lines = greeting(load_setup(path), "http://127.0.0.1:8000/v1")
        patch.delenv("ONES_KEY")
        without_key = greeting(load_setup(path), "http://127.0.0.1:8000/v1")
    output = "\n".join(lines)
    assert "upstream one: http://one.example/v1, key from ONES_KEY; models: a-*, c" in output
    assert f"upstream two: http://two.example/v1, key from {path}; models: b" in output
    assert (
        "upstream three: http://elsewhere.example/v1 (from THREE), each client's own key" in output
    )
    assert "upstream all: where litellm finds it, key that litellm finds in the environ" in output
    assert "upstream demo: canned answers, no network; models: demo" in output
    assert "sk-" not in output
    assert "each client's own key (ONES_KEY is not set); models: a-*, c" in "\n".join(without_key)


def test_the_built_in_upstream_is_listed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a configuration the greeting names the variables of OpenAI's clients."""
    from proxy.config.setup import load_setup
    from proxy.startup.startup import greeting

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    output = "\n".join(greeting(load_setup(None), "http://127.0.0.1:8000/v1"))
    assert "upstream openai: https://api.openai.com/v1, each client's own key" in output
    assert "(OPENAI_API_KEY is not set); models: *" in output
    monkeypatch.setenv("OPENAI_BASE_URL", "http://model.example/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-x")
    output = "\n".join(greeting(load_setup(None), "http://127.0.0.1:8000/v1"))
    assert "http://model.example/v1 (from OPENAI_BASE_URL), key from OPENAI_API_KEY" in output


def test_a_change_to_itself_is_refused(tmp_path: Path) -> None:
    """A running proxy keeps its configuration where the new one would send requests to itself."""
    from proxy.errors import StartupError
    from proxy.startup.startup import reload_setup

    path = tmp_path / "proxy.yaml"
    path.write_text(
        "upstreams: {me: {base_url: 'http://127.0.0.1:8123/v1'}}\n"
        "models: [{match: '*', upstream: me}]\ncalibrator: {checkpoint: none}\n"
        f"store: sqlite:///{tmp_path}/held.db\n"
    )
    assert reload_setup(path, None, "127.0.0.1", ("127.0.0.1", 8124)).config.upstreams
    with pytest.raises(StartupError, match="is this proxy itself"):
        reload_setup(path, None, "127.0.0.1", ("127.0.0.1", 8123))


def test_what_comes_back_over_http_names_the_proxy(looping: tuple[LiveProxy, Door]) -> None:
    """Anthropic's clients get the same sentence in their own envelope."""
    proxy, _ = looping
    body = {"model": "ok", "max_tokens": 5, "messages": [{"role": "user", "content": "p=0.9"}]}
    reply = httpx.post(f"{proxy.url}/v1/messages/count_tokens", json=body)
    assert reply.status_code == 508
    assert "passed this proxy before" in reply.text
