"""The random audit: which delivered replies enter the queue, and what their labels say."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from policies import InvalidDocumentError
from proxy.config.sections import load_config
from proxy.learning.labels import read_labels
from proxy.store.database.verdicts import VerdictStore
from proxy.store.queue import ReviewQueue
from proxy.store.reviews import audit_writer
from proxy.store.reviews.audit_writer import AuditWriter
from proxy.store.reviews.held_replies import AUDIT, HeldReply, Store
from proxy.store.verdicts import statistics
from tests.conftest import StartProxy
from tests.running.client_keys import ask_with, make_key, wait_until_known
from tests.running.desk_client import API, DESK, logged_in
from tests.running.live_proxy import LiveProxy, run_cli, streaming, until
from tests.running.reviewing import decide
from tests.sharing.captured_logs import capture_logs

HOLD = """
version: 1
name: careful
rules:
  - {name: unsure, when: {confidence: {below: 0.3}}, then: hold}
  - {name: odd, when: {confidence: {below: 0.4}}, then: block}
default: deliver
"""


@pytest.fixture(scope="module")
def proxy(start_proxy: StartProxy) -> LiveProxy:
    """Start a proxy that audits every delivered reply."""
    return start_proxy(policy=HOLD, audit={"share": 1.0}, limits={"max_held": 1}, **DESK)


def audits(proxy: LiveProxy) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(proxy.store_path)) as connection:
        connection.row_factory = sqlite3.Row
        rows = connection.execute("SELECT * FROM held_replies WHERE kind = 'audit'")
        return [dict(row) for row in rows]


def is_recorded(proxy: LiveProxy, request_id: str) -> bool:
    with closing(sqlite3.connect(proxy.store_path)) as connection:
        query = "SELECT 1 FROM exchanges WHERE request_id = ?"
        return connection.execute(query, (request_id,)).fetchone() is not None


def audit_of(proxy: LiveProxy, request_id: str) -> dict[str, Any]:
    """Return the audited reply of an exchange, once it is written."""

    def found() -> list[dict[str, Any]]:
        return [each for each in audits(proxy) if each["request_id"] == request_id]

    until(found)
    [one] = found()
    return one


def test_a_delivered_reply_is_kept_as_it_was_asked_and_answered(proxy: LiveProxy) -> None:
    """The row has both bodies, the audit's share, and the record's fields of the exchange."""
    body = b'{"model": "ok",  "messages": [{"role": "user", "content": "why? p=0.8"}]}'
    reply = proxy.post_raw(body)
    kept = audit_of(proxy, reply.headers["x-pinocchio-request-id"])
    assert kept["id"].startswith("audit_")
    assert kept["request"] == body
    assert reply.body.startswith(kept["reply"][:-1])  # without the member that was added
    assert (kept["share"], kept["confidence"], kept["state"]) == (1.0, 0.8, "held")
    assert kept["question"] == "why? p=0.8"
    assert kept["expires_at"] - kept["created_at"] == 14 * 86_400


def test_the_queue_does_not_say_that_a_delivered_reply_will_be_rejected(
    proxy: LiveProxy, tmp_path: Path
) -> None:
    """The queue does not say that an audited reply will be
    rejected when its time is up: the client has it already.
    """
    kept = audit_of(proxy, proxy.ask("p=0.85").headers["x-pinocchio-request-id"])
    (tmp_path / "proxy.yaml").write_text(f"store: sqlite:///{proxy.store_path}\n")
    listed = run_cli("reviews", "list", "--config", str(tmp_path / "proxy.yaml")).stdout
    [line] = [line for line in listed.splitlines() if kept["id"] in line]
    assert "to be checked within 14 d" in line
    assert "reject" not in line
    config = str(tmp_path / "proxy.yaml")
    output = json.loads(run_cli("reviews", "show", kept["id"], "--json", "--config", config).stdout)
    reviewed = proxy.desk.get(f"{API}/reviews/{kept['id']}").json()
    assert (output["on_expiry"], reviewed["on_expiry"]) == (None, None)
    with logged_in(proxy) as client:
        page = client.get(f"/console/reviews/{kept['id']}").text
    assert "then it is taken off the queue" in page


def test_a_stream_is_kept_as_one_completion(proxy: LiveProxy) -> None:
    """A stream is stored as one completion, so that a reviewer sees its text."""
    live = {"model": "ok", "messages": [{"role": "user", "content": "in parts p=0.7"}]}
    watching = proxy.http.post("/v1/chat/completions", json=live | {"stream": True})
    assert watching.headers["content-type"].startswith("text/event-stream")
    kept = [each for each in audits_after(proxy, "in parts p=0.7")]
    assert b"in parts p=0.7" in kept[0]["reply"]
    assert kept[0]["reply"].startswith(b"{")


def audits_after(proxy: LiveProxy, text: str) -> list[dict[str, Any]]:
    def found() -> list[dict[str, Any]]:
        return [each for each in audits(proxy) if each["question"] == text]

    until(found)
    return found()


def test_a_live_stream_is_kept_too(start_proxy: StartProxy) -> None:
    """A live stream under a policy that only observes is stored once it is scored."""
    proxy = start_proxy(audit={"share": 1.0})
    with streaming(proxy, "lively p=0.6", "ok") as (response, parts):
        for _ in parts:
            pass
    kept = audit_of(proxy, response.headers["x-pinocchio-request-id"])
    assert b"lively p=0.6" in kept["reply"]
    assert (kept["confidence"], kept["path"]) == (0.6, "/chat/completions")


def test_what_was_not_delivered_as_one_scored_reply_is_not_drawn(proxy: LiveProxy) -> None:
    """Held, blocked and failed replies and those with several choices are never audited."""
    refused = [
        proxy.ask("p=0.1"),
        proxy.ask("p=0.35"),
        proxy.ask("p=0.9", model="status-500"),
        proxy.ask("p=0.9", n=2),
    ]
    last = proxy.ask("p=0.95").headers["x-pinocchio-request-id"]
    audit_of(proxy, last)  # what was drawn before it is written by now
    ids = {each["request_id"] for each in audits(proxy)}
    assert ids.isdisjoint(each.headers.get("x-pinocchio-request-id") for each in refused)


def test_no_client_can_fetch_an_audited_reply(proxy: LiveProxy) -> None:
    """A request for an audited reply's id goes upstream, which does not know it."""
    kept = audit_of(proxy, proxy.ask("p=0.9").headers["x-pinocchio-request-id"])
    found = proxy.http.get(f"/v1/chat/completions/{kept['id']}")
    assert kept["reply"] not in found.content
    assert "x-pinocchio-review-id" not in found.headers


