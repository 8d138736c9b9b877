"""The breaker spares a failing upstream, lets one request test it, and closes again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config.settings.upstreams import BreakerConfig
from proxy.errors import UpstreamClosedError
from proxy.upstreams.breaker import Breaker
from tests.running.live_proxy import LiveProxy, error_of, free_port, until
from tests.servers.faulty_upstream import FaultyUpstream
from tests.sharing.captured_logs import capture_logs

OPEN_S = 30.0


class Time:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def breaker(time: Time) -> Breaker:
    return Breaker("up", BreakerConfig(failures=3, open_s=OPEN_S), time)


def fail(breaker: Breaker, times: int = 1) -> None:
    for _ in range(times):
        breaker.note(True, breaker.admit())


def test_it_opens_after_failures_in_a_row_alone(breaker: Breaker) -> None:
    """Only consecutive failures open the breaker, and it then says when to come again."""
    fail(breaker, 2)
    breaker.note(False, breaker.admit())
    fail(breaker, 2)
    assert breaker.state == "closed"
    fail(breaker)
    assert breaker.state == "open"
    with pytest.raises(UpstreamClosedError, match="'up' failed 3 times in a row") as refused:
        breaker.admit()
    assert (b"retry-after", b"30") in refused.value.headers


def test_one_request_at_a_time_finds_out(breaker: Breaker, time: Time) -> None:
    """After `open_s` one request at a time is let through, and its answer closes the breaker."""
    fail(breaker, 3)
    time.now += OPEN_S
    assert breaker.state == "half_open"
    is_probe = breaker.admit()
    assert is_probe
    with pytest.raises(UpstreamClosedError):
        breaker.admit()
    breaker.note(None, is_probe)  # its client has left: the next request tests the upstream
    breaker.note(True, breaker.admit())
    assert breaker.state == "open"
    time.now += OPEN_S
    breaker.note(False, breaker.admit())
    assert breaker.state == "closed"
    fail(breaker, 2)
    assert breaker.state == "closed"


def test_requests_from_before_it_opened_change_nothing(breaker: Breaker, time: Time) -> None:
    """Results of requests from before it opened do not change the breaker."""
    early = [breaker.admit() for _ in range(3)]
    fail(breaker, 3)
    time.now += OPEN_S - 1
    for has_failed, is_probe in zip((True, False, None), early, strict=True):
        breaker.note(has_failed, is_probe)
    assert breaker.state == "open"
    time.now += 1
    assert breaker.state == "half_open"


@given(st.lists(st.tuples(st.sampled_from([True, False, None]), st.floats(0, 40)), max_size=60))
def test_it_never_stays_shut(steps: list[tuple[bool | None, float]]) -> None:
    """After `open_s` a request always passes, and closes the breaker if it is answered."""
    time = Time()
    breaker = Breaker("up", BreakerConfig(failures=2, open_s=OPEN_S), time)
    for has_failed, passes_s in steps:
        time.now += passes_s
        try:
            is_probe = breaker.admit()
        except UpstreamClosedError:
            continue
        breaker.note(has_failed, is_probe)
    time.now += OPEN_S
    breaker.note(False, breaker.admit())
    assert breaker.state == "closed"


# Through the proxy


@pytest.fixture
def start(upstream: FaultyUpstream, tmp_path: Path) -> Iterator[Callable[..., LiveProxy]]:
    running: list[LiveProxy] = []

    def start(url: str | None = None, open_s: float = 0.5, **sections: Any) -> LiveProxy:
        breaker = {"failures": 3, "open_s": open_s}
        proxy = LiveProxy(
            url or upstream.base_url, tmp_path, upstream={"breaker": breaker}, **sections
        )
        running.append(proxy)
        return proxy

    yield start
    for proxy in running:
        proxy.stop()


@pytest.mark.parametrize("failing", ["status-500", "status-503", "hang-up"])
def test_failing_upstream_is_skipped(
    start: Callable[..., LiveProxy], upstream: FaultyUpstream, failing: str
) -> None:
    """A failing upstream is not asked while the breaker is open, and both changes are logged."""
    proxy = start()
    with capture_logs() as lines:
        for _ in range(3):
            assert proxy.ask(model=failing).status_code in (500, 502, 503)
        count_before = len(upstream.requests)
        refused = proxy.ask()
        until(lambda: proxy.ask().status_code == 200)
    events = [each["event"] for each in lines if each["event"].startswith("upstream_breaker")]
    assert events == ["upstream_breaker_opened", "upstream_breaker_closed"]
    assert refused.status_code == 503
    assert error_of(refused)["code"] == "upstream_unavailable"
    assert refused.headers["x-pinocchio-error"] == "true"
    assert refused.headers["retry-after"] == "1"
    assert len(upstream.requests) == count_before + 1
    assert proxy.ask().status_code == 200


def test_errors_of_the_client_do_not_open_it(
    start: Callable[..., LiveProxy], upstream: FaultyUpstream
) -> None:
    proxy = start()
    for status in (400, 401, 404, 429) * 2:
        assert proxy.ask(model=f"status-{status}").status_code == status
    assert proxy.ask().status_code == 200


def test_a_fallback_takes_over_at_once(
    start: Callable[..., LiveProxy], upstream: FaultyUpstream
) -> None:
    """While the breaker is open, the fallback is asked without waiting for the failing upstream."""
    proxy = start(
        f"http://127.0.0.1:{free_port()}/v1",
        open_s=60,
        upstreams={
            "bad": {
                "base_url": f"http://127.0.0.1:{free_port()}/v1",
                "api_key": "a",
                "breaker": {"failures": 2, "open_s": 60},
            },
            "good": {"base_url": upstream.base_url, "api_key": "b"},
        },
        models=(
            {"match": "say *", "upstream": "good"},
            {"match": "*", "upstream": "bad", "fallback": {"to": ["say it p=0.4"]}},
        ),
    )
    errors = [proxy.ask().json()["pinocchio"]["calls"][0]["error"] for _ in range(4)]
    assert errors == ["upstream_unreachable"] * 2 + ["upstream_unavailable"] * 2


def test_a_hanging_upstream_opens_it_where_a_fallback_does_not_wait(
    start: Callable[..., LiveProxy], upstream: FaultyUpstream
) -> None:
    """Timeouts for a fallback count as failures and open the breaker."""
    proxy = start(
        open_s=60,
        models=(
            {"match": "say *", "upstream": "demo"},
            {"match": "demo", "upstream": "demo"},
            {"match": "*", "upstream": "faulty", "fallback": {"to": ["demo"], "within_s": 0.1}},
        ),
    )
    errors = [proxy.ask(model="slow").json()["pinocchio"]["calls"][0]["error"] for _ in range(5)]
    assert errors == ["upstream_timeout"] * 3 + ["upstream_unavailable"] * 2
    assert len(upstream.requests) == 3


def test_clients_that_leave_do_not_open_it(
    start: Callable[..., LiveProxy], upstream: FaultyUpstream
) -> None:
    """Requests whose clients left do not count as failures."""
    proxy = start(open_s=60)

    async def leave() -> None:
        import httpx

        async with httpx.AsyncClient(base_url=proxy.url, trust_env=False) as client:
            for _ in range(4):
                with pytest.raises(httpx.ReadTimeout):
                    await client.post(
                        "/v1/chat/completions",
                        json={"model": "slow", "messages": [{"role": "user", "content": "x"}]},
                        timeout=0.1,
                    )

    asyncio.run(leave())
    assert all(request.is_cut_off(within_s=5) for request in upstream.requests)
    assert proxy.ask().status_code == 200
