"""Certificates in service: used, renewed, and withdrawn for good on drift or on verdicts."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from policies import Certificate, LabelledScore, Scope, certify, load_policy
from proxy.store.database.verdicts import VerdictStore, Withdrawal
from proxy.store.verdicts.drift import Monitor, MonitorKey, Position, write_monitors
from tests.running.client_keys import OWN_KEY, ask_with, make_key, wait_until_known
from tests.running.live_proxy import LiveProxy, WordScorer, until
from tests.servers.faulty_upstream import FaultyUpstream
from tests.sharing.captured_logs import capture_logs

ACTION, POLICY = "x-pinocchio-action", "x-pinocchio-policy"
GATE = """
version: 1
name: gate
certificate: gate.certificate.json
rules:
  - {name: surely right, when: {confidence: {max_error: 0.1}}, then: deliver}
default: block
"""
KEYS: dict[str, Any] = {"keys": "required", "upstream": {"api_key": OWN_KEY}}
Start = Callable[..., LiveProxy]


def confidences(size: int, seed: int = 1) -> list[float]:
    """Return the labelled replies' confidences, half of them sure."""
    rng = random.Random(seed)
    return [round(rng.uniform(0.8, 1.0) if n % 2 else rng.uniform(0, 0.5), 4) for n in range(size)]


def certificate(calibrator: str = "words@1", seed: int = 1, **scope: Any) -> Certificate:
    """Return a certificate for replies that are right exactly where they are sure."""
    rows = [LabelledScore(str(n), c, c > 0.6) for n, c in enumerate(confidences(600, seed))]
    found = certify(rows, 0.1, 0.9)
    return Certificate((found.grant(calibrator, Scope(**scope)),), "2026-01-01")


def write(folder: Path, issued: Certificate) -> None:
    """Write a certificate as `pinocchio certify` does, under a time of its own."""
    path = folder / "gate.certificate.json"
    path.write_text(issued.to_json())
    os.utime(path, ns=(time.time_ns(), time.time_ns()))


@pytest.fixture
def start(upstream: FaultyUpstream, tmp_path: Path) -> Iterator[Start]:
    """Yield a function that starts a proxy on this test's folder.

    A second start is a restart.
    """
    started: list[LiveProxy] = []

    def start(policy: str = GATE, scorer: WordScorer | None = None) -> LiveProxy:
        for proxy in started:
            proxy.stop()
        (tmp_path / "gate.yaml").write_text(policy)
        proxy = LiveProxy(upstream.base_url, tmp_path, policy=tmp_path / "gate.yaml", scorer=scorer)
        started.append(proxy)
        return proxy

    yield start
    for proxy in started:
        proxy.stop()


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    """Yield the lines that the proxy logs."""
    with capture_logs() as captured:
        yield captured


_numbers = count(1)


def question(confidence: float) -> str:
    """Return a question that nobody has asked before."""
    return f"p={confidence} in question {next(_numbers)}"


def action(proxy: LiveProxy, confidence: float = 0.9, **fields: Any) -> str:
    return proxy.ask(question(confidence), **fields).headers[ACTION]


def of(lines: list[Any], event: str) -> list[Any]:
    return [line for line in lines if line["event"] == event]


# --- use ----------------------------------------------------------------------------------------


def test_a_certified_threshold_delivers_what_is_at_or_above_it(
    start: Start, tmp_path: Path
) -> None:
    """The condition matches from the certified threshold on, and never without a certificate."""
    proxy = start()
    assert action(proxy) == "block", "there is no certificate yet"
    write(tmp_path, certificate())
    until(lambda: action(proxy) == "deliver")
    threshold = certificate().grants[0].threshold
    assert action(proxy, threshold) == "deliver"
    assert action(proxy, round(threshold - 0.01, 4)) == "block"


def test_a_certificate_counts_for_its_calibrator_alone(
    start: Start, tmp_path: Path, lines: list[Any]
) -> None:
    """Numbers of an uncertified calibrator match nothing, and the log says so once."""
    write(tmp_path, certificate(calibrator="words@1+platt@9c1d"))
    proxy = start()
    assert [action(proxy) for _ in range(3)] == ["block"] * 3
    [line] = of(lines, "certificate_does_not_count")
    assert (line["log_level"], line["reason"]) == ("warning", "other_calibrator")
    assert (line["calibrator"], line["certified_for"]) == ("words@1", ["words@1+platt@9c1d"])


def test_a_changed_certificate_is_taken_up_without_a_restart(
    start: Start, tmp_path: Path, lines: list[Any]
) -> None:
    """A changed certificate decides without a restart, and gives its label."""
    write(tmp_path, certificate())
    proxy = start()
    before = proxy.ask("p=0.9").headers[POLICY]
    write(tmp_path, certificate(seed=2))
    until(lambda: len(of(lines, "certificate_loaded")) == 2)
    after = proxy.ask("p=0.9").headers
    assert (after[ACTION], after[POLICY] == before) == ("deliver", False)


