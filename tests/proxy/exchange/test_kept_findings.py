"""The calibrator's findings are decided on and
recorded, and quotes are kept only with the reply.
"""

from __future__ import annotations

import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from policies import parse_policy, replay
from proxy.store.database.database import open_engine
from proxy.store.record.reader import RecordedExchange, find, since
from tests.conftest import StartProxy
from tests.proxy.exchange.test_findings import BASIS, FOUND, SUPPORT, found_by
from tests.running.desk_client import API, DESK
from tests.running.live_proxy import LiveProxy, until
from tests.running.reviewing import decide

Json = dict[str, Any]
ID, ACTION = "x-pinocchio-request-id", "x-pinocchio-action"
HOLD = """
version: 1
name: grounded
rules:
  - {name: unsupported, when: {support: {below: 0.5}}, then: hold}
  - {name: ungrounded, when: {basis: {only: likeness}, act: refusal}, then: block}
default: deliver
"""


def recorded(proxy: LiveProxy, request_id: str) -> RecordedExchange:
    """Return the record of an exchange, once it is written."""
    engine = open_engine(f"sqlite:///{proxy.store_path}")
    try:
        until(lambda: find(engine, request_id) is not None)
        found = find(engine, request_id)
        assert found is not None
        return found
    finally:
        engine.dispose()


def texts_in(proxy: LiveProxy, table: str) -> str:
    """Return all that a table holds, as one text."""
    with closing(sqlite3.connect(proxy.store_path)) as connection:
        return repr(connection.execute(f"SELECT * FROM {table}").fetchall())


@pytest.mark.parametrize(
    ("answer", "action"),
    [
        ("p=0.9 support=0.49 basis=context", "hold"),
        ("p=0.1 support=0.51 basis=context", "deliver"),
        ("p=0.1", "deliver"),
        ("p=0.1 act=refusal", "block"),
        ("p=0.1 act=refusal basis=computed", "deliver"),
    ],
)
@pytest.mark.parametrize("is_stream", [False, True])
def test_rules_go_by_what_was_found(
    start_proxy: StartProxy, answer: str, action: str, is_stream: bool
) -> None:
    """Rules can use support, basis and act, and a stream that needs them is buffered."""
    reply = start_proxy(policy=HOLD).ask(answer, stream=is_stream)
    assert reply.headers[ACTION] == action


def test_the_record_has_what_was_found(proxy: LiveProxy) -> None:
    """The record has all findings that rules can use, and no quote of the reply."""
    found = recorded(proxy, proxy.ask(FOUND[0]).headers[ID])
    [facts] = found.facts
    assert facts.support == 0.12344
    assert facts.basis == ("context", "computed")
    assert (facts.act, facts.needs_facts, facts.familiar) == ("refusal", True, True)
    assert not found.lacks
    assert "noon" not in texts_in(proxy, "exchanges")


def test_each_choice_keeps_its_own(proxy: LiveProxy) -> None:
    """The record's columns are the least sure choice's; each choice has its own facts."""
    answer = "p=0.9 support=0.95 basis=context|p=0.2 task=unfamiliar|p=0.6 act=code"
    found = recorded(proxy, proxy.ask(answer, n=3).headers[ID])
    facts = [(each.support, each.basis, each.act, each.familiar) for each in found.facts]
    assert facts == [
        (0.95, ("context",), "answer", True),
        (None, ("likeness",), "answer", False),
        (None, ("likeness",), "code", True),
    ]


def test_without_a_score_nothing_was_found(start_proxy: StartProxy) -> None:
    """An exchange without a number lacks no findings, as there was nothing to find."""
    proxy = start_proxy(calibrator={"checkpoint": "none"}, scorer=None)
    found = recorded(proxy, proxy.ask("p=0.4").headers[ID])
    [facts] = found.facts
    assert (facts.support, facts.basis, facts.act, facts.familiar) == (None, (), None, None)
    assert not found.lacks


