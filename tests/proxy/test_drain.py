"""A proxy that is asked to stop: nobody loses a reply, a hold or a record."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import termios
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.running.live_proxy import ProxyProcess, environment, members_in, question, until
from tests.servers.faulty_upstream import FaultyUpstream

TOKEN = "an-admin-token-that-nobody-guesses"
CONFIG = """
upstreams: {{any: {{base_url: "{url}", api_key: sk-x}}}}
models: [{{match: "*", upstream: any}}]
calibrator: {{checkpoint: "fake:0.7"}}
policies: {policy}
store: sqlite:///{folder}/store.db
limits: {{drain_s: {drain_s}, grace_s: {grace_s}}}
admin: {{port: 0, token: {token}}}
"""
HOLD = "version: 1\nname: p\nrules: []\ndefault: {hold: {queue: q, reply: wait, wait: 60s}}\n"
CLIENTS = 8


def serving(
    folder: Path, upstream: FaultyUpstream, drain_s: float = 0, grace_s: int = 10, policy: str = ""
) -> ProxyProcess:
    folder.mkdir(exist_ok=True)
    (folder / "policy.yaml").write_text(policy)
    config = CONFIG.format(
        url=upstream.base_url,
        policy="policy.yaml" if policy else "observe",
        folder=folder,
        drain_s=drain_s,
        grace_s=grace_s,
        token=TOKEN,
    )
    return ProxyProcess(folder, config)


def root_of(proxy: ProxyProcess) -> str:
    return proxy.base_url.removesuffix("/v1")


def rows_in(folder: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(folder / "store.db")) as store:
        return store.execute(query).fetchall()


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(trust_env=False, timeout=20) as client:
        yield client


def test_it_says_so_goes_on_to_answer_and_ends(
    tmp_path: Path, upstream: FaultyUpstream, client: httpx.Client
) -> None:
    """`/readyz` fails as soon as draining begins; each connection closes after its next reply."""
    with serving(tmp_path, upstream, drain_s=2) as proxy:
        root = root_of(proxy)
        for path in ("/readyz", "/health/readiness"):
            assert client.get(root + path).json()["status"] == "ok"
        first = client.post(f"{proxy.base_url}/chat/completions", json=question("x"))
        assert "connection" not in first.headers
        proxy.send_signal(signal.SIGTERM)
        until(lambda: client.get(f"{root}/readyz").status_code == 503)
        readiness = client.get(f"{root}/readyz")
        assert readiness.json()["status"] == "draining"
        assert client.get(f"{root}/livez").status_code == 200
        assert client.get(f"{root}/health/liveliness").status_code == 200
        late = client.post(f"{proxy.base_url}/chat/completions", json=question("x"))
        assert late.status_code == 200
        assert late.headers["connection"] == "close"
        proxy.wait(within_s=10)
        assert len(proxy.lines("draining")) == 1
    assert rows_in(tmp_path, "select count(*) from exchanges") == [(2,)]


def test_whoever_runs_it_may_ask_for_it(
    tmp_path: Path, upstream: FaultyUpstream, client: httpx.Client
) -> None:
    """A POST to `/drain` at the desk starts draining, only with the desk's token."""
    with serving(tmp_path, upstream) as proxy:
        desk = re.search(r"review desk (\S+)", proxy.stdout())
        assert desk is not None
        drain = httpx.URL(desk[1]).join("/drain")
        assert client.post(drain).status_code == 401
        assert client.get(f"{root_of(proxy)}/readyz").status_code == 200
        key = {"authorization": f"Bearer {TOKEN}"}
        assert client.get(drain, headers=key).status_code == 405
        assert client.post(drain, headers=key).json() == {"status": "draining"}
        until(lambda: client.get(f"{root_of(proxy)}/readyz").status_code == 503)
        late = client.post(f"{proxy.base_url}/chat/completions", json=question("x"))
        assert late.status_code == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_open_stream_completes(
    tmp_path: Path, upstream: FaultyUpstream, client: httpx.Client, number: int
) -> None:
    """A stream that is under way when the proxy is asked to stop arrives whole."""
    with serving(tmp_path, upstream) as proxy:
        asked = question("p=0.9", "gated", stream=True)
        with client.stream("POST", f"{proxy.base_url}/chat/completions", json=asked) as reply:
            parts = reply.iter_raw()
            begun = next(parts)
            proxy.send_signal(number)
            with pytest.raises(httpx.TransportError):
                until(lambda: httpx.get(f"{root_of(proxy)}/livez", trust_env=False) is None)
            upstream.last.proceed()
            whole = begun + b"".join(parts)
        assert b"[DONE]" in whole
        assert members_in(whole)[0]["confidence"] == 0.7
        proxy.wait(within_s=10)
    assert rows_in(tmp_path, "select status, confidence from exchanges") == [(200, 0.7)]


