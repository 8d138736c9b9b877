"""Each metric that is more than a plain count is changed on a running proxy, and read there."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from policies import Certificate, LabelledScore, Scope, certify
from proxy.store.database.verdicts import VerdictStore, Withdrawal
from proxy.store.verdicts.drift import Monitor, MonitorKey, Position, write_monitors
from tests.conftest import StartProxy
from tests.running.desk_client import DESK, HOLD, decide, held_id, scraped, value
from tests.running.live_proxy import LiveProxy, SlowScorer, until
from tests.servers.faulty_upstream import FaultyUpstream

PLAIN = {"surface": "chat", "stream": "false"}
STREAMED = {"surface": "chat", "stream": "true"}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {}}}
GATE = """
version: 1
name: gate
certificate: gate.certificate.json
rules:
  - {name: surely right, when: {confidence: {max_error: 0.1}}, then: deliver}
default: block
"""


def watching(name: str) -> dict[str, Any]:
    """Return the options of a proxy with a desk, and a name that makes it the only one."""
    return {"policy": f"version: 1\nname: {name}\nmode: shadow\ndefault: deliver\n", **DESK}


def now(proxy: LiveProxy, name: str, **labels: str) -> float:
    return value(scraped(proxy.desk), name, **labels)


def test_upstream_time_is_separate(start_proxy: StartProxy, upstream: FaultyUpstream) -> None:
    """Upstream's time and the proxy's are separate; a
    request that reached no upstream has neither.
    """
    proxy = start_proxy(**watching("time"))
    began = time.monotonic()
    with ThreadPoolExecutor() as pool:
        asking = pool.submit(proxy.ask, "p=0.5", "slow")
        until(lambda: len(upstream.requests) == 1)
        assert now(proxy, "pinocchio_requests_in_flight") == 1
        time.sleep(0.3)
        upstream.last.proceed()
        assert asking.result().status_code == 200
    took_s = time.monotonic() - began
    proxy.ask("p=0.5", stream=True)
    all_s = time.monotonic() - began
    proxy.post_raw(b"{")
    until(lambda: now(proxy, "pinocchio_requests_total") == 3)
    found = scraped(proxy.desk)
    assert value(found, "pinocchio_requests_in_flight") == 0
    upstream_s = value(found, "pinocchio_upstream_seconds_sum", **PLAIN)
    assert 0.3 <= upstream_s < took_s
    assert value(found, "pinocchio_upstream_seconds_bucket", le="0.2", **PLAIN) == 0
    assert 0 < value(found, "pinocchio_overhead_seconds_sum", **PLAIN) < took_s - upstream_s
    for name in ("pinocchio_overhead_seconds_count", "pinocchio_upstream_seconds_count"):
        assert (value(found, name, **PLAIN), value(found, name, **STREAMED)) == (1, 1)
    assert value(found, "pinocchio_score_seconds_count", engine="in_process") == 2
    score_s = value(found, "pinocchio_score_seconds_sum", engine="in_process")
    assert 0 < score_s < all_s - upstream_s


def test_waiting_for_a_reviewer_is_nobodys_overhead(start_proxy: StartProxy) -> None:
    """Waiting for a reviewer is not overhead; it has a histogram of its own."""
    proxy = start_proxy(policy=HOLD.replace("desk", "waits"), **DESK)
    proxy.ask("p=0.5")
    until(lambda: now(proxy, "pinocchio_requests_total") == 1)
    assert now(proxy, "pinocchio_upstream_seconds_count") == 1
    assert now(proxy, "pinocchio_overhead_seconds_count") == 0


def test_confidences_are_counted_by_calibrator_and_kind(start_proxy: StartProxy) -> None:
    """Confidences are counted by calibrator and by kind: replies with calls, or text alone."""
    proxy = start_proxy(**watching("kinds"))
    proxy.ask("p=0.9")
    proxy.ask("p=0.2", "tools", tools=[TOOL])
    until(lambda: now(proxy, "pinocchio_confidence_count") == 2)
    found = scraped(proxy.desk)
    for kind, confidence in (("text", 0.9), ("tool_call", 0.2)):
        labels = {"calibrator": "words@1", "kind": kind}
        assert value(found, "pinocchio_confidence_count", **labels) == 1
        assert value(found, "pinocchio_confidence_sum", **labels) == confidence
    build = {"calibrator": "words@1", "engine": "in_process"}
    assert value(found, "pinocchio_build_info", **build) == 1


def test_scores_are_counted_by_what_they_are_based_on(start_proxy: StartProxy) -> None:
    """Scores are counted by each combination of bases; support has a histogram of its own."""
    proxy = start_proxy(**watching("bases"))
    for answer in ("p=0.9", "p=0.9 support=0.2 basis=context,computed", "p=0.9 support=0.7"):
        proxy.ask(answer)
    until(lambda: now(proxy, "pinocchio_confidence_count") == 3)
    found = scraped(proxy.desk)
    assert value(found, "pinocchio_score_bases_total", basis="likeness") == 2
    assert value(found, "pinocchio_score_bases_total", basis="context,computed") == 1
    assert value(found, "pinocchio_support_count") == 2
    assert value(found, "pinocchio_support_sum") == pytest.approx(0.9)
    assert value(found, "pinocchio_support_bucket", le="0.25") == 1


def test_streams_are_counted_by_what_waits(start_proxy: StartProxy) -> None:
    """Streams are counted by the mode that their policy gives; a score after the end is late."""
    tools = "rules: [{name: calls, when: {tools: ['*']}, then: hold}]\ndefault: deliver\n"
    policies = {
        "passthrough": "version: 1\nname: watch\nmode: shadow\ndefault: deliver\n",
        "buffer_tools": f"version: 1\nname: calls\n{tools}",
        "buffer": HOLD.replace("desk", "all"),
    }
    for mode, policy in policies.items():
        proxy = start_proxy(policy=policy, **DESK)
        proxy.ask("p=0.5", stream=True)
        until(lambda mode=mode, p=proxy: now(p, "pinocchio_stream_waits_total", mode=mode) == 1)
        assert now(proxy, "pinocchio_stream_waits_total") == 1
        assert now(proxy, "pinocchio_late_scores_total") == 0
    scorer = SlowScorer()
    slow = start_proxy(
        policy=policies["passthrough"], scorer=scorer, limits={"stream_wait_ms": 20}, **DESK
    )
    slow.ask("p=0.5", stream=True)
    scorer.proceed.set()
    until(lambda: now(slow, "pinocchio_late_scores_total") == 1)


def test_fallbacks_and_open_breakers_show(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """Fallbacks are counted by both upstreams, and an open breaker is 1."""
    proxy = start_proxy(
        upstreams={
            "first": {
                "base_url": upstream.base_url,
                "api_key": "a",
                "breaker": {"failures": 2, "open_s": 600},
            },
            "spare": {"demo": True},
        },
        models=(
            {"match": "demo", "upstream": "spare"},
            {"match": "*", "upstream": "first", "fallback": {"to": ["demo"]}},
        ),
        **watching("fallback"),
    )
    ways = {"failed": "first", "upstream": "spare"}
    proxy.ask(model="ok")
    proxy.ask(model="status-503")
    until(lambda: now(proxy, "pinocchio_fallbacks_total", **ways) == 1)
    assert now(proxy, "pinocchio_upstream_breaker_open", upstream="first") == 0
    proxy.ask(model="status-503")
    until(lambda: now(proxy, "pinocchio_fallbacks_total", **ways) == 2)
    assert now(proxy, "pinocchio_upstream_breaker_open", upstream="first") == 1
    assert now(proxy, "pinocchio_requests_total", upstream="spare") == 2


def test_a_judges_calls_are_counted_by_what_came_of_them(start_proxy: StartProxy) -> None:
    """A judge's calls are counted as judged, refused, unreadable or failed."""
    judges = {
        "judged": "judge 0.9",
        "refused": "refusing",
        "unreadable": "say True",
        "failed": "status-500",
    }
    name = "pinocchio_judgements_total"
    for outcome, judge in judges.items():
        section = json.dumps({"model": judge})
        policy = f"version: 1\nname: {outcome}\njudge: {section}\ndefault: deliver\n"
        proxy = start_proxy(policy=policy, **DESK)
        proxy.ask("Paris p=0.6")
        until(lambda p=proxy, outcome=outcome: now(p, name, outcome=outcome) == 1)
        assert now(proxy, name) == 1


