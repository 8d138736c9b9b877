"""Export of the store: replies with their content, and the bare facts of all other exchanges.

Rows are read in pages, so that little is in memory and no transaction lasts as long as the export.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from proxy.store.database.verdicts import reading, verdicts
from proxy.store.record.writer import exchanges, first_id
from proxy.store.reviews.held_replies import HeldReply, held_replies
from proxy.store.verdicts.feedback import StoredFeedback as Volunteered
from proxy.store.verdicts.feedback import feedback_on

PAGE: Final = 200


@dataclass(frozen=True, slots=True)
class ExportedVerdict:
    """A verdict; `reviewer` is empty if nobody said who judged."""

    reviewer: str
    is_correct: bool
    given_at: float
    note: str | None


@dataclass(frozen=True, slots=True)
class ExportedReply:
    """A reply with its content, and the facts and action of its exchange while the record has them.

    `verdicts` are the reviewers', the oldest first; `feedback` was volunteered.
    """

    held: HeldReply
    facts: str | None
    action: str | None
    verdicts: Sequence[ExportedVerdict]
    feedback: Sequence[Volunteered] = ()


def with_content(
    engine: sa.Engine, since: float, *, is_labelled: bool = False
) -> Iterator[ExportedReply]:
    """Yield the held and audited replies since a time, the oldest first; raises StoreError.

    `since` is in seconds since the epoch. Replies whose content was deleted are left out. If
    `is_labelled`, only replies with a verdict are read.
    """
    held = held_replies.c
    joined = held_replies.outerjoin(exchanges, exchanges.c.request_id == held.request_id)
    query = sa.select(held_replies, exchanges.c.facts, exchanges.c.action).select_from(joined)
    query = query.where(held.created_at >= since, sa.func.length(held.reply) > 0)
    if is_labelled:
        query = query.where(held.request_id.in_(sa.select(verdicts.c.request_id)))
    query = query.order_by(held.created_at, held.id).limit(PAGE)
    last: tuple[float, str] | None = None
    while True:
        after = sa.tuple_(held.created_at, held.id) > sa.tuple_(*map(sa.literal, last or ()))
        with reading(engine) as connection:
            rows = connection.execute(query if last is None else query.where(after)).all()
            replies = [HeldReply(**dict(zip(_COLUMNS, row[:-2], strict=True))) for row in rows]
            labels = _verdicts(connection, [each.request_id for each in replies])
            feedback = feedback_on(connection, [each.request_id or "" for each in replies])
        for reply, row in zip(replies, rows, strict=True):
            judgements = labels[reply.request_id], feedback.get(reply.request_id or "", ())
            yield ExportedReply(reply, row[-2], row[-1], *judgements)
        if len(rows) < PAGE:
            return
        last = replies[-1].created_at, replies[-1].id


_COLUMNS: Final = tuple(held_replies.columns.keys())


def _verdicts(
    connection: sa.Connection, request_ids: Sequence[str | None]
) -> defaultdict[str | None, list[ExportedVerdict]]:
    """Return the verdicts on these requests by request id, the oldest first."""
    table = verdicts.c
    columns = table.request_id, table.reviewer, table.is_correct, table.given_at, table.note
    query = sa.select(*columns).where(table.request_id.in_(request_ids))
    found = defaultdict(list)
    for request_id, *values in connection.execute(query.order_by(table.given_at, table.id)):
        found[request_id].append(ExportedVerdict(*values))
    return found


def without_content(engine: sa.Engine, since: float) -> Iterator[dict[str, Any]]:
    """Yield as dicts of columns the exchanges that `with_content` does not yield, the oldest first.

    `since` is in seconds since the epoch. Raises StoreError.
    """
    query = sa.select(exchanges).where(
        exchanges.c.request_id >= first_id(since),
        exchanges.c.request_id.not_in(
            sa.select(held_replies.c.request_id).where(
                held_replies.c.request_id.is_not(None), sa.func.length(held_replies.c.reply) > 0
            )
        ),
    )
    query = query.order_by(exchanges.c.request_id).limit(PAGE)
    last: str | None = None
    while True:
        with reading(engine) as connection:
            after = query if last is None else query.where(exchanges.c.request_id > last)
            rows = connection.execute(after).mappings().all()
        yield from (dict(row) for row in rows)
        if len(rows) < PAGE:
            return
        last = rows[-1]["request_id"]
