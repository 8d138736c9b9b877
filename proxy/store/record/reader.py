"""Reading the record: one exchange, or those since a time, with the facts policies went by."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from policies import Exchange, Facts, Policy
from proxy.store.record.facts import facts_in
from proxy.store.record.writer import exchanges, first_id, is_first_request
from proxy.store.reviews.held_replies import held_replies
from proxy.store.reviews.polls import poll_by
from proxy.store.verdicts.verdicts import reading, verdicts

MOST_RECENT: Final = 50_000
"""So many exchanges are looked at to know what recent confidences were."""
LOOK_EVERY_S: Final = 0.05
"""An exchange that is not written yet is looked for."""
READ_AT_ONCE: Final = 500
"""Rows that a database hands over at a time, where it would hand over all of them."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One exchange; `facts` has one entry for each choice that a policy decided on, or none.

    `lacks` names the facts that this record does not have, which then stand at their defaults.
    `is_correct` is a verdict, None where nobody gave one.
    """

    request_id: str
    started_at: float
    status: int
    error: str | None
    model: str | None
    confidence: float | None
    confidence_status: str | None
    reason: str | None
    action: str | None
    would_action: str | None
    policy: str | None
    calibrator: str | None
    escalated_from: str | None
    facts: tuple[Facts, ...]
    lacks: frozenset[str]
    shadowed: tuple[tuple[str, str], ...]
    is_correct: bool | None
    review_id: str | None = None
    conversation: str | None = None
    upstream: str | None = None

    @property
    def is_poll(self) -> bool:
        """Whether a client only asked again for what is held, as earlier versions recorded it."""
        return self.upstream is None and self.review_id is not None

    @property
    def policy_name(self) -> str:
        """The name in the label `policy/rule@digest`."""
        return (self.policy or "").partition("/")[0]

    @property
    def rule(self) -> str:
        """The rule in the label, as it is written there."""
        return (self.policy or "").partition("/")[2].partition("@")[0]

    def is_by(self, policy: Policy) -> bool:
        """Whether this very version of the policy decided."""
        digest = (self.policy or "").rpartition("@")[2]
        return (self.policy_name, digest) == (policy.name, policy.digest)

    def exchanges(self) -> list[Exchange]:
        """What a replay looks at; a verdict, and a decision, are about a reply of one choice."""
        is_correct = self.is_correct if len(self.facts) == 1 else None
        label = self.decided_as
        return [
            Exchange(facts, is_correct, self.started_at, self.lacks, label) for facts in self.facts
        ]

    @property
    def decided_as(self) -> str | None:
        """The label of the decision, where it was made of these facts and nothing else: not of
        several choices, and not of another reply after an escalation."""
        is_of_these = len(self.facts) == 1 and self.escalated_from is None
        return self.policy if is_of_these else None


def find(engine: sa.Engine, id: str) -> Recorded | None:
    """The exchange with this request id, or the one whose reply is held under it.

    Of a request that asked again for a held reply it is the one that the reply was held for.
    """
    found = next(_select(engine, _recorded().where(_is_about(engine, id))), None)
    review_id = None
    if found is None:
        poll = poll_by(engine, id)
        review_id = poll.review_id if poll else None
    elif found.is_poll:
        review_id = found.review_id
    if review_id is None:
        return found
    return next(_select(engine, _recorded().where(_is_about(engine, review_id))), found)


class OwnRecord:
    """The record as one key may read it, in a database that somebody else opens."""

    def __init__(self, engine: Callable[[], sa.Engine]) -> None:
        self._engine = engine

    def find(self, request_id: str, key_hash: str, within_s: float) -> Recorded | None:
        """The exchange of this id and key; None where there is none, also after a while, since the
        record is written after the reply. Waits, so call it from a thread; raises StoreError."""
        until = time.monotonic() + within_s
        is_its = exchanges.c.request_id == request_id, exchanges.c.key_hash == key_hash
        query = _recorded().where(*is_its)
        while (found := next(_select(self._engine(), query), None)) is None:
            if time.monotonic() > until:
                return None
            time.sleep(LOOK_EVERY_S)
        return found


def _is_about(engine: sa.Engine, id: str) -> sa.ColumnElement[bool]:
    """A held reply knows its exchange, and is found at once; one of an older version does not."""
    if id.startswith("req_"):
        return exchanges.c.request_id == id
    with reading(engine) as connection:
        of_it = sa.select(held_replies.c.request_id).where(held_replies.c.id == id)
        request_id: str | None = connection.execute(of_it).scalar()
    if request_id is None:
        return exchanges.c.review_id == id
    return exchanges.c.request_id == sa.literal(request_id)


def since(engine: sa.Engine, started_at: float) -> Iterator[Recorded]:
    """What policies decided on from a time on, in seconds since the epoch, the oldest first."""
    later = exchanges.c.request_id >= first_id(started_at)
    decided = exchanges.c.policy.is_not(None), is_first_request
    return _select(engine, _recorded().where(later, *decided).order_by(exchanges.c.request_id))


def verdicts_after(engine: sa.Engine, id: int) -> list[tuple[int, Recorded]]:
    """The verdicts given after the one with this number, each with its own and its exchange.

    Of several people's on the same reply, the first: monitors count a reply once.
    """
    same = verdicts.alias()
    first = sa.select(sa.func.min(same.c.id)).where(same.c.request_id == verdicts.c.request_id)
    joined = verdicts.join(exchanges, exchanges.c.request_id == verdicts.c.request_id)
    columns = *exchanges.c, verdicts.c.is_correct, verdicts.c.id.label("verdict_id")
    query = sa.select(*columns).select_from(joined)
    query = query.where(verdicts.c.id > id, verdicts.c.id == first.scalar_subquery())
    query = query.order_by(verdicts.c.id)
    with reading(engine) as connection:
        found = connection.execute(query)
        rows = [dict(zip(found.keys(), row, strict=True)) for row in found]
    return [(row["verdict_id"], _read(row)) for row in rows]


class RecentConfidence(NamedTuple):
    """What a policy went by lately; `model` is the one asked, `at` in seconds since the epoch."""

    model: str
    confidence: float
    conversation: str | None
    at: float
    key: str | None = None  # the name that policies see
    calibrator: str | None = None  # that gave it


def recent_confidences(engine: sa.Engine, policy: str) -> list[RecentConfidence]:
    """Of the replies that a policy decided on lately, the oldest first."""
    row = exchanges.c
    told = row.confidence, row.conversation, row.started_at, row.key, row.calibrator
    columns = row.facts, row.model, *told
    query = sa.select(*columns).where(exchanges.c.policy.like(f"{policy}/%"), is_first_request)
    query = query.order_by(exchanges.c.request_id.desc()).limit(MOST_RECENT)
    with reading(engine) as connection:
        rows = connection.execute(query).all()
    found = []
    for text, model, confidence, *rest in reversed(rows):
        for values in json.loads(text or "[{}]"):  # as in `recorded_facts`, in a tenth of the time
            if (known := values.get("confidence", confidence)) is not None:
                named = values.get("model", model or "")
                found.append(RecentConfidence(named, known, *rest))
    return found


def _recorded() -> sa.Select[Any]:
    """Exchanges, each with the latest of its verdicts."""
    latest = sa.select(verdicts.c.is_correct).order_by(verdicts.c.given_at.desc()).limit(1)
    latest = latest.where(verdicts.c.request_id == exchanges.c.request_id)
    return sa.select(*exchanges.c, latest.scalar_subquery().label("is_correct"))


def _select(engine: sa.Engine, query: sa.Select[Any]) -> Iterator[Recorded]:
    options = {"yield_per": READ_AT_ONCE}
    with (
        reading(engine) as connection,
        connection.execute(query, execution_options=options) as found,
    ):
        names = tuple(found.keys())
        for row in found:
            yield _read(dict(zip(names, row, strict=True)))


_PLAIN: Final = (
    "request_id",
    "started_at",
    "status",
    "error",
    "model",
    "confidence",
    "confidence_status",
    "reason",
    "action",
    "would_action",
    "policy",
    "calibrator",
    "escalated_from",
    "is_correct",
    "review_id",
    "conversation",
    "upstream",
)


def _read(row: Mapping[str, Any]) -> Recorded:
    facts, lacks = facts_in(row)
    shadowed = json.loads(row["shadowed"]) if row["shadowed"] else ()
    return Recorded(
        facts=facts,
        lacks=lacks,
        shadowed=tuple((each["rule"], each["action"]) for each in shadowed),
        **{name: row[name] for name in _PLAIN},
    )
