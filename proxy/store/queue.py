"""The review queue as people use it: pages, decisions, labels and counts.

Methods wait for the database, so call them from a thread. Each raises StoreError. A decision, its
label and its event are one transaction.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from proxy.errors import StoreError
from proxy.store.database.chain import note_change
from proxy.store.database.database import LazyEngine, cause, storable
from proxy.store.database.notifications import DECIDED, notify
from proxy.store.database.verdicts import keep_label, reading, verdicts
from proxy.store.record.writer import DAY_S, exchanges, first_id
from proxy.store.reviews.approvals import Approval, approve
from proxy.store.reviews.events import (
    KEPT_S,
    ReviewEvent,
    event_columns,
    insert_event,
    review_events,
)
from proxy.store.reviews.held_replies import (
    AUDIT,
    EXPIRED,
    HELD,
    RELEASED,
    HeldReply,
    escalate_some,
    expire_some,
    held_replies,
    row_of,
)
from proxy.store.reviews.standing import (
    StandingApproval,
    StandingRequest,
    approvals_query,
    give,
    revoke,
)
from proxy.store.reviews.used_links import LinkUse, forget_uses, use_up

MOST_TURNS = 500  # events read at once
_LISTED = (
    *("id", "kind", "state", "queue", "team", "model", "policy", "confidence", "calibrator"),
    *("request_id", "created_at", "expires_at", "on_expiry"),
    *("decided_at", "decided_by", "path", "approvals", "approved"),
    *("escalate_at", "escalate_to", "findings"),
)
SEEN_QUEUES: ContextVar[frozenset[str] | None] = ContextVar("seen_queues", default=None)
"""The queues that the current reviewer may see; None means all."""
MOST_LISTED = 65_536  # bytes of a request or reply that a line of the queue includes
_BEGINNING = sa.func.substr(held_replies.c.question, 1, 500)
Place = tuple[float | None, float, str]
"""Where a page ends: confidence, time and id of its last reply."""


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """A line of the queue: a HeldReply with only the beginning of its question.

    Where the bytes are longer than `MOST_LISTED`, `reply` is empty, and `request` and `edit` are
    None.
    """

    id: str
    kind: str
    state: str
    queue: str
    team: str | None
    model: str
    policy: str
    confidence: float | None
    calibrator: str | None
    question: str
    request_id: str | None
    created_at: float
    expires_at: float
    on_expiry: str
    decided_at: float | None
    decided_by: str | None
    path: str | None = None
    approvals: int | None = None
    approved: str | None = None
    escalate_at: float | None = None
    escalate_to: str | None = None
    findings: str | None = None
    reply: bytes = b""
    request: bytes | None = None
    edit: bytes | None = None

    @property
    def quorum(self) -> int:
        """The number of people who have to approve the reply, 1 by default."""
        return self.approvals or 1

    @property
    def place(self) -> Place:
        """The entry's place in the order of pages: (confidence, time of the hold, id)."""
        return self.confidence, self.created_at, self.id


@dataclass(frozen=True, slots=True)
class Label:
    """A reviewer's judgement of a reply: correct or not."""

    reviewer: str
    is_correct: bool
    given_at: float
    note: str | None


