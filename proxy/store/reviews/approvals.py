"""Replies that several people have to approve: who has, and when that is enough.

Each approval is of one content. Whoever edits the reply proposes another one, and what was approved
before it counts no more: the others approve what goes out. All of it stands in the reply's own row,
which is locked while it is looked at: of two who approve at the same time, on whatever machine, one
comes second and sees the first.
"""

from __future__ import annotations

import hashlib
import json
import time
import unicodedata
from dataclasses import dataclass, replace
from typing import Any, Final

import sqlalchemy as sa

from proxy.store.chain.chain import note_change
from proxy.store.notifications import DECIDED, notify
from proxy.store.reviews.events import happened
from proxy.store.reviews.held_replies import HELD, RELEASED, HeldReply, held_replies
from proxy.store.reviews.standing import Standing, agreed, give
from proxy.store.verdicts.verdicts import keep_label

APPROVED, EDITED = "approved", "edited"  # what happened to a reply that stays held
_DIGITS: Final = 16  # of a revision, in hex


def person_of(reviewer: str) -> str:
    """One text for all spellings of a reviewer's name, whatever token or login it came with."""
    seen = (each for each in reviewer if unicodedata.category(each) not in ("Cf", "Cc", "Mn"))
    return unicodedata.normalize("NFKC", "".join(seen)).casefold().strip()


def approved_by(approved: str | None) -> list[dict[str, Any]]:
    """Who approved the content that waits, in their order: `by`, `at`, `correct` and `note`."""
    found: list[dict[str, Any]] = json.loads(approved) if approved else []
    return found


def has_approved(approved: str | None, reviewer: str) -> bool:
    """Whether this person is among those who approved."""
    return person_of(reviewer) in {person_of(each["by"]) for each in approved_by(approved)}


def revision_of(proposed: bytes | None) -> str | None:
    """What names an edit that waits for others' approval; None for upstream's own reply."""
    return None if proposed is None else hashlib.sha256(proposed).hexdigest()[:_DIGITS]


@dataclass(frozen=True, slots=True)
class Approval:
    """What one reviewer says: `revision` names the edit that they read, `revised` is their own."""

    reviewer: str
    is_correct: bool | None = None
    revised: bytes | None = None
    note: str | None = None
    revision: str | None = None
    standing: Standing | None = None  # that the approval shall cover calls like this one


def approve(connection: sa.Connection, held: HeldReply, given: Approval) -> HeldReply | None:
    """Adds an approval, and releases the reply if it is the last of those that it needs.

    Nothing changes where this person has approved the same already. None where the reply is
    decided, or what waits is another content than the one that they read.
    """
    now, table = time.time(), held_replies.c
    is_its, is_open = table.id == held.id, (table.state == HELD, table.expires_at > now)
    lock = held_replies.update().where(is_its, *is_open).values(state=HELD)
    row = connection.execute(lock.returning(table.approved, table.proposed)).one_or_none()
    if row is None:
        return None
    proposed = row.proposed if given.revised is None else given.revised
    before = row.approved if proposed == row.proposed else None
    if has_approved(before, given.reviewer):
        return replace(held, approved=before, proposed=proposed)
    if revision_of(row.proposed) != given.revision:
        return None
    one: dict[str, Any] = {
        "by": given.reviewer,
        "at": now,
        "correct": given.is_correct,
        "note": given.note,
    }
    if given.standing is not None:
        one["like_this"] = given.standing.told()
    people = [*approved_by(before), one]
    values: dict[str, Any] = {"approved": json.dumps(people), "proposed": proposed}
    event = APPROVED if given.revised is None else EDITED
    if len(people) >= held.needed:
        event = RELEASED
        values |= {"state": RELEASED, "decided_at": now, "decided_by": given.reviewer}
        values |= {"revised": proposed, "proposed": None, "note": given.note}
    connection.execute(held_replies.update().where(is_its).values(**values))
    connection.execute(happened(held.id, event, now, given.reviewer))
    if given.is_correct is not None and held.request_id is not None:
        keep_label(connection, held.request_id, given.is_correct, given.reviewer, given.note)
    if event == RELEASED:
        notify(connection, DECIDED, held.id)
        _cover(connection, held, given, people)
    note_change(connection, "decided" if event == RELEASED else event, held_replies, is_its)
    return replace(held, **values)


def _cover(
    connection: sa.Connection, held: HeldReply, given: Approval, people: list[dict[str, Any]]
) -> None:
    """Covers calls like this one where all who approved said so, within the narrower bounds."""
    if given.standing is not None and (bounds := agreed(people)) is not None:
        for_s, most_uses = bounds
        standing = replace(given.standing, for_s=for_s, most_uses=most_uses)
        give(connection, held, standing, ", ".join(each["by"] for each in people))
