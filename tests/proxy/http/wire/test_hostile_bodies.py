"""Costs of one hostile body: the event loop stays free, and the memory bounded."""

from __future__ import annotations

import gzip
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import brotli
import httpx
import pytest
import zstandard

from proxy.http.wire import large_json
from tests.running.live_proxy import ProxyProcess
from tests.servers.faulty_upstream import EVENTS, JSON, Response
from tests.servers.undecided import PATHS, AnyUpstream, asking

MEGABYTE = 2**20
MOST_WAIT_S = 4.5  # of a probe beside the body, on a busy machine; it was 5 to 120 s
MOST_GROWTH = 300 * MEGABYTE  # of the process, with a body of 60 MB in it; it was 1.7 to 5.9 GB
CONFIG = """
upstreams: {{any: {{base_url: "{url}", api_key: sk-x, speaks: both}}}}
models: [{{match: "*", upstream: any}}]
calibrator: {{checkpoint: none}}
policies: {policy}
store: sqlite:///{folder}/store.db
records: {{keep_days: 0}}
admin: {{port: 0}}
"""


@cache
def lists() -> bytes:
    """Return 60 MB of JSON with twenty million empty lists."""
    return b"[" + b"[]," * (20 * 10**6) + b"0]"


@pytest.fixture(scope="module")
def upstream() -> Iterator[AnyUpstream]:
    with AnyUpstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def proxy(
    upstream: AnyUpstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ProxyProcess]:
    folder = tmp_path_factory.mktemp("hostile")
    policy = folder / "policy.yaml"
    policy.write_text(
        "version: 1\nname: p\nmode: enforce\nrules: []\ndefault: {hold: {queue: q}}\n"
    )
    config = CONFIG.format(url=upstream.base_url, policy=policy, folder=folder)
    with ProxyProcess(folder, config) as proxy:
        yield proxy


def peak_of(proxy: ProxyProcess) -> int:
    """Return the process's peak memory in bytes since the last call."""
    text = Path(f"/proc/{proxy.pid}/status").read_text()
    Path(f"/proc/{proxy.pid}/clear_refs").write_text("5")  # starts a new measurement
    kilobytes = next(line.split()[1] for line in text.splitlines() if line.startswith("VmHWM"))
    return int(kilobytes) * 1_024


def memory_of(proxy: ProxyProcess) -> int:
    """Reset the peak memory of the process and return its present memory in bytes."""
    peak_of(proxy)
    return peak_of(proxy)


def beside(proxy: ProxyProcess, work: Callable[[], httpx.Response]) -> tuple[httpx.Response, float]:
    """Return the work's response, and the longest wait of a probe meanwhile, in seconds."""
    url, waits, is_over = f"http://127.0.0.1:{proxy.port}/livez", [0.0], threading.Event()

    def probe() -> None:
        with httpx.Client(trust_env=False, timeout=120) as client:
            while not is_over.is_set():
                began = time.monotonic()
                client.get(url)
                waits.append(time.monotonic() - began)
                time.sleep(0.02)

    thread = threading.Thread(target=probe)
    thread.start()
    try:
        response = work()
    finally:
        is_over.set()
        thread.join(120)
    return response, max(waits)


def post(proxy: ProxyProcess, body: bytes, *, surface: str = "chat", **headers: str) -> Any:
    url = f"http://127.0.0.1:{proxy.port}{PATHS[surface]}"
    fields = {"content-type": "application/json", **headers}
    return httpx.post(url, content=body, headers=fields, timeout=120, trust_env=False)


BODIES = {
    "brotli": ("br", lambda: brotli.compress(lists(), quality=5)),
    "gzip": ("gzip", lambda: gzip.compress(lists(), 9)),
    "zstd": ("zstd", lambda: zstandard.compress(lists())),
    "empty frames of zstd": ("zstd", lambda: zstandard.compress(b"") * 2_000_000),
    "empty members of gzip": ("gzip", lambda: gzip.compress(b"") * 1_000_000),
    "plain": ("identity", lambda: lists()),
    "plain, in a member": ("identity", lambda: b'{"model":"m","x":%b}' % lists()),
    "as many values as may be": (
        "identity",
        lambda: b'{"model":"m","messages":[%b0]}' % (b"[]," * 240_000),
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_clients_body_is_refused_or_read_beside_the_others(
    proxy: ProxyProcess, upstream: AnyUpstream, name: str
) -> None:
    """A bomb, or a body with too many values, is refused while other requests hardly wait."""
    encoding, make = BODIES[name]
    body, before = make(), memory_of(proxy)
    upstream.answer = Response([b'{"choices":[]}'])
    response, waited_s = beside(proxy, lambda: post(proxy, body, **{"content-encoding": encoding}))
    growth = peak_of(proxy) - before
    print(f"{name}: {len(body)} bytes, {response.status_code}, {waited_s:.2f} s, {growth} bytes")
    assert response.status_code in (400, 413, 422)
    assert waited_s < MOST_WAIT_S
    assert growth < MOST_GROWTH


def bombs() -> dict[str, Response]:
    packed = (*JSON, ("Content-Encoding", "gzip"))
    calls = b",".join(b'{"index":%d}' % n for n in range(60_000))
    chunk = b'data: {"choices":[{"index":0,"delta":{"tool_calls":[%b]}}]}\n\n' % calls
    return {
        "gzip": Response([gzip.compress(lists(), 9)], headers=packed),
        "plain": Response([lists()]),
        "in a member": Response([b'{"choices":%b}' % lists()]),
        "blank lines": Response([b"\n\n" * 2**15] * 900, headers=EVENTS),
        "comments": Response([b":\n\n" * 2**15] * 250, headers=EVENTS),
        "empty data": Response([b"data:\n\n" * 2**14] * 200, headers=EVENTS),
        "small events": Response([b"data: {}\n\n" * 2**13] * 350, headers=EVENTS),
        "calls in a delta": Response([chunk], headers=EVENTS),
        "lists in an event": Response(
            [b"data: " + lists()[: 15 * 10**6] + b"\n\n"], headers=EVENTS
        ),
    }


def test_reading_on_a_thread_rests_three_quarters_of_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thread that reads rests three times as long as it worked, after each millisecond."""
    slept: list[float] = []
    clock = itertools.count(0.0, 0.002)
    own = SimpleNamespace(sleep=slept.append, perf_counter=lambda: next(clock))
    monkeypatch.setattr(large_json, "time", own)
    value, count = large_json.loads_counted(b"[" + b"1," * 199 + b"1]")
    assert (value, count) == ([1] * 200, 200)
    assert slept == pytest.approx([0.006] * 3)


@pytest.mark.parametrize("name", bombs())
def test_an_upstreams_body_is_refused_or_read_beside_the_others(
    proxy: ProxyProcess, upstream: AnyUpstream, name: str
) -> None:
    """A reply that is a bomb, or has nothing but events, does not delay other requests."""
    upstream.answer, before = bombs()[name], memory_of(proxy)
    body = asking("chat", stream=True)
    response, waited_s = beside(proxy, lambda: post(proxy, body))
    growth = peak_of(proxy) - before
    print(f"{name}: {response.status_code}, {waited_s:.2f} s, {growth} bytes")
    assert waited_s < MOST_WAIT_S
    assert growth < MOST_GROWTH
