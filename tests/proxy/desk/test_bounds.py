"""Bounds on what clients and receivers send to the desk: queue names, seconds to wait."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from proxy.desk.gauges import MOST_QUEUES, _limit_queues
from proxy.desk.webhooks import MOST_WAIT_S, _failure
from proxy.observe.series import OTHER
from tests.conftest import StartProxy
from tests.running.desk_client import DESK, scraped


def test_the_largest_queues_have_series_and_the_others_one() -> None:
    """The largest queues have series of their own; the others are counted together."""
    rows: list[dict[str, Any]] = [
        {"queue": f"q{n}", "kind": ("hold", "audit")[n % 2], "count": n, "oldest_at": 9.0 * n}
        | {"time_used": n / 1_000, "escalated": 1}
        for n in range(1, 500)
    ]
    limited = _limit_queues(rows)
    assert len(limited) == MOST_QUEUES + 2
    assert sum(row["count"] for row in limited) == sum(row["count"] for row in rows)
    assert sum(row["escalated"] for row in limited) == len(rows)
    assert min(row["oldest_at"] for row in limited) == 9.0
    assert [row["queue"] for row in limited[-2:]] == [OTHER] * 2
    assert _limit_queues(rows[:3]) == rows[2::-1]


def test_an_agents_names_of_queues_do_not_fill_the_metrics(start_proxy: StartProxy) -> None:
    """A client that names queues at will cannot make the metrics grow."""
    proxy = start_proxy(policy="{version: 1, name: calls, mode: shadow, default: deliver}", **DESK)
    for number in range(MOST_QUEUES + 20):
        call = {"id": str(number), "name": "refund", "arguments": {}}
        body = {"call": call, "messages": [], "queue": f"queue {number}"}
        assert proxy.http.post("/pinocchio/v1/calls", json=body).status_code == 200
    scraped_text = str(scraped(proxy.desk))
    assert scraped_text.count("queue 1") <= 5 * MOST_QUEUES
    metrics = proxy.desk.get("/metrics").text
    series = [line for line in metrics.splitlines() if line.startswith("pinocchio_held_replies{")]
    assert len(series) <= MOST_QUEUES + 2
    assert sum(float(line.rpartition(" ")[2]) for line in series) >= MOST_QUEUES + 20


@pytest.mark.parametrize("header", ["²", "٣", "1" * 400, "-1", "1.5", "soon", "", "\uff13"])
def test_a_non_numeric_retry_after_is_ignored(header: str) -> None:
    """A Retry-After that is no number of seconds is ignored, without an error."""
    headers = [(b"retry-after", header.encode())]
    assert _failure(httpx.Response(503, headers=headers)) == ("status 503", 0.0)
    wanted = httpx.Response(503, headers={"retry-after": "99999999"})
    assert _failure(wanted) == ("status 503", MOST_WAIT_S)
