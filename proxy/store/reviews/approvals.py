"""Approvals of replies that several people have to approve.

Each approval is of one content. An edit of the reply proposes another content, for which earlier
approvals do not count: people approve what is sent. All of it is in the reply's own row, which is
locked meanwhile. If two people approve at the same time, on any machines, the second one sees the
first.
"""

from __future__ import annotations

import hashlib
import json
import time
import unicodedata
from dataclasses import dataclass, replace
from typing import Any, Final

import sqlalchemy as sa

from proxy.store.database.chain import note_change
from proxy.store.database.notifications import DECIDED, notify
from proxy.store.database.verdicts import keep_label
from proxy.store.reviews.events import insert_event
from proxy.store.reviews.held_replies import HELD, RELEASED, HeldReply, held_replies
from proxy.store.reviews.standing import StandingRequest, give, narrowest_bounds

APPROVED, EDITED = "approved", "edited"  # events of a reply that stays held
_DIGITS: Final = 16  # hexadecimal digits of a revision


_UNSEEN = ("Cf", "Cc", "Cn", "Co", "Mn")
_BLANKS = {0x115F: None, 0x1160: None, 0x2800: None}  # letters and a symbol without a shape


def person_of(reviewer: str) -> str:
    """Return a reviewer's name without case, invisible characters and combining marks.

    All spellings of a name give the same text, whatever token or login they came with.
    """
    letters = unicodedata.normalize("NFKD", reviewer)
    visible = (each for each in letters if unicodedata.category(each) not in _UNSEEN)
    return "".join(visible).translate(_BLANKS).casefold().strip()


def approved_by(approved: str | None) -> list[dict[str, Any]]:
    """Parse the approvals of the current content: `by`, `at`, `correct` and `note` of each.

    `approved` is the JSON of the column; None gives an empty list.
    """
    approvals: list[dict[str, Any]] = json.loads(approved) if approved else []
    return approvals


def has_approved(approved: str | None, reviewer: str) -> bool:
    """Return whether a person is among those in `approved`, in whatever spelling of their name."""
    return person_of(reviewer) in {person_of(each["by"]) for each in approved_by(approved)}


def revision_of(proposed: bytes | None) -> str | None:
    """Return 16 hexadecimal digits that name an edit waiting for approval.

    Returns None for upstream's own reply, where `proposed` is None.
    """
    return None if proposed is None else hashlib.sha256(proposed).hexdigest()[:_DIGITS]


@dataclass(frozen=True, slots=True)
class Approval:
    """One reviewer's approval: `revision` names the edit that they read, `revised` is their own."""

    reviewer: str
    is_correct: bool | None = None
    revised: bytes | None = None
    note: str | None = None
    revision: str | None = None
    standing: StandingRequest | None = None  # a request to approve calls like this one too


def approve(connection: sa.Connection, held: HeldReply, approval: Approval) -> HeldReply | None:
    """Add an approval to a held reply, and release it with the last one; return the changed reply.

    An own edit (`revised`) discards the earlier approvals. The event, the label and a standing
    approval are stored too. Nothing changes if this person has approved the same content already.
    Returns None if the reply is decided or expired, or if its content is not the one that they
    read.
    """
    now, table = time.time(), held_replies.c
    is_same, is_open = table.id == held.id, (table.state == HELD, table.expires_at > now)
    lock = held_replies.update().where(is_same, *is_open).values(state=HELD)
    row = connection.execute(lock.returning(table.approved, table.proposed)).one_or_none()
    if row is None:
        return None
    proposed = row.proposed if approval.revised is None else approval.revised
    before = row.approved if proposed == row.proposed else None
    if has_approved(before, approval.reviewer):
        return replace(held, approved=before, proposed=proposed)
    if revision_of(row.proposed) != approval.revision:
        return None
    entry: dict[str, Any] = {
        "by": approval.reviewer,
        "at": now,
        "correct": approval.is_correct,
        "note": approval.note,
    }
    if approval.standing is not None:
        entry["like_this"] = approval.standing.stored_values()
    people = [*approved_by(before), entry]
    values: dict[str, Any] = {"approved": json.dumps(people), "proposed": proposed}
    event = APPROVED if approval.revised is None else EDITED
    if len(people) >= held.quorum:
        event = RELEASED
        values |= {"state": RELEASED, "decided_at": now, "decided_by": approval.reviewer}
        values |= {"revised": proposed, "proposed": None, "note": approval.note}
    connection.execute(held_replies.update().where(is_same).values(**values))
    connection.execute(insert_event(held.id, event, now, approval.reviewer))
    if approval.is_correct is not None and held.request_id is not None:
        keep_label(
            connection, held.request_id, approval.is_correct, approval.reviewer, approval.note
        )
    if event == RELEASED:
        notify(connection, DECIDED, held.id)
        _cover(connection, held, approval, people)
    note_change(connection, "decided" if event == RELEASED else event, held_replies, is_same)
    return replace(held, **values)


def _cover(
    connection: sa.Connection, held: HeldReply, approval: Approval, people: list[dict[str, Any]]
) -> None:
    """Give a standing approval if all who approved asked for it, within the narrowest bounds.

    Does nothing if the last approval did not ask.
    """
    if approval.standing is not None and (bounds := narrowest_bounds(people)) is not None:
        for_s, most_uses = bounds
        standing = replace(approval.standing, for_s=for_s, most_uses=most_uses)
        give(connection, held, standing, ", ".join(each["by"] for each in people))
