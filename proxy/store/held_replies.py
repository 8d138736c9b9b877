"""Held replies, and those drawn to be audited: what people are asked to review.

A held reply is written before the client hears that it is held; whoever releases it may do so
from another process (`pinocchio reviews`). The bytes kept are those that upstream sent. Replies
that call tools are bound to the request that they answer, see `approvals.py`.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from proxy.callers import ANYONE, Caller
from proxy.errors import StoreError
from proxy.store.client_keys import client_keys
from proxy.store.database import cause, metadata, open_engine, path_of, set_pragmas
from proxy.store.review_events import happened

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

HOLD, AUDIT = "hold", "audit"
HELD, RELEASED, REJECTED, EXPIRED = "held", "released", "rejected", "expired"
STATES = (HELD, RELEASED, REJECTED, EXPIRED)
BLOCKED = "blocked"  # no state, but what an expired reply may come to
ON_EXPIRY = {"reject": EXPIRED, "deliver": RELEASED, "block": BLOCKED}
MOST_OF_ONE_REQUEST = 20  # held replies of one request that are looked at, the newest first

_held = sa.Table(
    "held_replies",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("key_hash", sa.String, nullable=False),  # of the key that asked; only it may fetch
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
    sa.Column("path", sa.String, nullable=True),  # that was asked, after `/v1`
    sa.Column("request", sa.LargeBinary, nullable=True),  # its body, as the client sent it
    sa.Column("revised", sa.LargeBinary, nullable=True),  # what a reviewer wrote in its place
    sa.Column("decided_by", sa.String, nullable=True),
    sa.Column("note", sa.Text, nullable=True),
    sa.Column("share", sa.Float, nullable=True),  # the probability with which an audit was drawn
)
held_replies = _held
sa.Index(  # the order of the queue, with all that it can be narrowed to: rows are read when shown
    "review_order",
    *(_held.c.state, _held.c.confidence, _held.c.created_at, _held.c.id),
    *(_held.c.queue, _held.c.team, _held.c.kind),
)
sa.Index("review_expiry", _held.c.state, _held.c.expires_at)
sa.Index("review_decided", _held.c.decided_at)

_IS_BOUND = f"SELECT 1 FROM {_held.name} WHERE request_digest = ? LIMIT 1"


@dataclass(frozen=True, slots=True)
class HeldReply:
    """One reply that a policy holds; times are seconds since the epoch.

    With `kind` AUDIT it is one that was delivered, drawn with probability `share` to be labelled.

    A reply with a `request_digest` is bound to that request: `rule_digest` is the rule that held
    it, `calls` its tool calls as `approvals.digest_of_calls` writes them.
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

    @property
    def outgoing(self) -> bytes:
        """What a client gets once it is released: the reviewer's words, or those of upstream."""
        return self.reply if self.revised is None else self.revised

    @property
    def is_bound(self) -> bool:
        return self.request_digest is not None

    @property
    def standing(self) -> str:
        """What it comes to now: its state, but for what time has changed.

        Where nobody decided in time that is what the policy says. A bound reply that was released
        and not taken in time has expired too: what was right to do then may not be now.
        """
        is_late = self.expires_at <= time.time()
        if self.state == EXPIRED or (self.state == HELD and is_late):
            return ON_EXPIRY[self.on_expiry]
        is_stale = self.state == RELEASED and is_late and self.is_bound
        return EXPIRED if is_stale and self.on_expiry != "deliver" else self.state


