"""Held replies, and those drawn to be audited: the replies that people review.

A held reply is written before the client learns that it is held. Another process may release it
(`pinocchio reviews`). The bytes kept are those that upstream sent. Replies that call tools are
bound to the request that they answer, see `proxy/holds/binding.py`.
"""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
import structlog
from sqlalchemy.exc import SQLAlchemyError

from proxy.errors import StoreError, TooManyHeldError
from proxy.http.wire.caller import ANYONE, Caller
from proxy.store.database.chain import note_change
from proxy.store.database.client_keys import client_keys
from proxy.store.database.database import cause, open_async_engine, open_engine, storable
from proxy.store.database.tables import metadata, path_of, place_of
from proxy.store.reviews.events import event_values, insert_event, review_events
from proxy.store.reviews.standing import Call, candidates, match_calls, use

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

log = structlog.get_logger(__name__)

HOLD, AUDIT = "hold", "audit"
HELD, RELEASED, REJECTED, EXPIRED = "held", "released", "rejected", "expired"
ESCALATED = "escalated"  # an event: a reply was moved to another queue, where it stays held
STATES = (HELD, RELEASED, REJECTED, EXPIRED)
OPEN = "open"  # the public name of HELD
STATE_NAMES = (OPEN, RELEASED, REJECTED, EXPIRED)
BLOCKED = "blocked"  # no state, but what `on_expiry` may say
ON_EXPIRY = {"reject": EXPIRED, "deliver": RELEASED, "block": BLOCKED}
EXPIRED_AT_ONCE = 200  # rows in a transaction, so that other writers wait briefly
COUNT_EVERY_S, FEWEST_LEFT = 1.0, 100  # seconds; replies below the limit, where each is counted
IN_ALL = "limits.max_held"
HELD_ALREADY = "a reply to this request is held already; ask for it again"
MOST_OF_ONE_REQUEST = 20  # held replies read for one request, the newest first
_IS_BOUND = "SELECT 1 FROM held_replies WHERE request_digest = ? LIMIT 1"

_held = sa.Table(
    "held_replies",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("key_hash", sa.String, nullable=False),  # of the only key that may fetch it
    sa.Column("state", sa.String, nullable=False, index=True),
    sa.Column("queue", sa.String, nullable=False),
    sa.Column("model", sa.String, nullable=False),
    sa.Column("policy", sa.String, nullable=False),
    sa.Column("confidence", sa.Float, nullable=True),
    sa.Column("calibrator", sa.String, nullable=True),
    sa.Column("question", sa.Text, nullable=False),
    sa.Column("reply", sa.LargeBinary, nullable=False),
    sa.Column("created_at", sa.Float, nullable=False, index=True),  # seconds since the epoch
    sa.Column("expires_at", sa.Float, nullable=False),
    sa.Column("decided_at", sa.Float, nullable=True),
    sa.Column("on_expiry", sa.String, nullable=False, server_default="reject"),
    sa.Column("request_digest", sa.String, nullable=True, index=True),  # of a bound reply
    sa.Column("rule_digest", sa.String, nullable=True),
    sa.Column("calls", sa.Text, nullable=True),
    sa.Column("taken_at", sa.Float, nullable=True),  # when a bound reply was first handed out
    sa.Column("kind", sa.String, nullable=False, server_default=HOLD),
    sa.Column("request_id", sa.String, nullable=True, index=True),  # of its exchange
    sa.Column("team", sa.String, nullable=True),
    sa.Column("path", sa.String, nullable=True),  # the request's, after `/v1`
    sa.Column("request", sa.LargeBinary, nullable=True),  # its body, as the client sent it
    sa.Column("revised", sa.LargeBinary, nullable=True),  # a reviewer's edit of the reply
    sa.Column("decided_by", sa.String, nullable=True),
    sa.Column("note", sa.Text, nullable=True),
    sa.Column("share", sa.Float, nullable=True),  # the probability with which an audit was drawn
    sa.Column("approvals", sa.Integer, nullable=True),  # how many it needs; null: one
    sa.Column("approved", sa.Text, nullable=True),  # JSON: by whom, where it needs several
    sa.Column("proposed", sa.LargeBinary, nullable=True),  # an edit that others have to approve
    sa.Column("escalate_at", sa.Float, nullable=True),  # null once it has moved
    sa.Column("escalate_to", sa.String, nullable=True),  # the queue to which it moves, or has moved
    sa.Column("findings", sa.Text, nullable=True),  # JSON: the calibrator's, which quote the reply
)
held_replies = _held
sa.Index(  # the queue's order and filters, so that only the rows shown are read
    "review_order",
    *(_held.c.state, _held.c.confidence, _held.c.created_at, _held.c.id),
    *(_held.c.queue, _held.c.team, _held.c.kind),
)
sa.Index("review_expiry", _held.c.state, _held.c.expires_at)
sa.Index("review_escalation", _held.c.escalate_at)
sa.Index("review_decided", _held.c.decided_at)
sa.Index("held_of_key", _held.c.key_hash, _held.c.state)


