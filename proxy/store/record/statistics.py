"""What pages show of the record: the latest exchanges, and a window of time from a bounded sample.

A window is cut into slices. How many exchanges there are in each is counted; what they were is
read from the latest of each, `MOST_OF_A_SLICE` at most, every one of which stands for its share.
With less traffic than that the figures are exact; with a million exchanges no page is slower.
Every function here may wait for the database and raises StoreError when it cannot be used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from calibrator import WITH_OTHERS
from policies import SeenConversations, telling_days
from proxy.errors import BlockedByPolicyError, HeldForReviewError
from proxy.store.record.writer import exchanges, first_id, is_first_request
from proxy.store.reviews.held_replies import AUDIT
from proxy.store.reviews.polls import counted_polls
from proxy.store.verdicts.labels import Stratum, held_replies
from proxy.store.verdicts.verdicts import reading, verdicts

MOST_OF_A_SLICE: Final = 300
LOOKED_AT: Final = 20_000  # of the latest exchanges, when some among them are looked for
MOST_LABELS: Final = 20_000
TOLD_BY_ACTION: Final = (HeldForReviewError.code, BlockedByPolicyError.code)


@dataclass(frozen=True, slots=True)
class Seen:
    """One exchange in a list of the latest; `decided_by` is the reviewer of a held reply."""

    request_id: str
    started_at: float
    path: str
    model: str | None
    team: str | None
    status: int
    error: str | None
    confidence: float | None
    confidence_status: str | None
    reason: str | None
    action: str | None
    would_action: str | None
    policy: str | None
    review_id: str | None
    total_ms: float
    decided_by: str | None
    state: str | None
    polls: int = 0  # how often its client asked again while it was held

    @property
    def failure(self) -> str | None:
        """The error's code; None for what a policy withheld: its action says that."""
        return None if self.error in TOLD_BY_ACTION else self.error


