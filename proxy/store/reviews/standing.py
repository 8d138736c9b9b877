"""Standing approvals: an approval of a call that covers similar calls for a limited time.

A similar call is one of the same tool by the same key, held by the same rule, with the same
arguments except those that the reviewer left open. Each use is counted in one statement, so that
the limit holds even if several machines use an approval at the same time.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from proxy.store.database.chain import note_change
from proxy.store.database.tables import metadata

standing_approvals = sa.Table(
    "standing_approvals",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("review_id", sa.String, nullable=False),  # the reply that was approved with it
    sa.Column("key_hash", sa.String, nullable=False),  # of the key whose calls are covered
    sa.Column("rule_digest", sa.String, nullable=False),  # of the rule that held the reply
    sa.Column("queue", sa.String, nullable=False),
    sa.Column("tool", sa.String, nullable=False),
    sa.Column("arguments", sa.Text, nullable=False),  # JSON, as `pattern_of` makes it
    sa.Column("created_at", sa.Float, nullable=False),  # seconds since the epoch
    sa.Column("created_by", sa.String, nullable=False),  # all names, where several people approved
    sa.Column("expires_at", sa.Float, nullable=False),
    sa.Column("most_uses", sa.Integer, nullable=False),
    sa.Column("uses", sa.Integer, nullable=False),
    sa.Column("used_at", sa.Float, nullable=True),  # the last time
    sa.Column("revoked_at", sa.Float, nullable=True),
    sa.Column("revoked_by", sa.String, nullable=True),
    sa.Index("standing_of_key", "key_hash", "rule_digest"),
)
_standing = standing_approvals
NEW, USED, REVOKED = "standing", "standing used", "standing revoked"  # kinds in the chain
MOST_LISTED: Final = 500
Call = tuple[str, str]
"""A tool's name and the text of its arguments."""


@dataclass(frozen=True, slots=True)
class StandingRequest:
    """A reviewer's request for a standing approval: which calls, for how long, and how many."""

    tool: str
    arguments: str
    for_s: float
    most_uses: int

    def stored_values(self) -> dict[str, Any]:
        """Return `for_s`, `uses` and the parsed `pattern`, as stored with one of several approvals.

        They are kept until the last approval is given.
        """
        return {"for_s": self.for_s, "uses": self.most_uses, "pattern": json.loads(self.arguments)}


@dataclass(frozen=True, slots=True)
class StandingApproval:
    """A standing approval that was given; times are seconds since the epoch."""

    id: str
    review_id: str
    key_hash: str
    rule_digest: str
    queue: str
    tool: str
    arguments: str
    created_at: float
    created_by: str
    expires_at: float
    most_uses: int
    uses: int
    used_at: float | None
    revoked_at: float | None
    revoked_by: str | None

    @property
    def state(self) -> str:
        """The state: "open" while in force, else "revoked", "used up" or "expired"."""
        if self.revoked_at is not None:
            return "revoked"
        if self.uses >= self.most_uses:
            return "used up"
        return "expired" if self.expires_at <= time.time() else "open"


# --- which calls ---------------------------------------------------------------------------------


def pattern_of(arguments: str, any_of: Collection[str] = ()) -> str:
    """Return JSON with the SHA-256 of each argument's value: `{"exact": {"to": ".."}, "any": []}`.

    The names in `any_of` are left open: they are listed under "any". If the arguments are no JSON
    object, the digest of the whole text is under "text". Raises ValueError where one of `any_of` is
    not among the arguments.
    """
    values = _comparable(arguments)
    if unknown := [name for name in any_of if name not in (values or {})]:
        raise ValueError(f"the call has no argument {unknown[0]!r}")
    if values is None:
        return json.dumps({"text": _digest(arguments)})
    exact = {name: _digest(value) for name, value in values.items() if name not in any_of}
    return json.dumps({"exact": exact, "any": sorted(set(any_of))}, sort_keys=True)


def covers(pattern: str, arguments: str) -> bool:
    """Return whether a call's arguments, as text, match a pattern that `pattern_of` made."""
    expected, values = json.loads(pattern), _comparable(arguments)
    if values is None or "text" in expected:
        return values is None and expected.get("text") == _digest(arguments)
    rest = {name: value for name, value in values.items() if name not in expected["any"]}
    return rest.keys() == expected["exact"].keys() and all(
        _digest(value) == expected["exact"][name] for name, value in rest.items()
    )


def _comparable(arguments: str) -> dict[str, Any] | None:
    """Return the arguments by name; None for text that is no JSON object or too deeply nested."""
    values = _object(arguments)
    try:
        _canonical(values)
    except RecursionError:
        return None
    return values