@dataclass(frozen=True, slots=True)
class HeldReply:
    """One reply that a policy holds; times are seconds since the epoch.

    With `kind` AUDIT it was delivered, and drawn with probability `share` to be labelled.

    A reply with a `request_digest` is bound to that request: `rule_digest` is that of the rule that
    held it, `calls` are its tool calls as `proxy.holds.binding.digest_of_calls` gives them.
    """

    id: str
    key_hash: str
    queue: str
    model: str
    policy: str
    confidence: float | None
    calibrator: str | None
    question: str
    reply: bytes
    created_at: float
    expires_at: float
    state: str = HELD
    decided_at: float | None = None
    on_expiry: str = "reject"
    request_digest: str | None = None
    rule_digest: str | None = None
    calls: str | None = None
    taken_at: float | None = None
    kind: str = HOLD
    request_id: str | None = None
    team: str | None = None
    path: str | None = None
    request: bytes | None = None
    revised: bytes | None = None
    decided_by: str | None = None
    note: str | None = None
    share: float | None = None
    approvals: int | None = None
    approved: str | None = None
    proposed: bytes | None = None
    escalate_at: float | None = None
    escalate_to: str | None = None
    findings: str | None = None

    @property
    def quorum(self) -> int:
        """The number of people who have to approve it."""
        return self.approvals or 1

    @property
    def edit(self) -> bytes | None:
        """A reviewer's edit of the reply, also one still to be approved by others, or None."""
        return self.revised if self.proposed is None else self.proposed

    @property
    def as_proposed(self) -> HeldReply:
        """The reply with the edit that waits for approval as its content, if there is one."""
        return self if self.proposed is None else replace(self, reply=self.proposed)

    @property
    def released_bytes(self) -> bytes:
        """The bytes that a client gets after a release: a reviewer's edit, or upstream's reply."""
        return self.reply if self.revised is None else self.revised

    @property
    def is_forgotten(self) -> bool:
        """Whether its content has been deleted, see `retention.py`."""
        return not self.reply

    @property
    def is_bound(self) -> bool:
        """Whether only the same request, by its digest, can get the reply."""
        return self.request_digest is not None

    @property
    def current_state(self) -> str:
        """The state that counts now: the stored one, or the one that follows from the time.

        If nobody decided in time, the policy's `on_expiry` counts. A bound reply that was released
        and not fetched in time has expired too, since its calls may no longer be right.
        """
        is_late = self.expires_at <= time.time()
        if self.state == EXPIRED or (self.state == HELD and is_late):
            return ON_EXPIRY[self.on_expiry]
        is_stale = self.state == RELEASED and is_late and self.is_bound
        return EXPIRED if is_stale and self.on_expiry != "deliver" else self.state


def _wait_for_others(connection: sa.Connection, held: HeldReply) -> None:
    """Take a lock, in PostgreSQL, that other transactions holding for the same request take too.

    PostgreSQL may still commit the transaction of a proxy that was killed. SQLite has one writer,
    and nothing is done there.
    """
    if held.request_digest is not None and connection.dialect.name == "postgresql":
        lock = int.from_bytes(hashlib.sha256(held.request_digest.encode()).digest()[:7])
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(lock)))


