"""The drift monitors' data and state, kept in the database so that monitors survive a restart.

A monitor watches the scores of one model and team, or verdicts, under one calibrator. One more row
holds how far all monitors have read. The process that first writes for a stretch of the record has
read it. Another process that read the same discards its result.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from calibrator import PRIOR, WITH_OTHERS, knows_others, without_signals
from proxy.errors import StoreError
from proxy.store.database.database import cause, insert_into
from proxy.store.database.tables import metadata
from proxy.store.database.verdicts import reading, verdicts
from proxy.store.record.writer import exchanges, first_id
from proxy.store.reviews.held_replies import AUDIT

monitors = sa.Table(
    "drift_monitors",
    metadata,
    sa.Column("kind", sa.String, primary_key=True),  # scores, calibration, or position
    sa.Column("calibrator", sa.String, primary_key=True),
    sa.Column("model", sa.String, primary_key=True),  # "" for all models
    sa.Column("team", sa.String, primary_key=True),
    sa.Column("seen", sa.Integer, nullable=False),  # replies, or verdicts
    sa.Column("state", sa.Text, nullable=False),  # JSON that the monitor defines
    sa.Column("alarmed_at", sa.Float),  # seconds since the epoch
    sa.Column("alarmed_by", sa.String),  # the request id at which the alarm was raised
)
counted_conversations = sa.Table(
    "counted_conversations",
    metadata,
    sa.Column("about", sa.String, primary_key=True),  # the monitor's key, as JSON
    sa.Column("conversation", sa.String, primary_key=True),
    sa.Column("at", sa.Float, nullable=False),  # of the reply that counted
)
sa.Index("counted_at", counted_conversations.c.at)
MOST_COUNTED: Final = 200_000
LOOKED_AT: Final = 20_000  # of the latest confidences, read to find the calibrators in use
KEY: Final = ("kind", "calibrator", "model", "team")
POSITION: Final = ("position", "", "", "")

_AT_ONCE: Final = 500
Kind = Literal["scores", "calibration"]


class MonitorKey(NamedTuple):
    """The subject of a monitor; `calibrator` has no recalibration where scores are watched."""

    kind: Kind
    calibrator: str
    model: str = ""
    team: str = ""


@dataclass(slots=True)
class Monitor:
    """A monitor's row; `state` is what the monitor itself stores."""

    key: MonitorKey
    seen: int
    state: dict[str, Any]
    alarmed_at: float | None = None
    alarmed_by: str | None = None


@dataclass(frozen=True, slots=True)
class Position:
    """The last request and the last verdict that the monitors have read."""

    request_id: str = ""
    verdict_id: int = 0


class ReplyScore(NamedTuple):
    """A reply's score by the calibrator itself; `at` is in seconds since the epoch."""

    request_id: str
    calibrator: str
    model: str
    team: str
    score: float
    conversation: str | None
    at: float


class AuditVerdict(NamedTuple):
    """A verdict on an audited reply: the confidence given, and whether the reply was correct."""

    verdict_id: int
    request_id: str
    calibrator: str
    confidence: float
    is_correct: bool
    conversation: str | None
    at: float


class CountedReply(NamedTuple):
    """A reply of a conversation that was fed to a monitor.

    `about` is the monitor's key, as JSON.
    """

    about: str
    conversation: str
    at: float


def read_monitors(engine: sa.Engine) -> tuple[list[Monitor], Position]:
    """Return (all monitors, the position up to which they have read); raises StoreError."""
    with reading(engine) as connection:
        rows = connection.execute(monitors.select().order_by(*(monitors.c[n] for n in KEY))).all()
    position, found = Position(), []
    for row in rows:
        state = json.loads(row.state)
        if row.kind == POSITION[0]:
            position = Position(**state)
        else:
            key = MonitorKey(row.kind, row.calibrator, row.model, row.team)
            found.append(Monitor(key, row.seen, state, row.alarmed_at, row.alarmed_by))
    return found, position


def counted_of(engine: sa.Engine, conversations: Sequence[str]) -> list[CountedReply]:
    """Return which replies of these conversations monitors have counted, the oldest first.

    Raises StoreError.
    """
    columns, found = counted_conversations.c, []
    with reading(engine) as connection:
        for start in range(0, len(conversations), _AT_ONCE):
            condition = columns.conversation.in_(conversations[start : start + _AT_ONCE])
            rows = connection.execute(counted_conversations.select().where(condition)).all()
            found += [CountedReply(*row) for row in rows]
    return sorted(found, key=lambda each: each.at)