def test_a_broken_certificate_is_refused_and_the_one_before_stays(
    start: Start, tmp_path: Path, lines: list[Any]
) -> None:
    """A broken certificate is logged and refused, and the earlier one stays."""
    write(tmp_path, certificate())
    proxy = start()
    (tmp_path / "gate.certificate.json").write_text("{")
    until(lambda: of(lines, "certificate_refused"))
    assert "the certificate is not JSON" in of(lines, "certificate_refused")[0]["reason"]
    assert action(proxy) == "deliver"
    (tmp_path / "gate.certificate.json").unlink()
    until(lambda: [line["grants"] for line in of(lines, "certificate_loaded")] == [1, 0])
    assert action(proxy) == "block"


# --- withdrawal on drift ------------------------------------------------------------------------


def drift(proxy: LiveProxy) -> int:
    """Send replies of a lower kind until all are blocked; return how many rounds it took."""
    for number in range(400):
        if action(proxy, 0.6) == action(proxy, 0.95) == "block":
            return number
    raise AssertionError("the certificate still counts")


def test_drifted_scores_withdraw_the_certificate_for_good(
    start: Start, tmp_path: Path, lines: list[Any]
) -> None:
    """Drifted scores withdraw the certificate. The log says so
    and what to do; a restart does not restore it, new labels do.
    """
    write(tmp_path, certificate())
    proxy = start()
    before = proxy.ask("p=0.95").headers[POLICY]
    drift(proxy)
    [line] = of(lines, "certificate_withdrawn")
    assert (line["log_level"], line["reason"]) == ("warning", "scores_drifted")
    assert (line["policy"], line["rules"]) == ("gate", ["surely right"])
    assert re.search(r"pinocchio certify LABELLED.jsonl --max-error 0\.\d+ --conf", line["remedy"])
    assert proxy.ask("p=0.95").headers[POLICY] != before, "the record tells the two apart"

    restarted = start()
    assert action(restarted, 0.95) == "block"
    assert len(of(lines, "certificate_withdrawn")) == 2, "said again, once for each start"
    write(tmp_path, certificate())  # the same again
    until(lambda: len(of(lines, "certificate_loaded")) > 2)
    assert action(restarted, 0.95) == "block"
    write(tmp_path, certificate(seed=3))
    until(lambda: action(restarted, 0.95) == "deliver")


def test_traffic_like_the_labelled_replies_keeps_the_certificate(
    start: Start, tmp_path: Path
) -> None:
    """300 replies with confidences like the labelled ones' withdraw nothing."""
    write(tmp_path, certificate())
    proxy = start()
    for confidence in confidences(300, seed=9):
        action(proxy, confidence)
    assert action(proxy) == "deliver"


def test_replies_outside_the_scope_are_not_watched(start: Start, tmp_path: Path) -> None:
    """A certificate for one model is neither used for others nor withdrawn because of them."""
    write(tmp_path, certificate(model="ok"))
    proxy = start()
    for _ in range(120):
        assert action(proxy, 0.6, model="split") == "block"
    assert (action(proxy, 0.95, model="split"), action(proxy, 0.95)) == ("block", "deliver")


def test_another_process_withdraws_for_this_one_too(
    start: Start, tmp_path: Path, lines: list[Any]
) -> None:
    """A withdrawal by one proxy holds for all that share the store."""
    issued = certificate()
    write(tmp_path, issued)
    proxy = start()
    assert action(proxy) == "deliver"
    findings = VerdictStore(f"sqlite:///{proxy.store_path}")
    digest = issued.grants[0].digest
    findings.withdraw(Withdrawal(digest, "gate", "all replies", "too_many_errors", time.time()))
    findings.close()
    until(lambda: of(lines, "certificate_withdrawn"))
    assert action(proxy) == "block"


# --- withdrawal on verdicts ---------------------------------------------------------------------


def give_verdicts(proxy: LiveProxy, sure: bool | None, unsure: bool | None) -> None:
    """Label 100 replies like the certified ones, the sure ones apart from the others."""
    findings = VerdictStore(f"sqlite:///{proxy.store_path}")
    for confidence in confidences(100):
        id = proxy.ask(question(confidence)).headers["x-pinocchio-request-id"]
        label = sure if confidence > 0.6 else unsure
        if label is not None:
            findings.give_verdict(id, label)
    findings.close()


def test_verdicts_that_find_too_many_errors_withdraw_the_certificate(
    start: Start, tmp_path: Path, lines: list[Any]
) -> None:
    """Too many errors withdraw the certificate, counted on replies that it let through."""
    write(tmp_path, certificate())
    proxy = start()
    give_verdicts(proxy, sure=True, unsure=False)
    time.sleep(2.5)
    assert action(proxy) == "deliver", "what was blocked says nothing about what was delivered"
    give_verdicts(proxy, sure=False, unsure=None)
    until(lambda: of(lines, "certificate_withdrawn"))
    [line] = of(lines, "certificate_withdrawn")
    assert line["reason"] == "too_many_errors"
    assert action(proxy) == "block"


