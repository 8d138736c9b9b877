"""A client that asks again for a held reply is no traffic: it is counted as a poll of the hold."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from proxy.commands.app import cli as on_records
from proxy.exchange.polls import PolledReply
from proxy.learning.drift import look, monitor_states
from proxy.store.database.verdicts import VerdictStore
from proxy.store.record.reader import since
from proxy.store.retention import Retention
from proxy.store.reviews.held_replies import RELEASED
from proxy.store.verdicts.labels import totals
from proxy.store.verdicts.statistics import Window, latest, sample
from tests.proxy.actions.test_actions import decide
from tests.proxy.holds.test_approvals import HOLD, ask, asked
from tests.proxy.holds.test_holds import REVIEW_ID
from tests.running.live_proxy import LiveProxy, until
from tests.servers.faulty_upstream import FaultyUpstream
from tests.sharing.captured_logs import capture_logs

REQUEST_ID = "x-pinocchio-request-id"


@pytest.fixture
def holding(upstream: FaultyUpstream, tmp_path: Path) -> Iterator[LiveProxy]:
    """Yield a proxy with its own store."""
    proxy = LiveProxy(upstream.base_url, tmp_path, policy=HOLD)
    yield proxy
    proxy.stop()


def rows(proxy: LiveProxy, query: str) -> list[Any]:
    with closing(sqlite3.connect(proxy.store_path)) as connection:
        return connection.execute(query).fetchall()


def poll(proxy: LiveProxy, times: int) -> list[httpx.Response]:
    """Ask once, and as often again while nobody decides."""
    found = [ask(proxy, asked("p=0.1")) for _ in range(times + 1)]
    until(lambda: rows(proxy, "SELECT count(*) FROM polls") == [(times,)])
    until(lambda: rows(proxy, "SELECT count(*) FROM exchanges") != [(0,)])
    return found


def test_who_asks_again_makes_one_exchange(holding: LiveProxy) -> None:
    """Polls count as one exchange in record, traffic, samples, monitors, replays and totals."""
    first, *others = poll(holding, 12)
    assert {each.headers[REVIEW_ID] for each in others} == {first.headers[REVIEW_ID]}
    assert len({each.headers[REQUEST_ID] for each in others}) == 12, "each has an id of its own"
    findings = VerdictStore(f"sqlite:///{holding.store_path}")
    engine = findings.engine
    [seen] = latest(engine)
    assert (seen.request_id, seen.action, seen.polls) == (first.headers[REQUEST_ID], "hold", 12)
    assert sample(engine, Window(time.time() - 60, time.time() + 1)).total == 1
    assert len([*since(engine, 0.0)]) == 1
    assert totals(engine).held == 1
    look(engine, lag_s=-5)
    [monitor] = monitor_states(engine)
    findings.close()
    assert monitor.seen == 1


def test_a_released_call_that_is_fetched_is_no_exchange_either(holding: LiveProxy) -> None:
    """A released call that is fetched is no exchange, and the last poll has its outcome."""
    [first] = poll(holding, 0)
    assert decide(holding, first.headers[REVIEW_ID], RELEASED)
    assert ask(holding, asked("p=0.1")).status_code == 200
    until(lambda: rows(holding, "SELECT action, status FROM polls") == [("deliver", 200)])
    assert rows(holding, "SELECT count(*) FROM exchanges") == [(1,)]


def test_the_log_has_few_lines_of_polls(holding: LiveProxy) -> None:
    """The log has a line of the first poll, the tenth, and one whose answer differs."""
    with capture_logs() as lines:
        first, *_ = poll(holding, 12)
        assert decide(holding, first.headers[REVIEW_ID], RELEASED)
        ask(holding, asked("p=0.1"))
        until(lambda: rows(holding, "SELECT count(*) FROM polls") == [(13,)])
    polls = [(line.get("polls"), line["action"]) for line in lines if line["event"] == "request"]
    assert polls == [(None, "hold"), (1, "hold"), (10, "hold"), (13, "deliver")]


def test_a_thousand_polls_are_five_lines() -> None:
    again, lines = PolledReply("r"), 0
    for _ in range(1_000):
        again.count += 1
        lines += again.is_news("hold", None)
    assert lines == 4
    assert again.is_news("hold", "client_left")


def explain(proxy: LiveProxy, folder: Path, id: str, *options: str) -> str:
    config = folder / "explain.yaml"
    config.write_text(f"store: sqlite:///{proxy.store_path}\ncalibrator: {{checkpoint: none}}\n")
    done = CliRunner().invoke(on_records, ["explain", id, "--config", str(config), *options])
    assert done.exit_code == 0, done.output
    return done.output


def test_a_poll_is_explained_as_the_hold(holding: LiveProxy, tmp_path: Path) -> None:
    """A poll's id is explained by the held exchange, its state and the number of polls."""
    first, _, last = poll(holding, 2)
    id, held = last.headers[REQUEST_ID], first.headers[REVIEW_ID]
    output = explain(holding, tmp_path, id).splitlines()
    assert output[0] == f"{id} asked again for the reply that is held as {held}"
    assert output[1].startswith(first.headers[REQUEST_ID])
    assert output[-1] == (f"review {held}: waits for a reviewer; its client asked again 2 times")
    assert decide(holding, held, RELEASED)
    values = json.loads(explain(holding, tmp_path, id, "--json"))
    assert (values["is_poll"], values["request_id"]) == (True, first.headers[REQUEST_ID])
    assert (values["review"]["state"], values["review"]["polls"]) == ("released", 2)
    assert "is held as" not in explain(holding, tmp_path, held)


def test_feedback_on_what_a_poll_brought_is_on_the_hold(holding: LiveProxy) -> None:
    """Feedback under the id of the poll that brought the released reply counts for the hold."""
    first, *others = poll(holding, 2)
    ids = [each.headers[REQUEST_ID] for each in others]
    labels = [{"request_id": id, "correct": False} for id in ids]
    answer = holding.http.post("/pinocchio/v1/feedback", json={"feedback": labels}).json()
    assert answer["kept"] == 2
    kept = rows(holding, "SELECT request_id, is_correct FROM feedback")
    assert kept == [(first.headers[REQUEST_ID], 0)]


def test_polls_are_kept_as_long_as_exchanges(holding: LiveProxy) -> None:
    """Polls are deleted when the exchanges of their age are, and not before."""
    poll(holding, 3)
    url = f"sqlite:///{holding.store_path}"
    for keep_days, left in ((1.0, 3), (1e-9, 0)):
        retention = Retention(url, keep_days, 1.0)
        retention.forget()
        retention.close()
        assert rows(holding, "SELECT count(*) FROM polls") == [(left,)]