class Store:
    """Every method raises StoreError when the database cannot be used."""

    def __init__(self, url: str, max_held: int = 100_000) -> None:
        self.path = path_of(url)
        self._url = url
        self._max_held = max_held
        self._engine: AsyncEngine | None = None
        self._is_open = False
        self._reader: sqlite3.Connection | None = None

    async def open(self) -> None:
        """Creates the file and its tables where they are missing."""
        (await asyncio.to_thread(open_engine, self._url)).dispose()
        self._is_open = True

    async def aclose(self) -> None:
        self._is_open = False
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        if self._engine is not None:
            await self._engine.dispose()
            self._engine = None

    async def hold(self, held: HeldReply, caller: Caller = ANYONE) -> None:
        """Durable when it returns; refuses beyond `max_held` replies that wait, in all and for the
        caller's key and team."""
        row = {column.name: _storable(getattr(held, column.name)) for column in _held.columns}
        try:
            async with self._opened().begin() as connection:
                for most, waiting, whose in self._limits(caller):
                    if (await connection.execute(waiting)).scalar_one() >= most:
                        raise StoreError(f"{most} replies are held already ({whose})")
                await connection.execute(_held.insert().values(**row))
                await connection.execute(happened(held.id, held.state, held.created_at))
        except SQLAlchemyError as error:
            raise StoreError(f"the reply could not be stored: {cause(error)}") from error

    def _limits(self, caller: Caller) -> Iterator[tuple[int, sa.Select[Any], str]]:
        """How many may wait, the query that counts them, and what sets the limit."""
        is_waiting = _held.c.state == HELD, _held.c.kind == HOLD  # audits have a bound of their own
        waiting = sa.select(sa.func.count()).select_from(_held).where(*is_waiting)
        yield self._max_held, waiting, "limits.max_held"
        if caller.max_held is not None:
            of_key = waiting.where(_held.c.key_hash == caller.id)
            yield caller.max_held, of_key, f"max_held of key {caller.id}"
        if caller.team_max_held is not None:
            its_keys = sa.select(client_keys.c.id).where(client_keys.c.team == caller.team)
            of_team = waiting.where(_held.c.key_hash.in_(its_keys))
            yield caller.team_max_held, of_team, f"max_held of team {caller.team}"

    async def get(self, id: str) -> HeldReply | None:
        found = await self._select(sa.select(_held).where(_held.c.id == id))
        return found[0] if found else None

    def may_have(self, request_digest: str) -> bool:
        """Whether a reply may be bound to a request: for nearly all, none is.

        Asked of SQLite without a thread in between, a tenth of a millisecond less for each request:
        a reader of its log waits for nobody. Where it cannot tell, `of_request` has to.
        """
        try:
            if self._reader is None:
                place = f"{self.path.resolve().as_uri()}?mode=ro"
                self._reader = sqlite3.connect(place, timeout=0, uri=True)
            return bool(self._reader.execute(_IS_BOUND, (request_digest,)).fetchone())
        except sqlite3.Error:
            return True

    async def of_request(self, request_digest: str, key_hash: str) -> Sequence[HeldReply]:
        """The replies that are bound to a request, the newest first."""
        is_its = sa.and_(_held.c.request_digest == request_digest, _held.c.key_hash == key_hash)
        newest = sa.select(_held).where(is_its).order_by(_held.c.created_at.desc())
        return await self._select(newest.limit(MOST_OF_ONE_REQUEST))

    async def undecided(self, ids: Collection[str]) -> set[str]:
        """Those of these replies that are still held."""
        query = sa.select(_held.c.id).where(_held.c.id.in_(ids), _held.c.state == HELD)
        return {row[0] for row in await self._rows(query)}

    async def take(self, id: str, again_s: float) -> bool:
        """Hands a bound reply out; False when it first was more than `again_s` seconds ago."""
        now = time.time()
        is_free = sa.or_(_held.c.taken_at.is_(None), _held.c.taken_at > now - again_s)
        taken = _held.update().where(_held.c.id == id, is_free)
        first = sa.func.coalesce(_held.c.taken_at, now)
        return await self._change(taken.values(taken_at=first)) == 1

    async def list(self, state: str = HELD, limit: int = 100) -> Sequence[HeldReply]:
        """The surest errors first: lowest confidence, then oldest."""
        await self.expire()
        order = (_held.c.confidence.asc().nulls_first(), _held.c.created_at)
        return await self._select(
            sa.select(_held).where(_held.c.state == state).order_by(*order).limit(limit)
        )

    async def decide(self, id: str, state: str) -> bool:
        """Releases or rejects what is still held; False when somebody or time was faster."""
        await self.expire()
        change = _held.update().where(_held.c.id == id, _held.c.state == HELD)
        return await self._change(change.values(state=state, decided_at=time.time())) == 1

    async def expire(self) -> int:
        """Marks what nobody decided in time; returns how many."""
        now = time.time()
        late = _held.update().where(_held.c.state == HELD, _held.c.expires_at <= now)
        return await self._change(late.values(state=EXPIRED, decided_at=now))

    def _opened(self) -> AsyncEngine:
        """Connected on first use: most proxies hold nothing, and the import takes memory."""
        if not self._is_open:
            raise StoreError(f"the store {self.path} is not open")
        if self._engine is None:
            from sqlalchemy.ext.asyncio import create_async_engine

            url = sa.URL.create("sqlite+aiosqlite", database=str(self.path))
            self._engine = create_async_engine(url)
            sa.event.listen(self._engine.sync_engine, "connect", set_pragmas)
        return self._engine

    async def _select(self, query: sa.Select[Any]) -> Sequence[HeldReply]:
        return [HeldReply(**row._mapping) for row in await self._rows(query)]

    async def _rows(self, query: sa.Select[Any]) -> Sequence[sa.Row[Any]]:
        try:
            async with self._opened().connect() as connection:
                rows: Sequence[sa.Row[Any]] = (await connection.execute(query)).all()
        except SQLAlchemyError as error:
            raise StoreError(f"the store cannot be read: {cause(error)}") from error
        return rows

    async def _change(self, statement: sa.Update) -> int:
        try:
            async with self._opened().begin() as connection:
                return (await connection.execute(statement)).rowcount
        except SQLAlchemyError as error:
            raise StoreError(f"the store cannot be written: {cause(error)}") from error


def _storable(value: Any) -> Any:
    """Half a surrogate pair, which JSON can carry and SQLite cannot, becomes its escape."""
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value