def test_whoever_asks_again_is_counted_apart(start_proxy: StartProxy) -> None:
    """An agent that polls for a held call is counted as a poll, not as a request."""
    rules = "rules: [{name: calls, when: {tools: ['*']}, then: {hold: {expires: 1h}}}]\n"
    proxy = start_proxy(policy=f"version: 1\nname: polls\n{rules}default: deliver\n", **DESK)
    asked = {"text": "p=0.2", "model": "tools", "tools": [TOOL]}
    ids = {proxy.ask(**asked).headers["x-pinocchio-review-id"] for _ in range(3)}
    assert len(ids) == 1
    until(lambda: now(proxy, "pinocchio_polls_total") == 2)
    assert now(proxy, "pinocchio_requests_total") == 1


def test_the_scorers_queue_and_batches_show(start_proxy: StartProxy) -> None:
    """What arrives while a batch is computed waits in the queue, and is the next batch."""
    scorer = SlowScorer()
    proxy = start_proxy(scorer=scorer, **watching("queue"))
    with ThreadPoolExecutor() as pool:
        first = pool.submit(proxy.ask, "p=0.5")
        assert scorer.has_begun.wait(10)
        later = [pool.submit(proxy.ask, f"p=0.{number}") for number in (1, 2, 3)]
        until(lambda: now(proxy, "pinocchio_score_queue_depth", engine="in_process") == 3)
        scorer.proceed.set()
        assert {each.result().status_code for each in (first, *later)} == {200}
    found = scraped(proxy.desk)
    assert value(found, "pinocchio_score_queue_depth") == 0
    assert value(found, "pinocchio_score_batch_size_sum", engine="in_process") == 4
    assert value(found, "pinocchio_score_batch_size_bucket", le="1.0") == 1
    assert value(found, "pinocchio_score_batch_size_bucket", le="4.0") == 2