def write_monitors(
    engine: sa.Engine,
    changed: Sequence[Monitor],
    before: Position,
    after: Position,
    counted: Sequence[CountedReply] = (),
) -> bool:
    """Write monitors, position and counted replies in one transaction; return whether it was done.

    `before` and `after` are the positions up to which the monitors had read, and have read now.
    Returns False, and writes nothing, where another process has moved the position meanwhile.
    Raises StoreError.
    """
    try:
        with engine.begin() as connection:
            if not _move(connection, before, after):
                return False
            for each in changed:
                _put(connection, each)
            _note_counted(connection, counted)
    except SQLAlchemyError as error:
        raise StoreError(f"the monitors cannot be written: {cause(error)}") from error
    return True


def forget_monitors(engine: sa.Engine) -> int:
    """Delete all monitors and counted replies; return how many monitors.

    New ones begin at the current position. Raises StoreError.
    """
    try:
        with engine.begin() as connection:
            statement = monitors.delete().where(monitors.c.kind != POSITION[0])
            connection.execute(counted_conversations.delete())
            return connection.execute(statement).rowcount
    except SQLAlchemyError as error:
        raise StoreError(f"the monitors cannot be written: {cause(error)}") from error


def drifted_calibrators(engine: sa.Engine) -> set[str]:
    """Return the names of the calibrators whose confidences are no longer calibrated.

    Such as `embedded@3f2a+platt@9c1d`: those whose monitor of calibration has raised an alarm.
    Raises StoreError.
    """
    alarmed = monitors.c.kind == "calibration", monitors.c.alarmed_at.is_not(None)
    with reading(engine) as connection:
        return set(connection.execute(sa.select(monitors.c.calibrator).where(*alarmed)).scalars())


def newest_calibrators(engine: sa.Engine) -> set[str]:
    """Return the names of the calibrators in use: the newest of each kind, recalibrated or not.

    One kind scores replies alone, one knows others' replies, and others know some of the signals.
    Only the latest `LOOKED_AT` confidences are read. Raises StoreError.
    """
    query = sa.select(exchanges.c.request_id, exchanges.c.calibrator).where(
        *_scored_before("", 1e11)
    )
    recent = query.order_by(exchanges.c.request_id.desc()).limit(LOOKED_AT).subquery()
    last = sa.func.max(recent.c.request_id)
    by_age = sa.select(recent.c.calibrator).group_by(recent.c.calibrator).order_by(last)
    with reading(engine) as connection:
        names = connection.execute(by_age).scalars().all()
    return set({_known_signals(name): name for name in names}.values())  # the last of each kind


def _known_signals(name: str) -> tuple[bool, str]:
    """Return (whether a calibrator knows others' replies, the signals that it knows).

    Both are read from its name.
    """
    signals = name.removeprefix(without_signals(name)).partition("@")[0]
    signals = signals.replace(PRIOR, "judge")  # labels replace the prior
    return knows_others(name), signals


def scored_after(
    engine: sa.Engine, request_id: str, before: float, limit: int, share: float = 1.0
) -> list[ReplyScore]:
    """Return up to `limit` scored replies after the request id and before a time, in their order.

    `before` is in seconds since the epoch. With a `share` below 1, all replies of about that share
    of conversations are read: if replies were sampled, a busier deployment would have other turns
    in its sample. Raises StoreError.
    """
    score = _own_score(engine)
    row = exchanges.c
    columns = row.request_id, row.calibrator, row.model, row.team, row.conversation, row.started_at
    query = sa.select(*columns, score).where(*_scored_before(request_id, before))
    if share < 1:
        query = query.where(_place < f"{int(share * 16**_PLACES):0{_PLACES}x}")
    query = query.order_by(row.request_id).limit(limit)
    with reading(engine) as connection:
        rows = connection.execute(query).all()
    return [
        ReplyScore(
            id, calibrator.partition("+")[0], model or "", team or "", value, conversation, at
        )
        for id, calibrator, model, team, conversation, at, value in rows
    ]


def count_scored(engine: sa.Engine, request_id: str, before: float) -> tuple[int, str]:
    """Return (number of scored replies after the request id and before a time, id of the last).

    Without any, the id is `request_id` again. Raises StoreError.
    """
    columns = sa.func.count(), sa.func.max(exchanges.c.request_id)
    query = sa.select(*columns).where(*_scored_before(request_id, before))
    with reading(engine) as connection:
        count, last = connection.execute(query).one()
    return count, last or request_id


