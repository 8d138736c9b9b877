"""Reads from the record: one exchange, or those since a time, with the facts that policies used."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from policies import Exchange, Facts, Policy
from proxy.store.database.verdicts import reading, verdicts
from proxy.store.record.facts import facts_in
from proxy.store.record.writer import exchanges, first_id
from proxy.store.reviews.held_replies import held_replies
from proxy.store.reviews.polls import poll_by

MOST_RECENT: Final = 50_000
"""How many exchanges are read to find recent confidences."""
LOOK_EVERY_S: Final = 0.05
"""Seconds between looks for an exchange that is not written yet."""
READ_AT_ONCE: Final = 500
"""How many rows a database returns at a time, where it would otherwise return all at once."""


@dataclass(frozen=True, slots=True)
class RecordedExchange:
    """One recorded exchange, with the facts of each choice that a policy decided on.

    `lacks` names the facts that this record does not hold, which then have their defaults.
    `is_correct` is the latest verdict, None if there is none.
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
    def policy_name(self) -> str:
        """The policy's name, from the label `policy/rule@digest`."""
        return (self.policy or "").partition("/")[0]

    @property
    def rule(self) -> str:
        """The rule's name, from the label `policy/rule@digest`."""
        return (self.policy or "").partition("/")[2].partition("@")[0]

    def is_by(self, policy: Policy) -> bool:
        """Return whether exactly this version of the policy decided."""
        digest = (self.policy or "").rpartition("@")[2]
        return (self.policy_name, digest) == (policy.name, policy.digest)

    def exchanges(self) -> list[Exchange]:
        """Return an `Exchange` of `policies` for each choice, for a replay of other policies.

        The verdict and the decision are left out where there are several choices, since they are
        about a reply of one.
        """
        is_correct = self.is_correct if len(self.facts) == 1 else None
        label = self.decision_label
        return [
            Exchange(facts, is_correct, self.started_at, self.lacks, label) for facts in self.facts
        ]

    @property
    def decision_label(self) -> str | None:
        """The label of a decision that was made from these facts alone, else None.

        It is None for several choices, and after an escalation, which had another reply.
        """
        is_of_these = len(self.facts) == 1 and self.escalated_from is None
        return self.policy if is_of_these else None


def find(engine: sa.Engine, id: str) -> RecordedExchange | None:
    """Return the exchange with this request id or review id, or None if there is none.

    For a request that asked again for a held reply (a poll), it is the exchange for which that
    reply was held. Raises StoreError.
    """
    recorded = next(_select(engine, _exchange_query().where(_is_about(engine, id))), None)
    review_id = None
    if recorded is None:
        poll = poll_by(engine, id)
        review_id = poll.review_id if poll else None
    if review_id is None:
        return recorded
    return next(_select(engine, _exchange_query().where(_is_about(engine, review_id))), recorded)


class OwnRecord:
    """The record as the holder of one key may read it, in a database that the caller opens."""

    def __init__(self, engine: Callable[[], sa.Engine]) -> None:
        self._engine = engine

    def find(self, request_id: str, key_hash: str, within_s: float) -> RecordedExchange | None:
        """Return the exchange with this id, if the key of this hash made it, or None.

        It looks again for `within_s` seconds, because the record is written after the reply. Call
        it from a thread. Raises StoreError.
        """
        until = time.monotonic() + within_s
        conditions = exchanges.c.request_id == request_id, exchanges.c.key_hash == key_hash
        query = _exchange_query().where(*conditions)
        while (recorded := next(_select(self._engine(), query), None)) is None:
            if time.monotonic() > until:
                return None
            time.sleep(LOOK_EVERY_S)
        return recorded


def _is_about(engine: sa.Engine, id: str) -> sa.ColumnElement[bool]:
    """Return the condition for the exchange with this request id (`req_..`) or review id.

    Held replies store the id of their exchange, which is found fast by it. The review id is
    compared where the held reply is gone.
    """
    if id.startswith("req_"):
        return exchanges.c.request_id == id
    with reading(engine) as connection:
        of_it = sa.select(held_replies.c.request_id).where(held_replies.c.id == id)
        request_id: str | None = connection.execute(of_it).scalar()
    if request_id is None:
        return exchanges.c.review_id == id
    return exchanges.c.request_id == sa.literal(request_id)


def since(engine: sa.Engine, started_at: float) -> Iterator[RecordedExchange]:
    """Yield the exchanges that policies decided on since a time, the oldest first.

    `started_at` is in seconds since the epoch. Exchanges without a decision are left out. Raises
    StoreError.
    """
    later = exchanges.c.request_id >= first_id(started_at)
    is_decided = exchanges.c.policy.is_not(None)
    return _select(
        engine, _exchange_query().where(later, is_decided).order_by(exchanges.c.request_id)
    )


def verdicts_after(engine: sa.Engine, id: int) -> list[tuple[int, RecordedExchange]]:
    """Return (number, exchange) of each verdict whose number is greater than `id`, in their order.

    Where several people labelled a reply, only the first verdict is returned, since monitors count
    a reply once. Raises StoreError.
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
    """A recent confidence that a policy used, of the model asked.

    `at` is in seconds since the epoch.
    """

    model: str
    confidence: float
    conversation: str | None
    at: float
    key: str | None = None  # the name that policies see
    calibrator: str | None = None  # the one that gave the confidence


def recent_confidences(engine: sa.Engine, policy: str) -> list[RecentConfidence]:
    """Return the confidences of the choices that a policy decided on lately, the oldest first.

    `policy` is its name. The latest `MOST_RECENT` exchanges are read. Raises StoreError.
    """
    row = exchanges.c
    others = row.confidence, row.conversation, row.started_at, row.key, row.calibrator
    columns = row.facts, row.model, *others
    query = sa.select(*columns).where(exchanges.c.policy.like(f"{policy}/%"))
    query = query.order_by(exchanges.c.request_id.desc()).limit(MOST_RECENT)
    with reading(engine) as connection:
        rows = connection.execute(query).all()
    found = []
    for text, model, confidence, *rest in reversed(rows):
        for values in json.loads(text or "[{}]"):  # ten times as fast as `facts_in`
            if (known := values.get("confidence", confidence)) is not None:
                model_name = values.get("model", model or "")
                found.append(RecentConfidence(model_name, known, *rest))
    return found


def _exchange_query() -> sa.Select[Any]:
    """Return the query for all columns of exchanges, and `is_correct`, the latest verdict."""
    latest = sa.select(verdicts.c.is_correct).order_by(verdicts.c.given_at.desc()).limit(1)
    latest = latest.where(verdicts.c.request_id == exchanges.c.request_id)
    return sa.select(*exchanges.c, latest.scalar_subquery().label("is_correct"))


def _select(engine: sa.Engine, query: sa.Select[Any]) -> Iterator[RecordedExchange]:
    """Yield the exchanges that a query finds, `READ_AT_ONCE` rows at a time; raises StoreError."""
    options = {"yield_per": READ_AT_ONCE}
    with (
        reading(engine) as connection,
        connection.execute(query, execution_options=options) as rows,
    ):
        names = tuple(rows.keys())
        for row in rows:
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


def _read(row: Mapping[str, Any]) -> RecordedExchange:
    """Return the exchange in a row, which has all columns by name, with its facts parsed."""
    facts, lacks = facts_in(row)
    shadowed = json.loads(row["shadowed"]) if row["shadowed"] else ()
    return RecordedExchange(
        facts=facts,
        lacks=lacks,
        shadowed=tuple((each["rule"], each["action"]) for each in shadowed),
        **{name: row[name] for name in _PLAIN},
    )