def test_a_replay_decides_as_it_was_decided(start_proxy: StartProxy) -> None:
    """A replay of the record decides as the proxy did; an older version's record lacks findings."""
    proxy = start_proxy(policy=HOLD, teams={})
    for answer in ("p=0.9 support=0.49 basis=context", "p=0.9 support=0.6 basis=context", "p=0.9"):
        last = proxy.ask(answer).headers[ID]
    recorded(proxy, last)
    engine = open_engine(f"sqlite:///{proxy.store_path}")
    policy = parse_policy(HOLD.replace("then: hold", "then: block"), "p.yaml")
    exchanges = [each for one in since(engine, 0) for each in one.exchanges()]
    side = replay(policy, exchanges).after
    assert (side.actions, side.unknown) == ({"block": 1, "deliver": 2}, 0)
    with closing(sqlite3.connect(proxy.store_path)) as connection, connection:
        connection.execute("UPDATE exchanges SET support = NULL, basis = NULL, act = NULL")
    exchanges = [each for one in since(engine, 0) for each in one.exchanges()]
    engine.dispose()
    assert {each.lacks for each in exchanges} == {
        frozenset({"support", "basis", "act", "needs_facts", "familiar"})
    }
    assert replay(policy, exchanges).after.unknown == 3


# What is held


def test_what_is_withheld_is_not_quoted(start_proxy: StartProxy) -> None:
    """The client of a held reply gets the findings without any sentence of the reply."""
    proxy = start_proxy(policy=HOLD)
    answer, found = FOUND
    held = proxy.ask(answer).json()
    found = {name: value for name, value in found.items() if name != "unsupported"}
    assert found_by(held["pinocchio"]) == found_by(held["pinocchio"]["choices"][0]) == found
    assert "noon" not in json.dumps(held)
    waiting = proxy.http.get(f"/v1/chat/completions/{held['id']}")
    assert "noon" not in waiting.text
    assert found_by(waiting.json()["pinocchio"]) == found
    assert (waiting.headers[SUPPORT], waiting.headers[BASIS]) == ("0.1234", "context,computed")


def test_a_released_reply_has_its_findings(start_proxy: StartProxy) -> None:
    """A released reply has all its findings, with its status and reason."""
    proxy = start_proxy(policy=HOLD)
    answer, found = FOUND
    answer += " task=unfamiliar"
    held = proxy.ask(answer).json()
    assert decide(f"sqlite:///{proxy.store_path}", held["id"], "released")
    member = proxy.http.get(f"/v1/chat/completions/{held['id']}").json()["pinocchio"]
    [quoted] = found["unsupported"]
    found = {**found, "unsupported": [{**quoted, "sentence": answer}]}
    assert found_by(member) == found_by(member["choices"][0]) == found
    assert (member["status"], member["reason"]) == ("unfamiliar", "unfamiliar_task")


def test_what_a_reviewer_rewrote_is_not_quoted(start_proxy: StartProxy) -> None:
    """A client that waits gets the edited text, and no sentence of the earlier one."""
    policy = HOLD.replace("then: hold", "then: {hold: {reply: wait, wait: 20s}}")
    proxy = start_proxy(policy=policy, **DESK)
    with ThreadPoolExecutor() as pool:
        asking = pool.submit(proxy.ask, FOUND[0])
        path = f"{API}/reviews"
        until(lambda: proxy.desk.get(path).json()["items"])
        [held] = proxy.desk.get(path).json()["items"]
        edit = {"verdict": "edit", "content": {"text": "We close at six."}}
        assert proxy.desk.post(f"{path}/{held['id']}/verdict", json=edit).status_code == 200
        reply = asking.result()
    assert reply.json()["choices"][0]["message"]["content"] == "We close at six."
    assert found_by(reply.json()["pinocchio"])["support"] == 0.1234
    assert "noon" not in reply.text
    fetched = proxy.http.get(f"/v1/chat/completions/{held['id']}")
    assert "noon" not in fetched.text


def test_logs_quote_nothing(start_proxy: StartProxy, capsys: pytest.CaptureFixture[str]) -> None:
    """A request's log line has basis and support, and no words of the reply."""
    proxy = start_proxy(policy=HOLD.replace("grounded", "logged"))
    last = proxy.ask(FOUND[0]).headers[ID]
    recorded(proxy, last)
    printed = capsys.readouterr().out
    assert "basis=context,computed" in printed
    assert "support=0.1234" in printed
    assert "noon" not in printed
