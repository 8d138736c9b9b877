"""The outbox of webhooks: the deliveries, their targets, and the times of the next attempts.

An event is announced once: one transaction marks it and creates a delivery for each target. A
process claims a delivery by moving its due time. If that process ends, another one tries again at
that time. So each delivery is sent at least once, also after a restart.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from proxy.errors import StoreError
from proxy.store.database.database import LazyEngine, cause
from proxy.store.database.tables import metadata
from proxy.store.database.verdicts import reading
from proxy.store.reviews.events import ReviewEvent, event_columns, review_events

deliveries = sa.Table(
    "webhook_deliveries",
    metadata,
    sa.Column("id", sa.String, primary_key=True),  # the id that receivers see
    sa.Column("event_number", sa.Integer, nullable=False),
    sa.Column("target", sa.String, nullable=False),  # digest of the URL, which may be a secret
    sa.Column("due_at", sa.Float, index=True),  # null once it is given up
    sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
    sa.Column("given_up_at", sa.Float),
)
ANNOUNCED_AT_ONCE: Final = 200
FRESH_S: Final = 86_400.0  # older events are marked, but not delivered
MOST_WAITING: Final = 100_000
KEPT_S: Final = 7 * 86_400.0  # for deliveries that were given up


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event for one target; `attempts` includes the one about to be made."""

    id: str
    target: str
    attempts: int
    event: ReviewEvent


class DeliveryOutbox:
    """The deliveries in the store at `url`.

    Methods wait for the database, so call them from a thread. Each raises StoreError.
    """

    def __init__(self, url: str) -> None:
        self._engine = LazyEngine(url)

    def close(self) -> None:
        self._engine.close()

    def announce(self, targets_of: Callable[[ReviewEvent], Iterable[str]]) -> int:
        """Create the deliveries of up to `ANNOUNCED_AT_ONCE` new events; return how many events.

        `targets_of` gives the targets of an event. Events older than `FRESH_S` get no delivery, and
        beyond `MOST_WAITING` deliveries none are created.
        """
        number = review_events.c.id
        is_new = review_events.c.is_announced.is_(False)
        batch = sa.select(number).where(is_new).order_by(number).limit(ANNOUNCED_AT_ONCE)
        claim = review_events.update().where(number.in_(batch), is_new)
        with self._change_transaction() as connection:
            claimed = connection.execute(claim.values(is_announced=True).returning(number))
            numbers = claimed.scalars().all()
            if not numbers:
                return 0
            room = MOST_WAITING - connection.execute(_count_waiting()).scalar_one()
            found = connection.execute(event_columns().where(number.in_(numbers)).order_by(number))
            events = [ReviewEvent(**row._mapping) for row in found]
            since = time.time() - FRESH_S
            rows = [
                {"id": new_id(), "event_number": each.number, "target": target, "due_at": each.at}
                for each in events
                if each.at > since
                for target in targets_of(each)
            ]
            if rows[:room]:
                connection.execute(deliveries.insert(), rows[:room])
        return len(numbers)

    def claim(self, limit: int, lease_s: float) -> list[Delivery]:
        """Return up to `limit` deliveries that are due, and claim them for `lease_s` seconds."""
        now = time.time()
        table = deliveries.c
        due = sa.select(table.id).where(table.due_at <= now).order_by(table.due_at).limit(limit)
        claim = deliveries.update().where(table.id.in_(due), table.due_at <= now)
        claim = claim.values(due_at=now + lease_s, attempts=table.attempts + 1)
        with self._change_transaction() as connection:
            ids = connection.execute(claim.returning(table.id)).scalars().all()
            if not ids:
                return []
            columns = (table.id.label("delivery_id"), table.target, table.attempts)
            query = event_columns(*columns).join(
                deliveries, table.event_number == review_events.c.id
            )
            rows = connection.execute(query.where(table.id.in_(ids)).order_by(table.due_at))
            return [_delivery(row) for row in rows]

    def delete_sent(self, id: str) -> None:
        """Delete a delivery that was sent."""
        with self._change_transaction() as connection:
            connection.execute(deliveries.delete().where(deliveries.c.id == id))

    def postpone(self, id: str, wait_s: float) -> None:
        """Set the next attempt of a delivery to `wait_s` seconds from now."""
        change = deliveries.update().where(deliveries.c.id == id)
        with self._change_transaction() as connection:
            connection.execute(change.values(due_at=time.time() + wait_s))

    def give_up(self, id: str) -> None:
        """Mark a delivery as given up, so that it is not tried again."""
        change = deliveries.update().where(deliveries.c.id == id)
        with self._change_transaction() as connection:
            connection.execute(change.values(due_at=None, given_up_at=time.time()))

    def forget(self) -> None:
        """Delete the deliveries that were given up more than `KEPT_S` seconds ago."""
        with self._change_transaction() as connection:
            is_old = deliveries.c.given_up_at < time.time() - KEPT_S
            connection.execute(deliveries.delete().where(is_old))

    @contextmanager
    def _change_transaction(self) -> Iterator[sa.Connection]:
        """Open a transaction, committed at the end; an error of the database becomes StoreError."""
        try:
            with self._engine.get().begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise StoreError(f"the outbox cannot be used: {cause(error)}") from error


def delivery_counts(engine: sa.Engine) -> dict[str, int]:
    """Return the numbers of deliveries `waiting` and `given_up`; raises StoreError."""
    given_up = sa.select(sa.func.count()).select_from(deliveries)
    given_up = given_up.where(deliveries.c.given_up_at.is_not(None))
    with reading(engine) as connection:
        return {
            "waiting": connection.execute(_count_waiting()).scalar_one(),
            "given_up": connection.execute(given_up).scalar_one(),
        }


def new_id() -> str:
    """Return a new random id of a delivery, such as `msg_3f2a..`."""
    return f"msg_{secrets.token_hex(12)}"


def _count_waiting() -> sa.Select[Any]:
    """Return the query that counts the deliveries that are not given up."""
    count = sa.select(sa.func.count()).select_from(deliveries)
    return count.where(deliveries.c.due_at.is_not(None))


def _delivery(row: sa.Row[Any]) -> Delivery:
    """Return the delivery in a row that `DeliveryOutbox.claim` has read."""
    values = dict(row._mapping)
    id, target, attempts = (values.pop(k) for k in ("delivery_id", "target", "attempts"))
    return Delivery(id, target, attempts, ReviewEvent(**values))