def test_the_desks_work_is_measured(start_proxy: StartProxy) -> None:
    """Waiting replies are measured by age and used time, verdicts by kind, queue and delay."""
    proxy = start_proxy(policy=HOLD.replace("desk", "work"), **DESK)
    ids = [held_id(proxy, f"p=0.{number}") for number in (1, 2, 3)]
    past = "UPDATE held_replies SET created_at = :at - 100, expires_at = :at + 100 WHERE id = :id"
    with closing(sqlite3.connect(proxy.store_path)) as connection, connection:
        connection.execute(past, {"at": time.time(), "id": ids[0]})
    waiting = {"queue": "seniors", "kind": "hold"}
    until(lambda: now(proxy, "pinocchio_held_replies", **waiting) == 3)
    assert now(proxy, "pinocchio_held_escalated", **waiting) == 0
    found = scraped(proxy.desk)
    assert 100 <= value(found, "pinocchio_held_oldest_seconds", **waiting) < 130
    assert 0.5 <= value(found, "pinocchio_held_time_used", **waiting) < 0.65
    assert decide(proxy, ids[0], verdict="approve").status_code == 200
    assert decide(proxy, ids[1], verdict="reject").status_code == 200
    queue = {"queue": "seniors"}
    until(lambda: now(proxy, "pinocchio_verdicts_total", verdict="reject", **queue) == 1)
    found = scraped(proxy.desk)
    assert value(found, "pinocchio_verdicts_total", verdict="approve", **queue) == 1
    assert value(found, "pinocchio_review_wait_seconds_count", **queue) == 2
    assert value(found, "pinocchio_review_wait_seconds_bucket", le="60.0", **queue) == 1
    assert 100 <= value(found, "pinocchio_review_wait_seconds_sum", **queue) < 160
    assert value(found, "pinocchio_held_time_used", **waiting) < 0.5


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Hold a write to the store open within this context."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


def test_a_store_that_lags_or_refuses_shows(start_proxy: StartProxy) -> None:
    """Rows wait while another process writes, and are counted where they cannot be written."""
    proxy = start_proxy(audit={"share": 1.0}, **watching("lag"))
    assert now(proxy, "pinocchio_store_lag_seconds") == 0
    with writing(proxy.store_path):
        proxy.ask("p=0.5")
        until(lambda: now(proxy, "pinocchio_store_lag_seconds") > 1)
    until(lambda: now(proxy, "pinocchio_store_lag_seconds") == 0)
    assert now(proxy, "pinocchio_store_dropped_total") == 0
    with closing(sqlite3.connect(proxy.store_path)) as connection, connection:
        connection.execute("ALTER TABLE exchanges RENAME TO moved")
    proxy.ask("p=0.5")
    until(lambda: now(proxy, "pinocchio_store_dropped_total", what="records") == 1)
    assert now(proxy, "pinocchio_store_dropped_total", what="audits") == 0
    with closing(sqlite3.connect(proxy.store_path)) as connection, connection:
        connection.execute("ALTER TABLE held_replies RENAME TO also_moved")
    proxy.ask("p=0.5")
    until(lambda: now(proxy, "pinocchio_store_dropped_total", what="audits") == 1)