def hold(proxy: LiveProxy, text: str) -> httpx.Headers:
    """Return the headers of a reply that is held, after deleting all other held replies."""
    with closing(sqlite3.connect(proxy.store_path)) as connection, connection:
        connection.execute("DELETE FROM held_replies WHERE kind = 'hold'")
    return proxy.ask(text).headers


def test_audits_do_not_count_as_held(proxy: LiveProxy) -> None:
    """With `max_held: 1` and dozens of audits in the queue, a reply can still be held."""
    for _ in range(3):
        proxy.ask("p=0.9")
    assert hold(proxy, "p=0.2")["x-pinocchio-action"] == "hold"


def test_the_stated_share_is_drawn(start_proxy: StartProxy) -> None:
    """Of 300 replies with a share of 0.3 about 90 are kept: between 58 and 125 in all but one of
    30,000 runs.
    """
    proxy = start_proxy(audit={"share": 0.3})
    for _ in range(300):
        proxy.ask("p=0.9")
    until(lambda: len(audits(proxy)) >= 58)
    assert 58 <= len(audits(proxy)) <= 125


def test_without_a_share_nothing_is_kept(start_proxy: StartProxy) -> None:
    """By default nothing is audited, and no thread is started for it."""
    proxy = start_proxy()
    proxy.ask("p=0.9")
    assert audits(proxy) == []