def judged_after(engine: sa.Engine, verdict_id: int, limit: int) -> list[AuditVerdict]:
    """Return up to `limit` verdicts on audited replies, after a verdict's number, in their order.

    Where several people labelled a reply, only the first verdict is returned. Raises StoreError.
    """
    held, same = metadata.tables["held_replies"], verdicts.alias()
    first = sa.select(sa.func.min(same.c.id)).where(same.c.request_id == verdicts.c.request_id)
    joined = verdicts.join(exchanges, exchanges.c.request_id == verdicts.c.request_id)
    joined = joined.join(held, held.c.request_id == verdicts.c.request_id)
    columns = verdicts.c.id, exchanges.c.request_id, exchanges.c.calibrator, exchanges.c.confidence
    extra_columns = verdicts.c.is_correct, exchanges.c.conversation, exchanges.c.started_at
    query = sa.select(*columns, *extra_columns).select_from(joined)
    query = query.where(
        verdicts.c.id > verdict_id,
        verdicts.c.id == first.scalar_subquery(),
        held.c.kind == AUDIT,
        exchanges.c.confidence.is_not(None),
        exchanges.c.calibrator.is_not(None),
    )
    with reading(engine) as connection:
        rows = connection.execute(query.order_by(verdicts.c.id).limit(limit)).all()
    return [AuditVerdict(*row) for row in rows]


def _own_score(engine: sa.Engine) -> sa.ColumnElement[float]:
    """Return the SQL expression of the calibrator's own score of the reply alone.

    A recalibration, or another model's reply, is not a shift of the traffic. Of several choices
    that were compared, it is the first one's score.
    """
    text, is_sqlite = exchanges.c.facts, engine.dialect.name == "sqlite"
    facts: Any = sa.type_coerce(text, sa.JSON) if is_sqlite else sa.cast(text, sa.JSON)
    has_others = exchanges.c.calibrator.contains(WITH_OTHERS)
    alone = [sa.case((has_others, facts[0, name].as_float())) for name in ("alone_score", "alone")]
    return sa.func.coalesce(*alone, exchanges.c.score, exchanges.c.confidence)


def _scored_before(after: str, before: float) -> tuple[sa.ColumnElement[bool], ...]:
    """Return the conditions of exchanges with a confidence, after an id and before a time."""
    return (
        exchanges.c.request_id > after,
        exchanges.c.request_id < first_id(before),
        exchanges.c.confidence.is_not(None),
        exchanges.c.calibrator.is_not(None),
    )


_PLACES: Final = 8
_place = sa.func.coalesce(exchanges.c.conversation, sa.func.substr(exchanges.c.request_id, 17))
"""Evenly distributed hexadecimal digits, the same for all replies of a conversation."""


def _note_counted(connection: sa.Connection, counted: Sequence[CountedReply]) -> None:
    """Store the replies that counted, in place of earlier ones, and drop the oldest.

    One reply is kept for each conversation and monitor, and `MOST_COUNTED` in all.
    """
    table = counted_conversations
    for start in range(0, len(counted), _AT_ONCE):
        batch = [each._asdict() for each in counted[start : start + _AT_ONCE]]
        statement = insert_into(table, connection)
        replaced = {"at": statement.excluded.at}
        keys = ["about", "conversation"]
        connection.execute(
            statement.on_conflict_do_update(index_elements=keys, set_=replaced), batch
        )
    oldest = sa.select(table.c.at).order_by(table.c.at.desc()).offset(MOST_COUNTED).limit(1)
    if counted and (at := connection.execute(oldest).scalar()) is not None:
        connection.execute(table.delete().where(table.c.at <= at))


def _move(connection: sa.Connection, before: Position, after: Position) -> bool:
    """Change the stored position from `before` to `after`, and return whether that was possible.

    False if another process has moved it. The first position is inserted.
    """
    values = dict(zip(KEY, POSITION, strict=True))
    old, new = (_position_state(each) for each in (before, after))
    is_it = [monitors.c[name] == value for name, value in values.items()]
    moved = monitors.update().where(*is_it, monitors.c.state == old).values(state=new)
    if connection.execute(moved).rowcount:
        return True
    if before != Position():
        return False
    first = insert_into(monitors, connection).values(**values, seen=0, state=new)
    statement = first.on_conflict_do_nothing().returning(monitors.c.kind)
    return connection.execute(statement).first() is not None


def _position_state(position: Position) -> str:
    return json.dumps({"request_id": position.request_id, "verdict_id": position.verdict_id})


def _put(connection: sa.Connection, monitor: Monitor) -> None:
    """Insert or replace a monitor's row."""
    values = {
        "seen": monitor.seen,
        "state": json.dumps(monitor.state),
        "alarmed_at": monitor.alarmed_at,
        "alarmed_by": monitor.alarmed_by,
    }
    statement = insert_into(monitors, connection).values(**monitor.key._asdict(), **values)
    connection.execute(statement.on_conflict_do_update(index_elements=list(KEY), set_=values))
