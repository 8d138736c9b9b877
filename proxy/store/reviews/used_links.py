"""Links in chat messages that were used: each decides once, whichever process gets the request.

A person has one use for each content of a reply, even if several messages link to it. If two
requests use the same link at the same time, on any machines, the second one changes nothing. The
use is written in the transaction of the decision, so both are stored or neither is.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from proxy.store.database.database import insert_into, storable
from proxy.store.database.tables import metadata
from proxy.store.database.verdicts import reading
from proxy.store.reviews.approvals import person_of
from proxy.store.reviews.events import KEPT_S

used_links = sa.Table(
    "used_links",
    metadata,
    sa.Column("review_id", sa.String, primary_key=True),
    sa.Column("reviewer", sa.String, primary_key=True),  # as `person_of` spells it
    sa.Column("revision", sa.String, primary_key=True),  # of the edit; empty: upstream's reply
    sa.Column("verdict", sa.String, nullable=False),  # approve, reject
    sa.Column("used_at", sa.Float, nullable=False, index=True),  # seconds since the epoch
)


@dataclass(frozen=True, slots=True)
class LinkUse:
    """A link's reply, reviewer and edit, as the link names them."""

    review_id: str
    reviewer: str
    revision: str | None

    @property
    def key(self) -> dict[str, Any]:
        """The values of the primary key's columns, with the reviewer as `person_of` spells them."""
        person = storable(person_of(self.reviewer))
        return {"review_id": self.review_id, "reviewer": person, "revision": self.revision or ""}


@dataclass(frozen=True, slots=True)
class LinkDecision:
    """The decision for which a link was used."""

    verdict: str
    used_at: float


def use_up(connection: sa.Connection, use: LinkUse, verdict: str) -> bool:
    """Insert the use of a link in the caller's transaction; return False if it was used before.

    `verdict` is "approve" or "reject".
    """
    new = insert_into(used_links, connection).values(
        **use.key, verdict=verdict, used_at=time.time()
    )
    statement = new.on_conflict_do_nothing().returning(used_links.c.review_id)
    return connection.execute(statement).first() is not None


def found_use(engine: sa.Engine, use: LinkUse) -> LinkDecision | None:
    """Return the decision for which a link was used, or None; raises StoreError."""
    columns = used_links.c.verdict, used_links.c.used_at
    of_it = [used_links.c[name] == value for name, value in use.key.items()]
    with reading(engine) as connection:
        row = connection.execute(sa.select(*columns).where(*of_it)).one_or_none()
    return None if row is None else LinkDecision(*row)


def forget_uses(connection: sa.Connection) -> None:
    """Delete the uses that are older than `KEPT_S`, whose links are no longer valid."""
    is_old = used_links.c.used_at < time.time() - KEPT_S
    connection.execute(used_links.delete().where(is_old))