class ReviewQueue:
    """The review queue of the store at `url`; the first method that needs the database opens it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._engine = LazyEngine(url)

    @property
    def engine(self) -> sa.Engine:
        return self._engine.get()

    def close(self) -> None:
        self._engine.close()

    # --- reading --------------------------------------------------------------------------------

    def page(
        self, state: str, limit: int, after: Place | None = None, **narrowed: str | None
    ) -> list[QueueEntry]:
        """Return up to `limit` replies in a state, unscored ones first, then by rising confidence.

        Replies past their time are expired first. `after` is the `place` of the last reply of the
        page before. `narrowed` may name a `queue`, `team` or `kind`; only queues in `SEEN_QUEUES`
        are read. Two queries read two ranges of one index, since databases differ in how they sort
        nulls.
        """
        self.expire()
        table = held_replies.c
        columns = [*(table[name] for name in _LISTED), _small("request")]
        columns.append(sa.func.coalesce(_small("reply"), b"").label("reply"))
        columns.append(sa.func.coalesce(_small("proposed"), _small("revised")).label("edit"))
        query = sa.select(*columns, _BEGINNING.label("question")).where(table.state == state)
        if (seen := SEEN_QUEUES.get()) is not None:
            query = query.where(table.queue.in_(sorted(seen)))
        if state == HELD:
            query = query.where(table.expires_at + 0 > time.time())  # `+ 0`: not by its own index
        for name, value in narrowed.items():
            if value is not None:
                query = query.where(table[name] == storable(value))
        entries: list[QueueEntry] = []
        order: tuple[sa.Column[Any], ...] = (table.created_at, table.id)
        if after is None or after[0] is None:
            unscored = query.where(table.confidence.is_(None))
            entries += self._list_entries(
                unscored, (table.created_at, table.id), after and after[1:], limit
            )
            after = None
        if len(entries) < limit:
            scored = query.where(table.confidence.is_not(None))
            order = (table.confidence, *order)
            entries += self._list_entries(scored, order, after, limit - len(entries))
        return entries

    def count(self, state: str, **narrowed: str | None) -> int:
        """Return how many replies have a state, in all queues, also those not in `SEEN_QUEUES`.

        `narrowed` may name a `queue`, `team` or `kind`. Held replies past their time do not count.
        """
        table = held_replies.c
        query = sa.select(sa.func.count()).select_from(held_replies).where(table.state == state)
        if state == HELD:
            query = query.where(table.expires_at + 0 > time.time())
        for name, value in narrowed.items():
            if value is not None:
                query = query.where(table[name] == storable(value))
        return int(self._rows(query)[0][0])

    def ids_like(self, text: str) -> list[str]:
        """Return up to two ids that begin with a text, or have it after a dash or underscore.

        Two mean that the text is ambiguous.
        """
        column = held_replies.c.id
        inside = [column.contains(f"{mark}{text}", autoescape=True) for mark in "-_"]
        query = sa.select(column).where(sa.or_(column.startswith(text, autoescape=True), *inside))
        return [row[0] for row in self._rows(query.order_by(column).limit(2))]

    def _list_entries(
        self, query: sa.Select[Any], order: Sequence[sa.Column[Any]], after: Any, limit: int
    ) -> list[QueueEntry]:
        """Return up to `limit` entries of a query, sorted by `order`, after the values `after`.

        With `after` None it begins with the first.
        """
        if after is not None:
            query = query.where(sa.tuple_(*order) > sa.tuple_(*map(sa.literal, after)))
        return [
            QueueEntry(**row._mapping) for row in self._rows(query.order_by(*order).limit(limit))
        ]

    def get(self, id: str) -> HeldReply | None:
        """Return one reply by its id, or None if there is none or its queue is not seen.

        A held reply whose time is over is first marked as expired. Seen queues are those in
        `SEEN_QUEUES`.
        """
        rows = self._rows(sa.select(held_replies).where(held_replies.c.id == storable(id)))
        held = HeldReply(**rows[0]._mapping) if rows else None
        if held is not None and held.state == HELD and held.expires_at <= time.time():
            self._expire(held)
            return self.get(id)
        seen = SEEN_QUEUES.get()
        return held if held is None or seen is None or held.queue in seen else None

    def labels(self, held: HeldReply) -> list[Label]:
        """Return the reviewers' labels of a reply, the oldest first."""
        return self.labels_and_events(held)[0]

    def labels_and_events(self, held: HeldReply) -> tuple[list[Label], list[ReviewEvent]]:
        """Return (labels of a reply by reviewers, its events), each the oldest first.

        At most `MOST_TURNS` events are returned.
        """
        columns = verdicts.c.reviewer, verdicts.c.is_correct, verdicts.c.given_at, verdicts.c.note
        of_it = verdicts.c.request_id == held.request_id  # None equals nothing
        label_query = sa.select(*columns).where(of_it).order_by(verdicts.c.id)
        event_query = event_columns().where(review_events.c.review_id == held.id)
        with reading(self.engine) as connection:
            labels = [Label(**row._mapping) for row in connection.execute(label_query)]
            events = connection.execute(event_query.order_by(review_events.c.id).limit(MOST_TURNS))
            return labels, [ReviewEvent(**row._mapping) for row in events]

    def events_after(self, number: int) -> list[ReviewEvent]:
        """Return the events with a greater number, the oldest first, `MOST_TURNS` at most."""
        later = event_columns().where(review_events.c.id > number)
        rows = self._rows(later.order_by(review_events.c.id).limit(MOST_TURNS))
        return [ReviewEvent(**row._mapping) for row in rows]

    def last_event(self) -> int:
        """Return the number of the latest event, or 0 if there is none."""
        [row] = self._rows(sa.select(sa.func.coalesce(sa.func.max(review_events.c.id), 0)))
        return int(row[0])

    # --- counts ---------------------------------------------------------------------------------

    def open_counts(self) -> list[dict[str, Any]]:
        """Return a row for each queue and kind with open replies: their counts and times.

        It has `queue`, `kind`, `count`, `oldest_at`, mean `confidence`, `time_used`, the largest
        share, 0 to 1, of its time that one has waited, and `escalated`, how many came from another
        queue, in which nobody decided.
        """
        table, now = held_replies.c, time.time()
        lifetime_s = sa.func.nullif(table.expires_at - table.created_at, 0)
        used = (now - table.created_at) / lifetime_s
        has_moved = sa.and_(table.escalate_to.is_not(None), table.escalate_at.is_(None))
        columns = (
            *(table.queue, table.kind, sa.func.count().label("count")),
            sa.func.min(table.created_at).label("oldest_at"),
            sa.func.avg(table.confidence).label("confidence"),
            sa.func.max(used).label("time_used"),
            sa.func.sum(sa.case((has_moved, 1), else_=0)).label("escalated"),
        )
        query = sa.select(*columns).where(table.state == HELD).group_by(table.queue, table.kind)
        rows = self._rows(query.order_by(table.queue, table.kind))
        return [dict(row._mapping) for row in rows]

    def decided_counts(self, since: float) -> list[dict[str, Any]]:
        """Return how many replies were decided since a time, by day, reviewer and state.

        Each row has `day` (number since the epoch), `decided_by`, `state`, `count` and mean
        `confidence`.
        """
        table = held_replies.c
        day = sa.cast(sa.func.floor(table.decided_at / DAY_S), sa.Integer)
        columns = (
            *(day.label("day"), table.decided_by, table.state, sa.func.count().label("count")),
            sa.func.avg(table.confidence).label("confidence"),
        )
        query = sa.select(*columns).where(table.decided_at >= since)
        query = query.group_by(day, table.decided_by, table.state)
        return [dict(row._mapping) for row in self._rows(query.order_by(day))]

    def traffic(self, since: float) -> dict[str, Any]:
        """Return `count`, mean `confidence` and `actions` of the recorded exchanges since a time.

        `actions` maps each action's name (`none` without one) to its count. The mean is None if
        nothing was scored. `since` is in seconds since the epoch.
        """
        row = exchanges.c
        columns = (row.action, sa.func.count(), sa.func.count(row.confidence))
        query = sa.select(*columns, sa.func.sum(row.confidence)).group_by(row.action)
        rows: Sequence[Any] = self._rows(query.where(row.request_id >= first_id(since)))
        scored = sum(each[2] for each in rows)
        total = sum(each[3] or 0.0 for each in rows)
        return {
            "count": sum(each[1] for each in rows),
            "confidence": total / scored if scored else None,
            "actions": {each[0] or "none": each[1] for each in rows},
        }

    # --- changing -------------------------------------------------------------------------------

    def decide(
        self,
        held: HeldReply,
        state: str,
        reviewer: str,
        *,
        is_correct: bool | None = None,
        revised: bytes | None = None,
        note: str | None = None,
        revision: str | None = None,
        link: LinkUse | None = None,
        standing: StandingRequest | None = None,
    ) -> HeldReply | None:
        """Decide on an open reply: `state` is RELEASED or REJECTED.

        Return the changed reply, or None.

        None means that nothing was decided: the reply is decided or expired, the `link` was used
        before, or another edit than `revision` (see `approvals.py`) is waiting. If several people
        have to approve, the reply stays held until the last of them does. With `is_correct` a label
        is stored. `revised` is the edited reply. A `link` is used up by the decision. `standing`
        asks to approve calls like these too. All of it is one transaction.
        """
        with self._change_transaction() as connection:
            verdict = "approve" if state == RELEASED else "reject"
            if link is not None and not use_up(connection, link, verdict):
                return None
            if held.quorum == 1 or state != RELEASED:
                after = _store_decision(
                    connection, held, state, reviewer, is_correct, revised, note
                )
                if after is not None and standing is not None:
                    give(connection, held, standing, reviewer)
            else:
                approval = Approval(
                    reviewer, is_correct, revised, storable(note), revision, standing
                )
                after = approve(connection, held, approval)
            if after is None:
                connection.rollback()  # nothing was decided, so the link stays unused
            return after

    def standing_approvals(self, *, is_all: bool = False) -> list[StandingApproval]:
        """Return the standing approvals of the queues that are seen: those in force, or all."""
        rows = self._rows(approvals_query(SEEN_QUEUES.get(), is_all=is_all))
        return [StandingApproval(**row._mapping) for row in rows]

    def standing_by_id(self, id: str) -> StandingApproval | None:
        """Return a standing approval, in force or not.

        Returns None if there is none in the queues that are seen.
        """
        rows = self._rows(approvals_query(SEEN_QUEUES.get(), is_all=True, id=id))
        return StandingApproval(**rows[0]._mapping) if rows else None

    def revoke(self, id: str, by: str) -> bool:
        """End a standing approval; return False if there is none, or it was revoked before."""
        with self._change_transaction() as connection:
            return revoke(connection, id, by)

    def audit_of(self, request_id: str) -> HeldReply | None:
        """Return the audited reply of an exchange that still waits for a verdict, or None."""
        conditions = held_replies.c.request_id == request_id, held_replies.c.kind == AUDIT
        query = sa.select(held_replies).where(*conditions, held_replies.c.state == HELD)
        rows = self._rows(query.limit(1))
        return HeldReply(**rows[0]._mapping) if rows else None

    def rehearse(self) -> None:
        """Decide on a made-up reply and roll it back, so that the first real decision is not slow.

        It compiles the statements and opens a connection. Errors are ignored; the first real use of
        the database raises them.
        """
        with suppress(StoreError):
            self.try_to_hold()

    def try_to_hold(self, reply: bytes = b"") -> None:
        """Write a held reply and a decision on it, and roll both back; raises StoreError."""
        now = time.time()
        held = HeldReply(
            id=f"rehearsal-{secrets.token_hex(8)}",
            key_hash="",
            queue="",
            model="",
            policy="",
            confidence=None,
            calibrator=None,
            question="",
            reply=reply,
            created_at=now,
            expires_at=now + DAY_S,
            request_id="",
        )
        self.get(held.id)
        with self._change_transaction() as connection:
            connection.execute(held_replies.insert().values(row_of(held)))
            _store_decision(connection, held, RELEASED, "", True, None, None)
            connection.rollback()

    def give_label(
        self, request_id: str, is_correct: bool, reviewer: str, note: str | None
    ) -> None:
        """Store a reviewer's label of a reply, in place of an earlier one by the same reviewer."""
        with self._change_transaction() as connection:
            keep_label(connection, request_id, is_correct, reviewer, storable(note))

    def expire(self, slices: int = 1) -> None:
        """Mark replies past their time as expired, and move those that are due to be escalated.

        Does at most `slices` transactions of each of the two. Raises StoreError.
        """
        try:
            with self.engine.connect() as connection:
                for work in (expire_some, escalate_some):
                    for _ in range(slices):
                        if work(connection) == 0:
                            break
        except SQLAlchemyError as error:
            raise StoreError(f"the store cannot be written: {cause(error)}") from error

    def _expire(self, held: HeldReply) -> None:
        """Mark one reply as expired, with its event, unless it is no longer held."""
        now, table = time.time(), held_replies.c
        change = held_replies.update().where(table.id == held.id, table.state == HELD)
        with self._change_transaction() as connection:
            if connection.execute(change.values(state=EXPIRED, decided_at=now)).rowcount:
                connection.execute(insert_event(held.id, EXPIRED, now))
                note_change(connection, "expired", held_replies, table.id == held.id)

    def forget_events(self) -> None:
        """Delete the events, and the uses of links, that are older than `KEPT_S`."""
        with self._change_transaction() as connection:
            is_old = review_events.c.at < time.time() - KEPT_S
            connection.execute(review_events.delete().where(is_old))
            forget_uses(connection)

    def _rows(self, query: sa.Select[Any]) -> Sequence[sa.Row[Any]]:
        """Execute a query and return all its rows; raises StoreError."""
        with reading(self.engine) as connection:
            return connection.execute(query).all()

    @contextmanager
    def _change_transaction(self) -> Iterator[sa.Connection]:
        """Open a transaction, committed at the end; an error of the database becomes StoreError."""
        try:
            with self.engine.begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise StoreError(f"the store cannot be written: {cause(error)}") from error


