"""Figures that pages show of the record: exact for little traffic, bounded for much."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from proxy.store.database.database import open_engine
from proxy.store.database.verdicts import VerdictStore
from proxy.store.record.writer import COLUMNS, exchanges
from proxy.store.verdicts.statistics import (
    MOST_OF_A_SLICE,
    ExchangeFilter,
    Window,
    calibrator_in_force,
    judged_replies,
    latest,
    names,
    sample,
)
from tests.running.databases import execute

NOW = 1_795_000_000.0
DAY_S = 86_400
PLAIN: dict[str, Any] = {
    "upstream": "u",
    "key_hash": "k",
    "path": "/v1/chat/completions",
    "is_stream": False,
    "status": 200,
    "total_ms": 1.0,
    "overhead_ms": 0.1,
    "calibrator": "embedded@1",
}


@pytest.fixture
def engine(store_url: str) -> Iterator[sa.Engine]:
    found = open_engine(store_url)
    yield found
    found.dispose()


def recorded(engine: sa.Engine, count: int, at: float = NOW, **facts: Any) -> list[str]:
    """Store exchanges a millisecond apart, the last at `at`; return their ids in order."""
    rows = []
    for number in range(count):
        started_at = at - (count - 1 - number) / 1_000
        id = f"req_{round(started_at * 1_000):012x}{secrets.token_hex(10)}"
        fields = {"request_id": id, "started_at": started_at, **PLAIN, **facts}
        rows.append(dict.fromkeys(COLUMNS) | fields)
    with engine.begin() as connection:
        connection.execute(exchanges.insert(), rows)
    return [row["request_id"] for row in rows]


def test_little_traffic_is_unsampled(engine: sa.Engine) -> None:
    """With little traffic every exchange is in its slice with the weight of one."""
    recorded(engine, 3, NOW - 24.5 * DAY_S, model="a", confidence=0.2)
    recorded(engine, 5, NOW - 0.5 * DAY_S, model="b", team="t", confidence=0.8)
    recorded(engine, 7, NOW - 40 * DAY_S)
    found = sample(engine, Window(NOW - 30 * DAY_S, NOW))
    assert (found.total, found.is_exact) == (8, True)
    assert {(row.at, row.model, row.weight) for row in found.rows} == {(5, "a", 1), (29, "b", 1)}
    assert names(found.rows) == (["b", "a"], ["t"])
    assert found.a_day == pytest.approx(8 / 24.5, rel=1e-6)


def test_much_traffic_is_counted_and_sampled(engine: sa.Engine) -> None:
    """With much traffic each slice gives a sample, weighted by its share of all."""
    recorded(engine, 3 * MOST_OF_A_SLICE, NOW - 60, confidence=0.5)
    recorded(engine, 10, NOW - 10 * DAY_S)
    found = sample(engine, Window(NOW - 30 * DAY_S, NOW))
    assert (found.total, len(found.rows)) == (3 * MOST_OF_A_SLICE + 10, MOST_OF_A_SLICE + 10)
    assert sum(row.weight for row in found.rows) == pytest.approx(found.total)
    assert not found.is_exact


@pytest.mark.parametrize(("window", "hours"), [(1, 0.1), (7, 5), (30, 12)])
def test_minutes_of_traffic_say_nothing_about_a_day(
    engine: sa.Engine, window: int, hours: float
) -> None:
    """Minutes of traffic do not count as a day, whatever the window and its slices."""
    recorded(engine, 3, NOW - hours * DAY_S / 24)
    assert sample(engine, Window(NOW - window * DAY_S, NOW)).a_day is None
    recorded(engine, 3, NOW - 0.95 * DAY_S)
    assert sample(engine, Window(NOW - window * DAY_S, NOW)).a_day == pytest.approx(6 / 0.95)


def test_an_empty_record_is_no_error(engine: sa.Engine) -> None:
    found = sample(engine, Window(NOW - DAY_S, NOW))
    assert (found.total, found.rows, found.a_day) == (0, (), None)
    assert (latest(engine), judged_replies(engine, 0), calibrator_in_force(engine)) == (
        [],
        [],
        None,
    )


def test_the_latest_come_first_and_can_be_narrowed(engine: sa.Engine) -> None:
    """The latest exchanges come first, by model, team or action, or after a known one."""
    ids = recorded(engine, 3, NOW - 1, model="a", team="t", action="deliver")
    more = recorded(engine, 2, NOW, model="b", action="hold")
    assert [each.request_id for each in latest(engine)] == [*reversed(more), *reversed(ids)]
    assert [each.request_id for each in latest(engine, ExchangeFilter(model="a"), limit=2)] == ids[
        :0:-1
    ]
    assert latest(engine, ExchangeFilter(team="t", action="hold")) == []
    assert [each.request_id for each in latest(engine, after=more[0])] == [more[1]]
    assert calibrator_in_force(engine) == "embedded@1"


def held(url: str, id: str, **columns: Any) -> None:
    row: dict[str, Any] = {"id": id, "key_hash": "k", "state": "released", "queue": "q"}
    row |= {"model": "m", "policy": "p", "question": "?", "reply": b"{}", "on_expiry": "reject"}
    row |= {"created_at": NOW, "expires_at": NOW, **columns}
    placeholders = ", ".join(f":{name}" for name in row)
    execute(url, f"INSERT INTO held_replies ({', '.join(row)}) VALUES ({placeholders})", **row)


def test_held_reply_names_who_decided(engine: sa.Engine, store_url: str) -> None:
    recorded(engine, 1, review_id="h1", action="hold")
    held(store_url, "h1", kind="hold", decided_by="ada")
    [seen] = latest(engine)
    assert (seen.decided_by, seen.state) == ("ada", "released")


def test_the_latest_label_counts_with_the_reason_for_it(engine: sa.Engine, store_url: str) -> None:
    """The latest label counts with its origin: a held reply, an audited one with
    its share, or one that nobody drew; a reply without a confidence is left out.
    """
    kept, drawn, other, unscored = recorded(engine, 4, confidence=0.7, model="m")
    with engine.begin() as connection:
        of = exchanges.update()
        connection.execute(of.where(exchanges.c.request_id == kept).values(review_id="h1"))
        connection.execute(of.where(exchanges.c.request_id == unscored).values(confidence=None))
    held(store_url, "h1", kind="hold", request_id=kept)
    held(store_url, "audit_1", kind="audit", request_id=drawn, share=0.02)
    findings = VerdictStore(store_url)
    for id in (kept, drawn, other, unscored):
        findings.give_verdict(id, is_correct=False, reviewer="ada")
    findings.give_verdict(kept, is_correct=True, reviewer="ben")
    findings.close()
    found = {(each.stratum, each.share, each.is_correct) for each in judged_replies(engine, 0)}
    assert found == {("held", None, True), ("audited", 0.02, False), ("other", None, False)}
    assert judged_replies(engine, time.time() + 60) == []


@pytest.mark.slow
def test_a_million_exchanges_are_no_wait(tmp_path: Any) -> None:
    """With a million exchanges, each query of a page takes at most 300 ms of CPU."""
    engine = open_engine(f"sqlite:///{tmp_path}/held.db", is_durable=False)
    for part in range(20):
        recorded(engine, 50_000, NOW - part * DAY_S, confidence=0.5, model="a", team="t")
    for ask in (
        lambda: sample(engine, Window(NOW - 30 * DAY_S, NOW)),
        lambda: latest(engine),
        lambda: latest(engine, ExchangeFilter(model="nobody")),
        lambda: judged_replies(engine, 0),
    ):
        ask()
        began = time.process_time()
        ask()
        assert time.process_time() - began < 0.3
    engine.dispose()