@pytest.mark.parametrize("is_configured", [True, False])
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_closed_terminal_ends_it_as_sigterm_does(
    tmp_path: Path, upstream: FaultyUpstream, workers: str, is_configured: bool
) -> None:
    """When its terminal closes, the request under way gets
    its reply and record, with and without a configuration.
    """
    ours, theirs = os.openpty()
    env = environment() | {"OPENAI_BASE_URL": upstream.base_url, "OPENAI_API_KEY": "sk-x"}
    (tmp_path / "tmp").mkdir()
    env |= {"PINOCCHIO_CALIBRATOR": "fake:0.7", "TMPDIR": str(tmp_path / "tmp")}
    env |= {"PINOCCHIO_CACHE": str(tmp_path / "tmp")}
    config = CONFIG.format(
        url=upstream.base_url, policy="observe", folder=tmp_path, drain_s=0, grace_s=9, token=TOKEN
    )
    if is_configured:
        (tmp_path / "proxy.yaml").write_text(config)
    command = [sys.executable, "-m", "pinocchio", "serve", "--port", "0", "--workers", workers]
    with (
        (tmp_path / "stdout").open("wb") as stdout,
        (tmp_path / "stderr").open("wb") as stderr,
        subprocess.Popen(
            command,
            stdin=theirs,
            stdout=stdout,
            stderr=stderr,
            cwd=tmp_path,
            env=env,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        ) as process,
        killed_at_last(process),
        ThreadPoolExecutor() as pool,
    ):
        os.close(theirs)
        until(lambda: "Ready" in (text := printed(tmp_path)) or "listens on" in text)
        url = printed(tmp_path).splitlines()[0].split()[-1]
        ready = url.removesuffix("/v1") + "/readyz"
        until(lambda: httpx.get(ready, trust_env=False).status_code == 200)
        asked = question("p=0.9", "gated", stream=True)
        asking = pool.submit(
            httpx.post, f"{url}/chat/completions", json=asked, timeout=20, trust_env=False
        )
        until(lambda: len(upstream.requests) == 1)
        os.close(ours)
        until(lambda: b"draining" in (tmp_path / "stderr").read_bytes())
        upstream.last.proceed()
        assert b"[DONE]" in asking.result(20).content
        assert process.wait(15) == -signal.SIGTERM
    assert not list((tmp_path / "tmp").glob("pinocchio-login-*"))
    assert not [path for path in (tmp_path / "tmp").rglob("desk/*") if path.is_file()]
    name = "store.db" if is_configured else "pinocchio.db"
    with closing(sqlite3.connect(tmp_path / name)) as store:
        assert store.execute("select status from exchanges").fetchall() == [(200,)]


