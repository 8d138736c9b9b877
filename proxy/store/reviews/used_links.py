"""Links of chat messages that were used: each decides once, whichever process is asked.

A person has one use for a reply as it stands, however many messages have led there: of two who post
the same link at the same time, on whatever machine, one comes second and changes nothing. The use
is written in the transaction of the decision, so it stands where that stands, and not without it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from proxy.store.database import insert_into, storable
from proxy.store.reviews.approvals import person_of
from proxy.store.reviews.events import KEPT_S
from proxy.store.tables import metadata
from proxy.store.verdicts.verdicts import reading

used_links = sa.Table(
    "used_links",
    metadata,
    sa.Column("review_id", sa.String, primary_key=True),
    sa.Column("reviewer", sa.String, primary_key=True),  # the person, in one spelling
    sa.Column("revision", sa.String, primary_key=True),  # of the edit; empty: upstream's own reply
    sa.Column("verdict", sa.String, nullable=False),  # approve, reject
    sa.Column("used_at", sa.Float, nullable=False, index=True),  # seconds since the epoch
)


@dataclass(frozen=True, slots=True)
class LinkUse:
    """Who decides by a link on what, as the link says it."""

    review_id: str
    reviewer: str
    revision: str | None

    @property
    def key(self) -> dict[str, Any]:
        person = storable(person_of(self.reviewer))
        return {"review_id": self.review_id, "reviewer": person, "revision": self.revision or ""}


@dataclass(frozen=True, slots=True)
class Used:
    """What a link was used for."""

    verdict: str
    used_at: float


def use_up(connection: sa.Connection, use: LinkUse, verdict: str) -> bool:
    """Notes the use in this transaction; False where it was used before."""
    new = insert_into(used_links, connection).values(
        **use.key, verdict=verdict, used_at=time.time()
    )
    kept = new.on_conflict_do_nothing().returning(used_links.c.review_id)
    return connection.execute(kept).first() is not None


def found_use(engine: sa.Engine, use: LinkUse) -> Used | None:
    """What a link was used for, if it was; raises StoreError."""
    columns = used_links.c.verdict, used_links.c.used_at
    of_it = [used_links.c[name] == value for name, value in use.key.items()]
    with reading(engine) as connection:
        row = connection.execute(sa.select(*columns).where(*of_it)).one_or_none()
    return None if row is None else Used(*row)


def forget_uses(connection: sa.Connection) -> None:
    """Deletes what was used long ago, by links that hold no longer."""
    is_old = used_links.c.used_at < time.time() - KEPT_S
    connection.execute(used_links.delete().where(is_old))