class Sampled(NamedTuple):
    """One exchange of a sample; it stands for `weight` of them."""

    at: int  # which slice
    weight: float
    model: str | None
    team: str | None
    confidence: float | None
    action: str | None
    would_action: str | None
    policy: str | None
    shadowed: str | None
    review_id: str | None
    conversation: str | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of time in slices of equal length, in seconds since the epoch."""

    since: float
    until: float
    slices: int = 30

    @property
    def edges(self) -> list[float]:
        step = (self.until - self.since) / self.slices
        return [self.since + step * at for at in range(self.slices + 1)]

    def bounds(self) -> Iterator[tuple[str, str]]:
        """The first id of each slice, and the first one after it."""
        return pairwise(map(first_id, self.edges))


@dataclass(frozen=True, slots=True)
class Sample:
    """What there was in a window: the number of exchanges of each slice, and some of them.

    `first_at` is when the first of all was, None where there is none.
    """

    window: Window
    counts: tuple[int, ...]
    rows: tuple[Sampled, ...]
    first_at: float | None = None

    @property
    def total(self) -> int:
        return sum(self.counts)

    @property
    def is_exact(self) -> bool:
        return len(self.rows) == self.total

    @property
    def a_day(self) -> float | None:
        """Exchanges a day, from the first one to the end; None of too short a time to tell."""
        if self.first_at is None:
            return None
        days = telling_days(self.window.until - self.first_at)
        return None if days is None else self.total / days


@dataclass(frozen=True, slots=True)
class Asked:
    """Which exchanges are looked for; None is any."""

    model: str | None = None
    team: str | None = None
    action: str | None = None


ANY: Final = Asked()


def latest(
    engine: sa.Engine, asked: Asked = ANY, *, after: str | None = None, limit: int = 100
) -> list[Seen]:
    """The latest exchanges, the newest first, of those after the id `after`.

    Filters look through the latest `LOOKED_AT` only: a model that nobody asks is no long search.
    """
    columns = [exchanges.c[name] for name in Seen.__slots__ if name in exchanges.c]
    wanted = {name: value for name, value in asdict(asked).items() if value is not None}
    newest = sa.select(*columns).where(is_first_request).order_by(exchanges.c.request_id.desc())
    if after is not None:
        newest = newest.where(exchanges.c.request_id > after)
    few = newest.limit(LOOKED_AT if wanted else limit).subquery()
    beside = few.outerjoin(held_replies, held_replies.c.id == few.c.review_id)
    asked_again = counted_polls(few.c.review_id).label("polls")
    query = sa.select(*few.c, held_replies.c.decided_by, held_replies.c.state, asked_again)
    query = query.select_from(beside)
    query = query.where(*(few.c[name] == value for name, value in wanted.items()))
    with reading(engine) as connection:
        rows = connection.execute(query.order_by(few.c.request_id.desc()).limit(limit))
        return [Seen(**row._mapping) for row in rows]


def calibrator_in_force(engine: sa.Engine) -> str | None:
    """The calibrator, with its recalibration, that scored last; of the latest exchanges alone."""
    newest = sa.select(exchanges.c.calibrator).order_by(exchanges.c.request_id.desc())
    few = newest.limit(LOOKED_AT).subquery()
    with reading(engine) as connection:
        return connection.execute(
            sa.select(few.c.calibrator).where(few.c.calibrator.is_not(None)).limit(1)
        ).scalar()


def sample(engine: sa.Engine, window: Window) -> Sample:
    """What there was in a window of time."""
    slices = list(enumerate(window.bounds()))
    counting = sa.union_all(*(_count(at, *bounds) for at, bounds in slices))
    looking = sa.union_all(*(_some(at, *bounds) for at, bounds in slices))
    with reading(engine) as connection:
        counts: dict[int, int] = {row[0]: row[1] for row in connection.execute(counting)}
        rows = connection.execute(looking).all()
        first_at = connection.execute(_first(window)).scalar()
    found: dict[int, int] = {}
    for row in rows:
        found[row[0]] = found.get(row[0], 0) + 1
    weights = {at: max(1.0, counts[at] / number) for at, number in found.items()}
    return Sample(
        window,
        tuple(counts[at] for at, _ in slices),
        tuple(Sampled(row[0], weights[row[0]], *row[1:]) for row in rows),
        first_at,
    )


def _first(window: Window) -> sa.Select[Any]:
    inside = _in_slice(first_id(window.since), first_id(window.until))
    row = exchanges.c
    return sa.select(row.started_at).where(inside).order_by(row.request_id).limit(1)


def _in_slice(since: str, until: str) -> sa.ColumnElement[bool]:
    row = exchanges.c.request_id
    return sa.and_(row >= since, row < until, is_first_request)


def _count(at: int, since: str, until: str) -> sa.Select[Any]:
    columns: list[Any] = [sa.literal_column(str(at)), sa.func.count()]
    return sa.select(*columns).select_from(exchanges).where(_in_slice(since, until))


def _some(at: int, since: str, until: str) -> sa.Select[Any]:
    columns = [exchanges.c[name] for name in Sampled._fields if name in exchanges.c]
    newest = sa.select(*columns).where(_in_slice(since, until))
    some = newest.order_by(exchanges.c.request_id.desc()).limit(MOST_OF_A_SLICE).subquery()
    return sa.select(sa.literal_column(str(at)).label("at"), *some.c)


@dataclass(frozen=True, slots=True)
class Labelled:
    """A reply with a verdict, the latest where there are several.

    `stratum` says why it was looked at, as in proxy/store/verdicts/labels.py; `share` is the
    probability with which an audited one was drawn. `before` is the number without what else
    `confidence`, which `calibrator` gave, knows: without signals, else without others.
    """

    confidence: float
    is_correct: bool
    stratum: Stratum
    share: float | None
    model: str | None
    team: str | None
    conversation: str | None = None
    calibrator: str | None = None
    before: float | None = None


def labelled(engine: sa.Engine, since: float, limit: int = MOST_LABELS) -> list[Labelled]:
    """The replies whose verdicts were given after a time, the latest first.

    Facts alone, of the latest `limit`: what proxy/store/verdicts/labels.py reads whole. Of a
    conversation one reply counts for each reason why it was looked at.
    """
    same = verdicts.alias()
    last = sa.select(same.c.id).where(same.c.request_id == verdicts.c.request_id)
    last = last.order_by(same.c.given_at.desc(), same.c.id.desc()).limit(1)
    given = sa.select(verdicts.c.request_id, verdicts.c.is_correct)
    given = given.where(verdicts.c.given_at >= since, verdicts.c.id == last.scalar_subquery())
    few = given.order_by(verdicts.c.given_at.desc()).limit(limit).subquery()
    joined = few.join(exchanges, exchanges.c.request_id == few.c.request_id)
    joined = joined.outerjoin(held_replies, held_replies.c.request_id == few.c.request_id)
    query = sa.select(
        exchanges.c.confidence,
        few.c.is_correct,
        exchanges.c.review_id,
        held_replies.c.kind,
        held_replies.c.share,
        exchanges.c.model,
        exchanges.c.team,
        exchanges.c.conversation,
        exchanges.c.calibrator,
        sa.case((_knows_more(), exchanges.c.facts)),
    )
    with reading(engine) as connection:
        rows: Sequence[Any] = connection.execute(
            query.select_from(joined).where(exchanges.c.confidence.is_not(None))
        ).all()
    found, seen = [_labelled(*row) for row in rows], SeenConversations(None, None)
    return [each for each in found if seen.is_first(_of_stratum(each))]


def _knows_more() -> sa.ColumnElement[bool]:
    """Whether a number knows others, a judge or log-probabilities."""
    name = exchanges.c.calibrator
    return sa.or_(*(name.contains(each) for each in (WITH_OTHERS, "+judge", "+logprobs@")))


def _of_stratum(label: Labelled) -> str | None:
    return label.conversation and f"{label.stratum} {label.conversation}"


def _labelled(
    confidence: float,
    is_correct: bool,
    review_id: str | None,
    kind: str | None,
    share: float | None,
    model: str | None,
    team: str | None,
    conversation: str | None,
    calibrator: str | None,
    facts: str | None,
) -> Labelled:
    is_drawn = kind == AUDIT and share is not None
    stratum: Stratum = "held" if review_id else "audited" if is_drawn else "other"
    its_share = share if is_drawn else None
    whose = model, team, conversation, calibrator, _before(facts)
    return Labelled(confidence, bool(is_correct), stratum, its_share, *whose)


def _before(facts: str | None) -> float | None:
    """The number without signals, else without others, of a reply of one choice: a verdict does not
    say which of several it is about."""
    choices = json.loads(facts) if facts else []
    said = choices[0] if len(choices) == 1 else {}
    before = said.get("unaided", said.get("alone"))
    return before if isinstance(before, float | int) else None


def names(rows: tuple[Sampled, ...]) -> tuple[list[str], list[str]]:
    """The models and the teams in a sample, those with the most exchanges first."""
    return _by_weight(rows, "model"), _by_weight(rows, "team")


def _by_weight(rows: tuple[Sampled, ...], name: str) -> list[str]:
    found: dict[str, float] = {}
    for row in rows:
        if (value := getattr(row, name)) is not None:
            found[value] = found.get(value, 0.0) + row.weight
    return sorted(found, key=lambda value: (-found[value], value))