def test_a_team_may_have_its_own_share(start_proxy: StartProxy) -> None:
    """A team's own share counts for its replies alone."""
    proxy = start_proxy(
        keys="required", teams={"support": {"audit_share": 1.0}}, upstream={"api_key": "sk-x"}
    )
    for team in ("support", None):
        secret, _ = make_key(proxy.store_path, team=team)
        wait_until_known(proxy.base_url, secret)
        ask_with(proxy.base_url, secret, f"of {team} p=0.9")
    [kept] = audits_after(proxy, "of support p=0.9")
    assert kept["team"] == "support"
    assert len(audits(proxy)) == 1


def test_labels_stand_for_what_they_were_drawn_from(proxy: LiveProxy) -> None:
    """Audited, held and other labelled replies are distinguished, by their latest verdict."""
    ids = {
        name: proxy.ask(f"{name} p={p}").headers["x-pinocchio-request-id"]
        for name, p in (("audited", 0.9), ("twice", 0.8), ("blocked", 0.35))
    }
    held = hold(proxy, "held p=0.25")
    findings = VerdictStore(f"sqlite:///{proxy.store_path}")
    audit_of(proxy, ids["twice"])
    until(lambda: proxy.recorded(held["x-pinocchio-request-id"], "facts"))
    for name, is_correct in (("audited", True), ("twice", True), ("blocked", False)):
        findings.give_verdict(ids[name], is_correct, "ann")
    findings.give_verdict(ids["twice"], False, "bob")
    findings.give_verdict(held["x-pinocchio-request-id"], True, "ann")
    found = read_labels(findings.engine)
    replies = {each.request_id: each for each in found.replies}
    findings.close()
    assert replies[ids["audited"]].stratum == "audited"
    audited = replies[ids["audited"]]
    assert (audited.score, audited.confidence) == (None, 0.9)  # nothing recalibrates it here
    assert replies[ids["audited"]].model.startswith("ok")
    assert replies[ids["twice"]].is_correct is False  # bob's came later
    assert ids["blocked"] not in replies
    assert found.undrawn == 1
    assert replies[held["x-pinocchio-request-id"]].stratum == "held"
    assert sum(found.of("delivered").weights()) == pytest.approx(found.totals.delivered)


def test_who_changes_their_mind_speaks_last(proxy: LiveProxy) -> None:
    """A label that replaces an older one counts, in estimates and on pages."""
    id = proxy.ask("twice more p=0.77").headers["x-pinocchio-request-id"]
    audit_of(proxy, id)
    proxy.recorded(id, "facts")
    findings = VerdictStore(f"sqlite:///{proxy.store_path}")
    for is_correct, reviewer in ((False, "ann"), (False, "bob"), (True, "ann")):
        findings.give_verdict(id, is_correct, reviewer)
    [label] = [each for each in read_labels(findings.engine).replies if each.request_id == id]
    rows, *_ = statistics.judged_replies(findings.engine, 0.0)
    findings.close()
    assert label.is_correct
    assert (rows.confidence, rows.is_correct) == (0.77, True)


def test_a_reviewers_verdict_at_the_desk_is_a_label(start_proxy: StartProxy) -> None:
    """A verdict at the desk on an audited reply counts as a label in estimates."""
    proxy = start_proxy(audit={"share": 1.0}, **DESK)
    id = proxy.ask("p=0.8").headers["x-pinocchio-request-id"]
    audit_of(proxy, id)
    [listed] = proxy.desk.get(f"{API}/reviews", params={"kind": "audit"}).json()["items"]
    verdict = {"verdict": "reject", "correct": False}
    decided = proxy.desk.post(f"{API}/reviews/{listed['id']}/verdict", json=verdict)
    assert decided.status_code == 200, decided.text
    proxy.recorded(id, "facts")
    findings = VerdictStore(f"sqlite:///{proxy.store_path}")
    [labelled] = read_labels(findings.engine).replies
    findings.close()
    assert (labelled.request_id, labelled.is_correct) == (id, False)
    assert (labelled.stratum, labelled.share, labelled.confidence) == ("audited", 1.0, 0.8)