def test_drift_shows_for_the_calibrator_in_use(start_proxy: StartProxy) -> None:
    """Drift alarms are counted by kind; the models that clients name are in no label."""
    proxy = start_proxy(**watching("drift"))
    proxy.recorded(proxy.ask("p=0.5").headers["x-pinocchio-request-id"], "facts")
    findings = VerdictStore(proxy.config.store)
    keys = [
        MonitorKey("scores", calibrator, model)
        for calibrator in ("words@1", "gone@1")
        for model in ("gpt-a", "gpt-b")
    ]
    keys += [MonitorKey("calibration", "words@1"), MonitorKey("calibration", "words@1+platt@1")]
    rows = [Monitor(key, 9, {}, time.time(), "req_1") for key in keys[1:]]
    calm = Monitor(keys[0], 9, {})
    assert write_monitors(findings.engine, [calm, *rows], Position(), Position("req_1", 0))
    findings.close()
    found = scraped(proxy.desk)
    in_use = [{"kind": kind, "calibrator": "words@1"} for kind in ("scores", "calibration")]
    for labels in in_use:
        assert value(found, "pinocchio_drift", **labels) == 1
    assert {key for key in found if key[0] == "pinocchio_drift"} == {
        ("pinocchio_drift", frozenset(labels.items())) for labels in in_use
    }


def test_a_withdrawn_certificate_shows(upstream: FaultyUpstream, tmp_path: Path) -> None:
    """The metric is 1 while all that is certified counts, and 0 after a withdrawal."""
    rows = [LabelledScore(str(n), 0.9 if n % 2 else 0.2, bool(n % 2)) for n in range(600)]
    grant = certify(rows, 0.1, 0.9).grant("words@1", Scope())
    path = tmp_path / "gate.certificate.json"
    path.write_text(Certificate((grant,), "2026-01-01").to_json())
    (tmp_path / "gate.yaml").write_text(GATE)
    proxy = LiveProxy(upstream.base_url, tmp_path, policy=tmp_path / "gate.yaml", **DESK)
    try:
        labels = {"policy": "gate", "certificate": path.name}
        assert now(proxy, "pinocchio_certificate_valid", **labels) == 1
        findings = VerdictStore(proxy.config.store)
        findings.withdraw(Withdrawal(grant.digest, "gate", "all replies", "scores_drifted", 0.0))
        findings.close()
        until(lambda: now(proxy, "pinocchio_certificate_valid", **labels) == 0)
        names = {name for name, _ in scraped(proxy.desk)}
        assert "pinocchio_certificate_valid" in names
    finally:
        proxy.stop()


def test_metrics_are_served_while_the_store_is_not_there(start_proxy: StartProxy) -> None:
    """While the store is away, metrics lack what it holds, and have all else."""
    proxy = start_proxy(policy=HOLD.replace("desk", "gone"), **DESK)
    proxy.ask("p=0.5")
    until(lambda: now(proxy, "pinocchio_held_replies") == 1)
    with closing(sqlite3.connect(proxy.store_path)) as connection, connection:
        connection.execute("ALTER TABLE held_replies RENAME TO moved")
        connection.execute("ALTER TABLE drift_monitors RENAME TO also_moved")

    def names() -> set[str]:
        answer: httpx.Response = proxy.desk.get("/metrics")
        assert answer.status_code == 200
        return {name for name, _ in scraped(proxy.desk)}

    until(lambda: "pinocchio_held_replies" not in names())
    assert {"pinocchio_requests_total", "pinocchio_build_info"} <= names()


def test_a_policy_without_a_certificate_has_no_series(start_proxy: StartProxy) -> None:
    """A policy without a certificate has no series, so that no alert fires for it."""
    proxy = start_proxy(**watching("none"))
    found: dict[Any, float] = scraped(proxy.desk)
    assert not [key for key in found if key[0] == "pinocchio_certificate_valid"]