def _object(arguments: str) -> dict[str, Any] | None:
    """Return the arguments as a dict; None for text that is no JSON object, or has a name twice.

    Numbers with a fraction or an exponent become their text. NaN is not JSON.
    """
    try:
        value = json.loads(
            arguments or "{}",
            object_pairs_hook=_without_repeats,
            parse_float=_NumberText,
            parse_constant=_refuse_constant,
        )
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _without_repeats(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members as a dict; raises ValueError if a name is there twice."""
    found = dict(members)
    if len(found) != len(members):
        raise ValueError("a member stands twice")
    return found


class _NumberText(str):
    """A number as it is written: 1e999 is not null, and 1.0 is not 1."""

    __slots__ = ()


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _digest(value: Any) -> str:
    """Return the SHA-256, in hex, of a JSON value's canonical text."""
    return hashlib.sha256(_canonical(value).encode()).hexdigest()


def _canonical(value: Any) -> str:
    """Return a text that is the same for equal JSON values only; raises RecursionError."""
    if isinstance(value, _NumberText):
        return str(value)
    if isinstance(value, list):
        return f"[{','.join(map(_canonical, value))}]"
    if isinstance(value, dict):
        members = (f"{json.dumps(name)}:{_canonical(value[name])}" for name in sorted(value))
        return f"{{{','.join(members)}}}"
    return json.dumps(value)


# --- given, used, revoked ------------------------------------------------------------------------


def give(connection: sa.Connection, held: Any, standing: StandingRequest, by: str) -> str:
    """Insert a standing approval in the transaction of its approval; return its id.

    `held` is the reply that was approved; `by` names the people. It is noted in the audit chain.
    """
    now = time.time()
    values = {
        "id": f"standing-{secrets.token_hex(8)}",
        **{name: getattr(held, name) for name in ("key_hash", "rule_digest", "queue")},
        "review_id": held.id,
        "tool": standing.tool,
        "arguments": standing.arguments,
        "created_at": now,
        "created_by": by,
        "expires_at": now + standing.for_s,
        "most_uses": standing.most_uses,
        "uses": 0,
    }
    connection.execute(_standing.insert().values(**values))
    note_change(connection, NEW, _standing, _standing.c.id == values["id"])
    return str(values["id"])


def narrowest_bounds(people: Sequence[dict[str, Any]]) -> tuple[float, int] | None:
    """Return (seconds, uses): the smallest bounds that those who approved have asked for.

    `people` are approvals with `like_this`. Returns None where one of them did not ask for a
    standing approval, or asked for another pattern.
    """
    answers = [each.get("like_this") for each in people]
    requests = [each for each in answers if each is not None]
    if len(requests) < len(answers) or any(
        each["pattern"] != requests[0]["pattern"] for each in requests
    ):
        return None
    return min(each["for_s"] for each in requests), min(each["uses"] for each in requests)


def candidates(key_hash: str, rule_digest: str, tools: Collection[str]) -> sa.Select[Any]:
    """Return the query for the id, tool and pattern of approvals that may cover calls.

    They are in force for this key and rule and one of the tools; the first to expire comes first.
    """
    table = _standing.c
    conditions = table.key_hash == key_hash, table.rule_digest == rule_digest, table.tool.in_(tools)
    query = sa.select(table.id, table.tool, table.arguments).where(*conditions, *_is_open())
    return query.order_by(table.expires_at).limit(MOST_LISTED)


def use(connection: sa.Connection, ids: Sequence[Sequence[str]]) -> list[str] | None:
    """Count one use for each call: of the first of its `ids` that is still in force.

    `ids` has the ids that cover each call. Returns the ids that were used, sorted and without
    repetition, noted in the audit chain. Returns None if one call has none left; the caller then
    has to roll back.
    """
    used = [_use_one(connection, each) for each in ids]
    if None in used:
        return None
    used_ids = sorted({id for id in used if id is not None})
    note_change(connection, USED, _standing, _standing.c.id.in_(used_ids))
    return used_ids


def _use_one(connection: sa.Connection, ids: Sequence[str]) -> str | None:
    """Count a use of the first of these approvals that is in force; return its id, or None."""
    for id in ids:
        counted = {"uses": _standing.c.uses + 1, "used_at": time.time()}
        change = _standing.update().where(_standing.c.id == id, *_is_open()).values(counted)
        if connection.execute(change).rowcount == 1:
            return id
    return None


def revoke(connection: sa.Connection, id: str, by: str) -> bool:
    """End a standing approval in the caller's transaction, and note it in the audit chain.

    Returns False if there is none, or it was revoked before.
    """
    conditions = _standing.c.id == id, _standing.c.revoked_at.is_(None)
    change = _standing.update().where(*conditions)
    if connection.execute(change.values(revoked_at=time.time(), revoked_by=by)).rowcount != 1:
        return False
    note_change(connection, REVOKED, _standing, _standing.c.id == id)
    return True


def approvals_query(
    queues: Collection[str] | None, *, is_all: bool = False, id: str | None = None
) -> sa.Select[Any]:
    """Return the query for up to `MOST_LISTED` standing approvals, the newest first.

    With `queues` only those of these queues, with `id` only that one. Only those in force are
    selected, unless `is_all`.
    """
    query = sa.select(_standing).order_by(_standing.c.created_at.desc()).limit(MOST_LISTED)
    query = query if id is None else query.where(_standing.c.id == id)
    query = query if queues is None else query.where(_standing.c.queue.in_(sorted(queues)))
    return query if is_all else query.where(*_is_open())


def match_calls(calls: Sequence[Call], rows: Sequence[Any]) -> Iterator[list[str]]:
    """Yield for each call the ids of the approvals that cover it."""
    for tool, arguments in calls:
        yield [row.id for row in rows if row.tool == tool and covers(row.arguments, arguments)]


def _is_open() -> tuple[sa.ColumnElement[bool], ...]:
    """Return the conditions of an approval in force: not revoked, with uses and time left."""
    table = _standing.c
    is_left = table.uses < table.most_uses
    return table.revoked_at.is_(None), is_left, table.expires_at > time.time()