def test_a_verdict_on_the_command_line_is_one_too(proxy: LiveProxy, tmp_path: Path) -> None:
    """A verdict on the command line takes the audited reply out of the queue."""
    id = proxy.ask("by hand p=0.9").headers["x-pinocchio-request-id"]
    audit_of(proxy, id)
    until(lambda: is_recorded(proxy, id))  # the record is written apart from the audit
    path = tmp_path / "proxy.yaml"
    path.write_text(f"store: sqlite:///{proxy.store_path}\n")
    run_cli("label", id, "wrong", "--as", "ann", "--config", str(path))
    [kept] = [each for each in audits(proxy) if each["request_id"] == id]
    assert (kept["state"], kept["decided_by"]) == ("rejected", "ann")
    queue = ReviewQueue(f"sqlite:///{proxy.store_path}")
    held = queue.get(kept["id"])
    assert held is not None
    assert [(each.reviewer, each.is_correct) for each in queue.labels(held)] == [("ann", False)]
    assert queue.audit_of(id) is None
    queue.close()


def drawn(number: int, reply: bytes = b"{}") -> HeldReply:
    now = 4_000_000_000.0
    return HeldReply(
        id=f"audit_{number}", key_hash="k", queue="audit", model="m", policy="", confidence=0.5,
        calibrator="c", question="half a pair \ud83d", reply=reply, created_at=now,
        expires_at=now + 1, kind=AUDIT, request_id=f"req_{number}", share=0.1,
    )  # fmt: skip


def test_what_is_too_much_is_shed_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Audits beyond the waiting bytes or `MAX_OPEN` in the queue are dropped and counted."""
    monkeypatch.setattr(audit_writer, "MAX_OPEN", 2)
    writer = AuditWriter(f"sqlite:///{tmp_path / 'a.db'}", max_bytes=10_000)
    with capture_logs() as lines:
        writer.add(drawn(0, b"x" * 20_000))
    assert writer.shed == 1
    assert lines == [
        {"event": "audits_shed", "count": 1, "reason": "queue_full", "log_level": "error"}
    ]
    for number in range(1, 5):
        writer.add(drawn(number))
    writer.close()
    assert writer.shed == 3
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        ids = {id for (id,) in connection.execute("SELECT id FROM held_replies")}
    assert ids == {"audit_1", "audit_2"}


def test_a_store_that_cannot_be_opened_sheds_audits(tmp_path: Path) -> None:
    """Audits that no store can take are counted, and adding one raises nothing."""
    writer = AuditWriter(f"sqlite:///{tmp_path / 'no' / 'such' / 'a.db'}")
    writer.add(drawn(0))
    writer.close()
    assert writer.shed == 1


async def test_audits_can_be_decided_on(tmp_path: Path) -> None:
    """Audits in the store can be decided on like other reviews."""
    url = f"sqlite:///{tmp_path / 'a.db'}"
    writer, store = AuditWriter(url), Store(url)
    writer.add(drawn(0))
    writer.close()
    await store.open()
    assert decide(store.url, "audit_0", "released")
    await store.aclose()


@pytest.mark.parametrize(
    "text",
    ["audit: {share: 0.1, keep_days: 40}", "audit: {share: 0.1}\nrecords: {keep_days: 0}"],
)
def test_audits_without_their_record_are_refused(tmp_path: Path, text: str) -> None:
    """An audit without records is refused, as its labels
    would be useless; the error names the key to change.
    """
    path = tmp_path / "proxy.yaml"
    path.write_text(text)
    with pytest.raises(InvalidDocumentError, match=r"raise records\.keep_days"):
        load_config(path)