def _same_request_query(held: HeldReply, requested_at: float) -> sa.Select[Any]:
    """Return the query for the id of another open reply, held for the same request and rule.

    It was created before `requested_at`, but not stored yet when the request looked for one, else
    the request would have got it.
    """
    same = (_held.c.request_digest, held.request_digest), (_held.c.key_hash, held.key_hash)
    is_same = [
        column == value for column, value in (*same, (_held.c.rule_digest, held.rule_digest))
    ]
    is_earlier = _held.c.id != held.id, _held.c.created_at < requested_at
    is_open = _held.c.state == HELD, _held.c.expires_at > time.time()
    return sa.select(_held.c.id).where(*is_same, *is_earlier, *is_open).limit(1)


class BoundReplies:
    """A quick check, on the event loop, of whether a reply may be bound to a request.

    Nearly all requests have no such reply, and every request with tools under a policy that holds
    is checked. A SQLite store is read by a connection of its own, opened by the first check; a
    reader of its write-ahead log never waits. PostgreSQL is not asked.
    """

    def __init__(self, url: str) -> None:
        self._path = path_of(url)
        self._reader: sqlite3.Connection | None = None

    def may_have(self, request_digest: str) -> bool:
        """Return whether a reply may be bound to the request with this digest.

        Returns True if only the database can know: with PostgreSQL, and when SQLite fails.
        """
        if self._path is None:
            return True
        try:
            if self._reader is None:
                uri = f"{self._path.resolve().as_uri()}?mode=ro"
                self._reader = sqlite3.connect(uri, timeout=0, uri=True)
            return bool(self._reader.execute(_IS_BOUND, (request_digest,)).fetchone())
        except sqlite3.Error:
            return True

    def close(self) -> None:
        """Close the connection; the next check opens another one."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None


class Store:
    """The held replies, for the event loop; each method raises StoreError if the database fails."""

    def __init__(self, url: str, max_held: int = 100_000) -> None:
        self.url = url
        self._max_held = max_held
        self._engine: AsyncEngine | None = None
        self._is_open = False
        self._bound = BoundReplies(url)
        self._counted = 0, -COUNT_EVERY_S  # held replies, and the monotonic time of the count

    async def open(self) -> None:
        """Create or migrate the database, and allow its use."""
        (await asyncio.to_thread(open_engine, self.url)).dispose()
        self._is_open = True

    async def aclose(self) -> None:
        """Close the connections; later calls raise StoreError."""
        self._is_open = False
        self._bound.close()
        if self._engine is not None:
            await self._engine.dispose()
            self._engine = None

    async def hold(
        self, held: HeldReply, caller: Caller = ANYONE, requested_at: float | None = None
    ) -> None:
        """Store a held reply with its event; it is durable when this returns.

        Raises TooManyHeldError where as many replies as allowed are held, in all or for the
        caller's key or team, and StoreError.

        `requested_at` is when the request came. A client may ask, leave and ask again, and the
        first reply be held only now. Then a bound reply to the second request is refused with
        StoreError.
        """
        row = row_of(held)
        try:
            async with self._open_engine().begin() as connection:
                await connection.run_sync(_wait_for_others, held)
                for most, waiting, limit_name in self._limits(caller):
                    if (count := (await connection.execute(waiting)).scalar_one()) >= most:
                        raise TooManyHeldError(f"{most} replies are held already ({limit_name})")
                    if limit_name == IN_ALL:
                        self._counted = count, time.monotonic()
                await connection.execute(_held.insert(), row)
                if held.is_bound and requested_at is not None:
                    others = await connection.execute(_same_request_query(held, requested_at))
                    if others.first() is not None:
                        raise StoreError(HELD_ALREADY)
                await connection.execute(insert_event(held.id, held.state, held.created_at))
                await connection.run_sync(note_change, "held", _held, _held.c.id == held.id)
        except SQLAlchemyError as error:
            raise StoreError(f"the reply could not be stored: {cause(error)}") from error
        self._counted = self._counted[0] + 1, self._counted[1]

    def _has_room(self) -> bool:
        """Return whether the last count is recent and far below the limit of all held replies.

        Then no new count is needed: counting a long queue is slow.
        """
        count, at = self._counted
        is_far = self._max_held - count > max(FEWEST_LEFT, self._max_held / 10)
        return is_far and time.monotonic() - at < COUNT_EVERY_S

    def _limits(self, caller: Caller) -> Iterator[tuple[int, sa.Select[Any], str]]:
        """Yield the limits to check as (most replies, query for their count, name for the message).

        The limit of all is left out where `_has_room`.
        """
        is_waiting = _held.c.state == HELD, _held.c.kind == HOLD  # audits have their own limit
        waiting = sa.select(sa.func.count()).select_from(_held).where(*is_waiting)
        if not self._has_room():
            yield self._max_held, waiting, IN_ALL
        if caller.max_held is not None:
            of_key = waiting.where(_held.c.key_hash == caller.id)
            yield caller.max_held, of_key, f"max_held of key {caller.id}"
        if caller.team_max_held is not None:
            team_keys = sa.select(client_keys.c.id).where(client_keys.c.team == caller.team)
            of_team = waiting.where(_held.c.key_hash.in_(team_keys))
            yield caller.team_max_held, of_team, f"max_held of team {caller.team}"

    async def get(self, id: str) -> HeldReply | None:
        """Return the reply with this id as it is stored, or None."""
        rows = await self._select(sa.select(_held).where(_held.c.id == id))
        return rows[0] if rows else None

    def may_have(self, request_digest: str) -> bool:
        """Return whether a reply may be bound to this request; for nearly all requests it is False.

        If True, `of_request` has to look.
        """
        return self._bound.may_have(request_digest)

    async def of_request(self, request_digest: str, key_hash: str) -> Sequence[HeldReply]:
        """Return the replies bound to this request and key, the newest first.

        At most `MOST_OF_ONE_REQUEST` are returned.
        """
        condition = sa.and_(_held.c.request_digest == request_digest, _held.c.key_hash == key_hash)
        newest = sa.select(_held).where(condition).order_by(_held.c.created_at.desc())
        return await self._select(newest.limit(MOST_OF_ONE_REQUEST))

    async def open_ids(self, ids: Collection[str]) -> set[str]:
        """Return the ids of those replies that are still held."""
        query = sa.select(_held.c.id).where(_held.c.id.in_(ids), _held.c.state == HELD)
        return {row[0] for row in await self._rows(query)}

    async def take(self, id: str, again_s: float) -> bool:
        """Mark a bound reply as fetched by the client, and return whether it may have it.

        True the first time, and again for `again_s` seconds after that.
        """
        first = _held.update().where(_held.c.id == id, _held.c.taken_at.is_(None))
        if await self._change(first.values(taken_at=time.time()), "taken", id):
            return True
        may_again = _held.c.id == id, _held.c.taken_at > time.time() - again_s
        return bool(await self._rows(sa.select(_held.c.id).where(*may_again)))

    async def use_standing(
        self, key_hash: str, rule_digest: str, calls: Sequence[Call]
    ) -> list[str] | None:
        """Count one use of a standing approval for each call; return the sorted ids of those used.

        Approvals of this key and rule count. Returns None, and counts nothing, where a call is not
        covered.
        """
        tools = {tool for tool, _ in calls}
        if any(storable(tool) != tool for tool in tools):  # no approval is given for such a name
            return None
        rows = await self._rows(candidates(key_hash, rule_digest, tools))
        ids = [*match_calls(calls, rows)]
        if not rows or not all(ids):
            return None
        try:
            async with self._open_engine().connect() as connection:
                used: list[str] | None = await connection.run_sync(use, ids)
                await (connection.rollback() if used is None else connection.commit())
        except SQLAlchemyError as error:
            raise StoreError(f"the store cannot be written: {cause(error)}") from error
        return used

    def _open_engine(self) -> AsyncEngine:
        """Return the engine, which the first call creates.

        Raises StoreError if the store is not open. Most proxies hold nothing, and the import takes
        memory.
        """
        if not self._is_open:
            raise StoreError(f"the store {place_of(self.url)} is not open")
        if self._engine is None:
            self._engine = open_async_engine(self.url)
        return self._engine

    async def _select(self, query: sa.Select[Any]) -> Sequence[HeldReply]:
        """Execute a query for all columns, and return the replies; raises StoreError."""
        return [HeldReply(**row._mapping) for row in await self._rows(query)]

    async def _rows(self, query: sa.Select[Any]) -> Sequence[sa.Row[Any]]:
        """Execute a query and return all its rows; raises StoreError."""
        try:
            async with self._open_engine().connect() as connection:
                rows: Sequence[sa.Row[Any]] = (await connection.execute(query)).all()
        except SQLAlchemyError as error:
            raise StoreError(f"the store cannot be read: {cause(error)}") from error
        return rows

    async def _change(self, statement: sa.Update, kind: str, id: str) -> bool:
        """Execute an update of the reply `id`; return whether it matched. Raises StoreError.

        If it did, the change is noted in the audit chain with this `kind`, such as "taken".
        """
        try:
            async with self._open_engine().begin() as connection:
                is_done = (await connection.execute(statement)).rowcount == 1
                if is_done:
                    await connection.run_sync(note_change, kind, _held, _held.c.id == id)
        except SQLAlchemyError as error:
            raise StoreError(f"the store cannot be written: {cause(error)}") from error
        return is_done


def expire_some(connection: sa.Connection) -> int:
    """Mark up to `EXPIRED_AT_ONCE` replies that nobody decided in time as expired, and commit.

    Returns how many, 0 when none are left.
    """
    now = time.time()
    is_late = _held.c.state == HELD, _held.c.expires_at <= now
    return _change_some(connection, is_late, {"state": EXPIRED, "decided_at": now}, EXPIRED, now)


def escalate_some(connection: sa.Connection) -> int:
    """Move up to `EXPIRED_AT_ONCE` replies that are due to the queue `escalate_to`, and commit.

    Returns how many, 0 when none are left; logs the number. Each reply moves once, even if several
    processes do this at the same time.
    """
    now = time.time()
    is_due = _held.c.escalate_at <= now, _held.c.state == HELD, _held.c.expires_at > now
    moved = {"queue": _held.c.escalate_to, "escalate_at": None}
    if count := _change_some(connection, is_due, moved, ESCALATED, now):
        log.info("reviews_escalated", reviews=count)
    return count


def _change_some(
    connection: sa.Connection,
    which: Iterable[sa.ColumnElement[bool]],
    values: dict[str, Any],
    event: str,
    now: float,
) -> int:
    """Update up to `EXPIRED_AT_ONCE` of the rows `which`, with an event for each, and commit.

    Returns how many were changed.
    """
    batch = sa.select(_held.c.id).where(*which).limit(EXPIRED_AT_ONCE)
    if not connection.execute(batch.limit(1)).all():
        return 0  # the usual case, which takes no lock
    connection.rollback()  # SQLite may refuse to write in a transaction that has read
    change = _held.update().where(_held.c.id.in_(batch.with_for_update(skip_locked=True)))
    change = change.values(values).returning(_held.c.id)
    if ids := connection.execute(change).scalars().all():
        connection.execute(review_events.insert(), [event_values(id, event, now) for id in ids])
        note_change(connection, event, _held, _held.c.id.in_(ids))
    connection.commit()
    return len(ids)


def state_name(state: str) -> str:
    """Return the public name of a stored state: `open` for HELD, the same word for all others."""
    return OPEN if state == HELD else state


def stored_state(name: str) -> str | None:
    """Return the stored state for a public name (HELD for `open`); None for an unknown name."""
    if name not in STATE_NAMES:
        return None
    return HELD if name == OPEN else name


def row_of(held: HeldReply) -> dict[str, Any]:
    """Return the column values of a reply for an insert, with texts as `storable` gives them."""
    return {column.name: storable(getattr(held, column.name)) for column in _held.columns}
