"""Feedback: labels that somebody volunteers, of replies that they chose themselves.

They are in a table of their own and never among the verdicts. People complain about wrong replies
and say nothing about right ones, so such labels say nothing about the replies without a label. No
estimate, certificate, recalibration or monitor reads them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from proxy.errors import StoreError
from proxy.store.database.chain import note_change
from proxy.store.database.database import cause, insert_into, storable
from proxy.store.database.tables import metadata
from proxy.store.database.verdicts import reading
from proxy.store.record.writer import exchanges, first_id
from proxy.store.reviews.held_replies import held_replies
from proxy.store.reviews.polls import polls

feedback = sa.Table(
    "feedback",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),  # in the order in which it was given
    sa.Column("request_id", sa.String, nullable=False),
    sa.Column("is_correct", sa.Boolean, nullable=False),
    sa.Column("given_at", sa.Float, nullable=False),  # seconds since the epoch
    sa.Column("given_by", sa.String, nullable=False),  # a key's name, a reviewer, or `a client`
    sa.Column("note", sa.Text),
    sa.Index("one_feedback_of_a_giver", "request_id", "given_by", unique=True),
)

Outcome = Literal["kept", "not_found"]
_AT_ONCE: Final = 200  # rows in a transaction, during which other writers wait


@dataclass(frozen=True, slots=True)
class Feedback:
    """One label to store; `id` is that of a request or of a held reply."""

    id: str
    is_correct: bool
    note: str | None = None


@dataclass(frozen=True, slots=True)
class StoredFeedback:
    """One label as stored; `given_at` is in seconds since the epoch."""

    request_id: str
    is_correct: bool
    given_at: float
    given_by: str
    note: str | None


class FeedbackStore:
    """Feedback in a database that the caller opens and closes.

    Methods wait for the database, so call them from a thread. Each raises StoreError.
    """

    def __init__(self, engine: Callable[[], sa.Engine]) -> None:
        self._engine = engine

    def keep(
        self, labels: Sequence[Feedback], by: str, key_hash: str | None = None
    ) -> list[Outcome]:
        """Store labels by `by`, each in place of an earlier one of the same reply and giver.

        Returns the outcome of each, in order: "kept" or "not_found". With `key_hash`, only requests
        of this key can be labelled.
        """
        found: list[Outcome] = []
        for start in range(0, len(labels), _AT_ONCE):
            batch = labels[start : start + _AT_ONCE]
            try:
                with self._engine().begin() as connection:
                    found += _store_labels(connection, batch, by, key_hash)
            except SQLAlchemyError as error:
                raise StoreError(f"the store cannot be written: {cause(error)}") from error
        return found

    def of(self, request_id: str | None) -> list[StoredFeedback]:
        """Return the labels of one reply, the oldest first."""
        with reading(self._engine()) as connection:
            return feedback_on(connection, [request_id or ""]).get(request_id or "", [])


def feedback_on(
    connection: sa.Connection, request_ids: Sequence[str]
) -> dict[str, list[StoredFeedback]]:
    """Return the labels of these replies as lists by request id, the oldest first.

    Replies without a label are left out.
    """
    query = sa.select(*_columns()).where(feedback.c.request_id.in_(request_ids))
    found: dict[str, list[StoredFeedback]] = {}
    for row in connection.execute(query.order_by(feedback.c.id)):
        found.setdefault(row.request_id, []).append(StoredFeedback(*row))
    return found


def feedback_counts(engine: sa.Engine, since: float = 0.0) -> tuple[int, int]:
    """Return (number of labels, number that say wrong) of replies to requests since a time.

    `since` is in seconds since the epoch. Raises StoreError.
    """
    wrong = sa.func.sum(sa.case((feedback.c.is_correct, 0), else_=1))
    query = sa.select(sa.func.count(), wrong).where(feedback.c.request_id >= first_id(since))
    with reading(engine) as connection:
        count, of_them = connection.execute(query).one()
    return count, int(of_them or 0)


def _columns() -> list[sa.Column[Any]]:
    """Return the columns of StoredFeedback, in its order."""
    return [column for column in feedback.columns if column.name != "id"]


def _store_labels(
    connection: sa.Connection, labels: Sequence[Feedback], by: str, key_hash: str | None
) -> list[Outcome]:
    """Store labels in one transaction, note them in the audit chain, and return their outcomes."""
    request_ids = _requests(connection, [storable(each.id) for each in labels], key_hash)
    found: list[Outcome] = []
    kept = []
    for each in labels:
        request_id = request_ids.get(storable(each.id))
        found.append("not_found" if request_id is None else "kept")
        if request_id is None:
            continue
        values = {
            "is_correct": each.is_correct,
            "given_at": time.time(),
            "note": storable(each.note),
        }
        label_key = {"request_id": request_id, "given_by": by}
        new = insert_into(feedback, connection).values(**label_key, **values)
        connection.execute(new.on_conflict_do_update(index_elements=[*label_key], set_=values))
        kept.append(request_id)
    if kept:
        of_them = feedback.c.request_id.in_(kept), feedback.c.given_by == by
        note_change(connection, "volunteered", feedback, *of_them)
    return found


def _requests(
    connection: sa.Connection, ids: Sequence[str], key_hash: str | None
) -> Mapping[str, str]:
    """Return the ids of recorded requests by the ids that a label may name.

    These are of a request, a poll or a held reply. Others are left out, and with `key_hash` those
    of other keys. A client gets a released reply under the id of the request that asked for it
    again.
    """
    conditions = [] if key_hash is None else [exchanges.c.key_hash == key_hash]
    own = sa.select(exchanges.c.request_id).where(exchanges.c.request_id.in_(ids), *conditions)
    found = {row.request_id: row.request_id for row in connection.execute(own)}
    held = sa.select(held_replies.c.id, held_replies.c.request_id).join(
        exchanges, exchanges.c.request_id == held_replies.c.request_id
    )
    again = sa.select(polls.c.request_id, polls.c.review_id).where(polls.c.request_id.in_(ids))
    reviews = {row.request_id: row.review_id for row in connection.execute(again)}
    held = held.where(held_replies.c.id.in_([*ids, *reviews.values()]), *conditions)
    request_ids = {row.id: row.request_id for row in connection.execute(held)}
    named = {id: reviews.get(id, id) for id in ids}
    return found | {
        id: request_ids[review] for id, review in named.items() if review in request_ids
    }