@contextmanager
def killed_at_last(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Kill a process that a failed test leaves behind; otherwise `Popen` would wait for it."""
    try:
        yield
    finally:
        process.kill()


def printed(folder: Path) -> str:
    return (folder / "stdout").read_text()


def test_a_signal_to_read_the_configuration_ends_nothing(
    tmp_path: Path, upstream: FaultyUpstream
) -> None:
    """A SIGHUP from a service manager, without a terminal, reloads the configuration."""
    with serving(tmp_path, upstream) as proxy:
        proxy.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        assert httpx.get(f"{root_of(proxy)}/readyz", trust_env=False).json()["status"] == "ok"
        assert proxy.lines("draining") == []


def test_whoever_waits_for_a_reviewer_hears_where_to_fetch_the_reply(
    tmp_path: Path, upstream: FaultyUpstream, client: httpx.Client
) -> None:
    """A client that waits for a reviewer gets the review's
    id before the proxy ends, and the reply stays held.
    """
    with (
        ThreadPoolExecutor() as pool,
        serving(tmp_path, upstream, grace_s=2, policy=HOLD) as proxy,
    ):
        asking = pool.submit(client.post, f"{proxy.base_url}/chat/completions", json=question("x"))
        until(lambda: rows_in(tmp_path, "select count(*) from held_replies") == [(1,)])
        began = time.monotonic()
        proxy.send_signal(signal.SIGTERM)
        answer = asking.result(10)
        assert 0.5 < time.monotonic() - began < 5
        proxy.wait(within_s=10)
    member = answer.json()
    assert answer.headers["x-pinocchio-action"] == "hold"
    id = answer.headers["x-pinocchio-review-id"]
    assert id in json.dumps(member)
    assert rows_in(tmp_path, "select id, state from held_replies") == [(id, "held")]


def test_a_second_signal_ends_it_at_once(tmp_path: Path, upstream: FaultyUpstream) -> None:
    """A second SIGTERM ends the process at once, with the requests under way."""
    with (
        serving(tmp_path, upstream, drain_s=60, grace_s=60) as proxy,
        ThreadPoolExecutor() as pool,
    ):
        url, asked = f"{proxy.base_url}/chat/completions", question("x", "slow")
        asking = pool.submit(httpx.post, url, json=asked, timeout=30, trust_env=False)
        until(lambda: len(upstream.requests) == 1)
        proxy.send_signal(signal.SIGTERM)
        until(lambda: proxy.lines("draining") != [])
        began = time.monotonic()
        proxy.send_signal(signal.SIGTERM)
        proxy.wait(within_s=10)
        assert time.monotonic() - began < 5
        assert isinstance(asking.exception(10), httpx.TransportError)


class Load:
    """Clients that keep their connections, and leave when a balancer would send them elsewhere."""

    def __init__(self, proxy: ProxyProcess) -> None:
        self._proxy = proxy
        self._is_over = threading.Event()
        self.outcomes: Counter[str] = Counter()

    def balance(self) -> None:
        """Poll `/readyz` as a balancer does, and end the load once it is not ready."""
        with httpx.Client(trust_env=False, timeout=10) as client:
            while not self._is_over.is_set():
                try:
                    if client.get(f"{root_of(self._proxy)}/readyz").status_code != 200:
                        self._is_over.set()
                except httpx.TransportError:
                    self._is_over.set()
                time.sleep(0.02)

    def ask(self, number: int) -> None:
        is_stream = number % 2 == 0
        with httpx.Client(trust_env=False, timeout=20) as client:
            while not self._is_over.is_set():
                asked = question("p=0.9", stream=is_stream)
                try:
                    reply = client.post(f"{self._proxy.base_url}/chat/completions", json=asked)
                    is_whole = b"pinocchio" in reply.content
                    self.outcomes[f"{reply.status_code} {is_whole}"] += 1
                except httpx.TransportError as error:
                    self.outcomes[type(error).__name__] += 1


def drain_under_load(folder: Path, upstream: FaultyUpstream) -> int:
    """Drain a proxy under load; return the number of replies, each whole and recorded."""
    with serving(folder, upstream, drain_s=0.5) as proxy:
        load = Load(proxy)
        with ThreadPoolExecutor(CLIENTS + 1) as pool:
            working = [pool.submit(load.ask, number) for number in range(CLIENTS)]
            working.append(pool.submit(load.balance))
            time.sleep(0.5)
            proxy.send_signal(signal.SIGTERM)
            for each in working:
                each.result(30)
        proxy.wait(within_s=15)
    assert set(load.outcomes) == {"200 True"}
    replies = load.outcomes["200 True"]
    assert rows_in(folder, "select count(*), min(status) from exchanges") == [(replies, 200)]
    return replies


def test_a_drain_under_load_loses_nothing(tmp_path: Path, upstream: FaultyUpstream) -> None:
    for number in range(2):
        assert drain_under_load(tmp_path / str(number), upstream) > CLIENTS


@pytest.mark.slow
def test_fifty_drains_under_load_lose_nothing(tmp_path: Path, upstream: FaultyUpstream) -> None:
    counts = [drain_under_load(tmp_path / str(number), upstream) for number in range(50)]
    print(f"{sum(counts):,} replies in 50 drains")
