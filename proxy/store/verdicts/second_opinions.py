"""Reports of second opinions and judges in the record: who was asked, and what they answered."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from proxy.store.database.verdicts import reading
from proxy.store.record.writer import exchanges, first_id
from proxy.store.verdicts.statistics import LOOKED_AT, Window

_HAS_OPINIONS: Final = '%"opinions":%'  # a pattern for the facts
_ASKED_ONE: Final = '%"second_opinion"%'  # a pattern for the calls
_HAS_SIGNALS: Final = '%"judge":%', '%"logprobs":%'  # patterns for the facts
_ASKED_JUDGE: Final = '%"judge"%'  # a pattern for the calls


@dataclass(frozen=True, slots=True)
class OpinionExchange:
    """An exchange with second opinions, asked for or not, or with signals.

    After an escalation, opinions are there without being asked for. `calls` are the recorded calls
    for a second opinion, `judging` those of a judge. `opinions` are the results of the comparisons:
    `agree`, `differ` or `untold`.
    """

    model: str | None
    team: str | None
    calibrator: str | None
    confidence: float | None
    review_id: str | None
    calls: tuple[Mapping[str, Any], ...]
    opinions: tuple[str, ...]
    judging: tuple[Mapping[str, Any], ...] = ()
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Hearings:
    """The exchanges with opinions or signals among the latest of a window.

    `is_whole` says whether all exchanges of the window were read.
    """

    rows: tuple[OpinionExchange, ...]
    is_whole: bool


def opinion_exchanges(engine: sa.Engine, window: Window, limit: int = LOOKED_AT) -> Hearings:
    """Return the exchanges with opinions or signals among the latest `limit` of a window.

    Raises StoreError.
    """
    row = exchanges.c
    inside = sa.and_(
        row.request_id >= first_id(window.since),
        row.request_id < first_id(window.until),
    )
    columns = row.model, row.team, row.calibrator, row.confidence, row.review_id
    newest = sa.select(*columns, row.calls, row.facts).where(inside)
    few = newest.order_by(row.request_id.desc()).limit(limit).subquery()
    in_facts = [few.c.facts.like(each) for each in (_HAS_OPINIONS, *_HAS_SIGNALS)]
    in_calls = [few.c.calls.like(each) for each in (_ASKED_ONE, _ASKED_JUDGE)]
    found = sa.select(few).where(sa.or_(*in_facts, *in_calls))
    with reading(engine) as connection:
        count = connection.execute(sa.select(sa.func.count()).select_from(few)).scalar() or 0
        rows = tuple(map(_read_exchange, connection.execute(found)))
    return Hearings(rows, count < limit)


def _read_exchange(row: Any) -> OpinionExchange:
    calls = json.loads(row.calls) if row.calls else []
    return OpinionExchange(
        row.model,
        row.team,
        row.calibrator,
        row.confidence,
        row.review_id,
        tuple(call for call in calls if call.get("purpose") == "second_opinion"),
        tuple(_opinions(row.facts)),
        tuple(call for call in calls if call.get("purpose") == "judge"),
    )


def _opinions(facts: str | None) -> Iterator[str]:
    for choice in json.loads(facts) if facts else []:
        yield from choice.get("opinions", ())