def _small(name: str) -> sa.Label[Any]:
    """Return a column of bytes that is NULL where they are longer than `MOST_LISTED`."""
    column = held_replies.c[name]
    return sa.case((sa.func.length(column) <= MOST_LISTED, column)).label(name)


def _store_decision(
    connection: sa.Connection,
    held: HeldReply,
    state: str,
    reviewer: str,
    is_correct: bool | None,
    revised: bytes | None,
    note: str | None,
) -> HeldReply | None:
    """Store one person's decision on an open reply, its event and label; return the changed reply.

    None if the reply is decided or past its time. Other proxies are notified, and the change is
    noted in the audit chain.
    """
    now, table = time.time(), held_replies.c
    values: dict[str, Any] = {"state": state, "decided_at": now, "decided_by": reviewer}
    values |= {"revised": revised, "note": storable(note)}
    is_open = sa.and_(table.id == held.id, table.state == HELD, table.expires_at > now)
    if connection.execute(held_replies.update().where(is_open).values(**values)).rowcount != 1:
        return None
    connection.execute(insert_event(held.id, state, now, reviewer))
    if is_correct is not None and held.request_id is not None:
        keep_label(connection, held.request_id, is_correct, reviewer, storable(note))
    notify(connection, DECIDED, held.id)
    note_change(connection, "decided", held_replies, table.id == held.id)
    return replace(held, **values)