def test_a_calibration_that_has_drifted_withdraws_every_grant_for_it(
    start: Start, tmp_path: Path, lines: list[Any]
) -> None:
    """An alarm of calibration withdraws every certificate of its calibrator, and no other's."""
    write(tmp_path, certificate())
    proxy = start()
    until(lambda: action(proxy) == "deliver")
    findings = VerdictStore(f"sqlite:///{proxy.store_path}")
    other = Monitor(MonitorKey("calibration", "words@2"), 9, {}, 5.0, "req_0")
    assert write_monitors(findings.engine, [other], Position(), Position("req_0", 9))
    time.sleep(1.5)  # the time of one look
    assert action(proxy) == "deliver"
    monitor = Monitor(MonitorKey("calibration", "words@1"), 9, {}, 5.0, "req_0")
    assert write_monitors(findings.engine, [monitor], Position("req_0", 9), Position("req_1", 9))
    until(lambda: of(lines, "certificate_withdrawn"))
    findings.close()
    assert action(proxy) == "block"
    [line] = of(lines, "certificate_withdrawn")
    assert line["reason"] == "calibration_drifted"


def test_offline_verdicts_count_at_next_start(
    start: Start, tmp_path: Path, lines: list[Any]
) -> None:
    """Verdicts that were given while no proxy ran count at the next start."""
    write(tmp_path, certificate())
    proxy = start()
    ids = [
        proxy.ask(question(confidence)).headers["x-pinocchio-request-id"]
        for confidence in confidences(60)
    ]
    proxy.stop()
    findings = VerdictStore(f"sqlite:///{proxy.store_path}")
    for id in ids:
        findings.give_verdict(id, False)
    findings.close()
    assert action(start(), 0.95) == "block"
    assert [line["reason"] for line in of(lines, "certificate_withdrawn")] == ["too_many_errors"]


# --- recent confidences -------------------------------------------------------------------------

LOWEST = """
version: 1
name: lowest
rules:
  - {name: least sure, when: {confidence: {lowest_share: 0.1}}, then: block}
default: deliver
"""


def test_the_least_sure_share_of_recent_replies_is_known_after_a_restart(start: Start) -> None:
    """No reply is among the least sure until 100 are known; after a restart the record has them."""
    proxy = start(LOWEST)
    for n in range(100):
        assert action(proxy, round(0.5 + n / 250, 4)) == "deliver"
    assert [action(proxy, c) for c in (0.51, 0.52, 0.7, 0.9)] == ["block"] * 2 + ["deliver"] * 2
    for n in range(260):
        named = {"model": f"new-{n}", "headers": {"x-faulty": "ok"}}
        expected = ("block", 0.5) if n % 20 == 0 else ("deliver", 0.99)
        assert action(proxy, expected[1], **named) == expected[0], "no name leaves the route"
    assert action(proxy, 0.501) == "block", "nor do many names make it forgotten"

    restarted = start(LOWEST)
    assert [action(restarted, c) for c in (0.5, 0.9)] == ["block", "deliver"]


def test_a_share_is_that_of_the_key_once_it_is_known(
    upstream: FaultyUpstream, tmp_path: Path
) -> None:
    """A share is counted among the key's own replies once there are enough."""
    proxy = LiveProxy(upstream.base_url, tmp_path, policy=LOWEST, **KEYS)
    ada, bob = (make_key(proxy.store_path, name=name)[0] for name in ("ada", "bob"))
    for secret in (ada, bob):
        wait_until_known(proxy.base_url, secret)

    def act(secret: str, confidence: float) -> str:
        return ask_with(proxy.base_url, secret, f"p={confidence}").headers[ACTION]

    for n in range(100):
        act(ada, round(0.5 + n / 250, 4))
    for n in range(60):
        ask_with(proxy.base_url, bob, f"{n} p=0.1")
    assert act(ada, 0.51) == "block"
    proxy.stop()


def test_a_share_counts_each_reply_once_and_streams_too(start: Start) -> None:
    """Each reply counts once, streams too; a stronger model's reply is ranked and not counted."""
    policy = LOWEST.replace("then: block", "then: {escalate: {to: say p=0.99}}")
    proxy = start(policy)
    for n in range(100):
        proxy.ask(question(round(0.5 + n / 250, 4)), stream=n % 2 == 0)
    for _ in range(5):
        assert action(proxy, 0.5) == "escalate"
    reply = proxy.ask("p=0.7")  # as sure as one, surer than 50 and 5
    [[facts]] = proxy.recorded(reply.headers["x-pinocchio-request-id"], "facts")
    assert (reply.headers[ACTION], facts["share_below"]) == ("deliver", 55.5 / 105)


# --- rules that need it -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["observe", "helpdesk", "agent-tools", "healthcare"])
def test_other_policies_pay_nothing(name: str) -> None:
    """For a policy without such rules, nothing is ranked or watched."""
    assert not load_policy(name).follows_traffic
