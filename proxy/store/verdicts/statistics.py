"""Statistics for pages: the latest exchanges, and a window of time from a bounded sample.

A window is cut into slices. The exchanges of each slice are counted. Their contents are read from
the latest of each slice, `MOST_OF_A_SLICE` at most, each of which represents its share. With less
traffic than that the figures are exact. With a million exchanges no page is slower. Every function
here may wait for the database, and raises StoreError when it cannot be used.

`opinion_exchanges` reads who was asked for a second opinion or a judgement, and the answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from calibrator import WITH_OTHERS
from policies import SeenConversations, telling_days
from proxy.errors import BlockedByPolicyError, HeldForReviewError
from proxy.store.database.verdicts import reading, verdicts
from proxy.store.record.writer import exchanges, first_id
from proxy.store.reviews.held_replies import AUDIT
from proxy.store.reviews.polls import counted_polls
from proxy.store.verdicts.labels import Stratum, held_replies

MOST_OF_A_SLICE: Final = 300
LOOKED_AT: Final = 20_000  # how many of the latest exchanges a search reads
MOST_LABELS: Final = 20_000
ACTION_CODES: Final = (HeldForReviewError.code, BlockedByPolicyError.code)

_HAS_OPINIONS: Final = '%"opinions":%'  # a pattern for the facts
_SECOND_OPINION_CALL: Final = '%"second_opinion"%'  # a pattern for the calls
_HAS_SIGNALS: Final = '%"judge":%', '%"logprobs":%'  # patterns for the facts
_JUDGE_CALL: Final = '%"judge"%'  # a pattern for the calls


@dataclass(frozen=True, slots=True)
class RecentExchange:
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
        """The error's code, or None for a reply that a policy withheld, which its action says."""
        return None if self.error in ACTION_CODES else self.error


class SampledExchange(NamedTuple):
    """One exchange of a sample; it represents `weight` exchanges."""

    at: int  # the number of the slice
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
    """A period in slices of equal length, with its ends in seconds since the epoch."""

    since: float
    until: float
    slices: int = 30

    @property
    def edges(self) -> list[float]:
        """The `slices + 1` times where slices begin and end, in seconds since the epoch."""
        step = (self.until - self.since) / self.slices
        return [self.since + step * at for at in range(self.slices + 1)]

    def bounds(self) -> Iterator[tuple[str, str]]:
        """Yield for each slice (the smallest request id in it, the smallest id after it)."""
        return pairwise(map(first_id, self.edges))


@dataclass(frozen=True, slots=True)
class Sample:
    """The number of exchanges in each slice of a window, and some of the exchanges.

    `first_at` is when the first exchange of the window started, None if there is none.
    """

    window: Window
    counts: tuple[int, ...]
    rows: tuple[SampledExchange, ...]
    first_at: float | None = None

    @property
    def total(self) -> int:
        """The number of exchanges in the window."""
        return sum(self.counts)

    @property
    def is_exact(self) -> bool:
        """Whether the sample contains every exchange of the window."""
        return len(self.rows) == self.total

    @property
    def a_day(self) -> float | None:
        """The exchanges a day, from the first one to the window's end.

        None if that is too short.
        """
        if self.first_at is None:
            return None
        days = telling_days(self.window.until - self.first_at)
        return None if days is None else self.total / days


@dataclass(frozen=True, slots=True)
class ExchangeFilter:
    """A filter of exchanges; None matches any value."""

    model: str | None = None
    team: str | None = None
    action: str | None = None


ANY: Final = ExchangeFilter()


def latest(
    engine: sa.Engine, filter: ExchangeFilter = ANY, *, after: str | None = None, limit: int = 100
) -> list[RecentExchange]:
    """Return up to `limit` exchanges, the newest first, that match a filter.

    With `after`, only those with a greater request id. A filter is applied to the latest
    `LOOKED_AT` exchanges only, so that a search for a model without traffic is not slow.
    """
    columns = [exchanges.c[name] for name in RecentExchange.__slots__ if name in exchanges.c]
    wanted = {name: value for name, value in asdict(filter).items() if value is not None}
    newest = sa.select(*columns).order_by(exchanges.c.request_id.desc())
    if after is not None:
        newest = newest.where(exchanges.c.request_id > after)
    recent = newest.limit(LOOKED_AT if wanted else limit).subquery()
    joined = recent.outerjoin(held_replies, held_replies.c.id == recent.c.review_id)
    asked_again = counted_polls(recent.c.review_id).label("polls")
    query = sa.select(*recent.c, held_replies.c.decided_by, held_replies.c.state, asked_again)
    query = query.select_from(joined)
    query = query.where(*(recent.c[name] == value for name, value in wanted.items()))
    with reading(engine) as connection:
        rows = connection.execute(query.order_by(recent.c.request_id.desc()).limit(limit))
        return [RecentExchange(**row._mapping) for row in rows]


def calibrator_in_force(engine: sa.Engine) -> str | None:
    """Return the name of the calibrator that scored last, with its recalibration, or None.

    Only the latest `LOOKED_AT` exchanges are read.
    """
    newest = sa.select(exchanges.c.calibrator).order_by(exchanges.c.request_id.desc())
    recent = newest.limit(LOOKED_AT).subquery()
    with reading(engine) as connection:
        return connection.execute(
            sa.select(recent.c.calibrator).where(recent.c.calibrator.is_not(None)).limit(1)
        ).scalar()


def sample(engine: sa.Engine, window: Window) -> Sample:
    """Count the exchanges of each slice of a window, and read a sample of each slice.

    The sample has its latest `MOST_OF_A_SLICE` exchanges.
    """
    slices = list(enumerate(window.bounds()))
    counting = sa.union_all(*(_count(at, *bounds) for at, bounds in slices))
    looking = sa.union_all(*(_slice_query(at, *bounds) for at, bounds in slices))
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
        tuple(SampledExchange(row[0], weights[row[0]], *row[1:]) for row in rows),
        first_at,
    )


def _first(window: Window) -> sa.Select[Any]:
    """Return the query for the time of the first exchange in a window."""
    inside = _in_slice(first_id(window.since), first_id(window.until))
    row = exchanges.c
    return sa.select(row.started_at).where(inside).order_by(row.request_id).limit(1)


def _in_slice(since: str, until: str) -> sa.ColumnElement[bool]:
    """Return the condition of an exchange whose request id is from `since` to before `until`."""
    row = exchanges.c.request_id
    return sa.and_(row >= since, row < until)


def _count(at: int, since: str, until: str) -> sa.Select[Any]:
    """Return the query for (`at`, the count of exchanges from `since` to before `until`).

    `at` is the number of a slice, and the bounds are request ids as in `_in_slice`.
    """
    columns: list[Any] = [sa.literal_column(str(at)), sa.func.count()]
    return sa.select(*columns).select_from(exchanges).where(_in_slice(since, until))


def _slice_query(at: int, since: str, until: str) -> sa.Select[Any]:
    """Return the query for the latest exchanges of the slice `at`, with the columns of a sample."""
    columns = [exchanges.c[name] for name in SampledExchange._fields if name in exchanges.c]
    newest = sa.select(*columns).where(_in_slice(since, until))
    newest_slice = newest.order_by(exchanges.c.request_id.desc()).limit(MOST_OF_A_SLICE).subquery()
    return sa.select(sa.literal_column(str(at)).label("at"), *newest_slice.c)


@dataclass(frozen=True, slots=True)
class JudgedReply:
    """A reply with its latest verdict.

    `stratum` says why it was labelled, as in proxy/store/verdicts/labels.py; `share` is the
    probability with which an audited one was drawn. `confidence` comes from `calibrator`. `before`
    is the confidence without signals, or else without other models' opinions, if it has any.
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


def judged_replies(engine: sa.Engine, since: float, limit: int = MOST_LABELS) -> list[JudgedReply]:
    """Return the replies with a confidence whose latest verdict was given since a time.

    Only facts are read; proxy/store/verdicts/labels.py reads the content too. At most `limit`
    verdicts are read, the latest ones. In each stratum one reply of a conversation counts.
    """
    same = verdicts.alias()
    last = sa.select(same.c.id).where(same.c.request_id == verdicts.c.request_id)
    last = last.order_by(same.c.given_at.desc(), same.c.id.desc()).limit(1)
    verdict_query = sa.select(verdicts.c.request_id, verdicts.c.is_correct)
    verdict_query = verdict_query.where(
        verdicts.c.given_at >= since, verdicts.c.id == last.scalar_subquery()
    )
    recent = verdict_query.order_by(verdicts.c.given_at.desc()).limit(limit).subquery()
    joined = recent.join(exchanges, exchanges.c.request_id == recent.c.request_id)
    joined = joined.outerjoin(held_replies, held_replies.c.request_id == recent.c.request_id)
    query = sa.select(
        exchanges.c.confidence,
        recent.c.is_correct,
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
    replies, seen = [_judged_reply(*row) for row in rows], SeenConversations(None, None)
    return [each for each in replies if seen.is_first(_stratum_conversation(each))]


def _knows_more() -> sa.ColumnElement[bool]:
    """Return the condition that a confidence uses other models, a judge or log-probabilities."""
    name = exchanges.c.calibrator
    return sa.or_(*(name.contains(each) for each in (WITH_OTHERS, "+judge", "+logprobs@")))


def _stratum_conversation(label: JudgedReply) -> str | None:
    """Return the stratum and conversation as one text, such as `audited 3f2a`.

    Without a conversation, returns None or an empty text.
    """
    return label.conversation and f"{label.stratum} {label.conversation}"


def _judged_reply(
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
) -> JudgedReply:
    """Return the reply in a row of `judged_replies`, with its stratum."""
    is_drawn = kind == AUDIT and share is not None
    stratum: Stratum = "held" if review_id else "audited" if is_drawn else "other"
    audit_share = share if is_drawn else None
    details = model, team, conversation, calibrator, _before(facts)
    return JudgedReply(confidence, bool(is_correct), stratum, audit_share, *details)


def _before(facts: str | None) -> float | None:
    """Return the confidence without signals, or else without other models, from facts as JSON.

    None if there is neither, and for several choices, since a verdict does not say which of them it
    is about.
    """
    choices = json.loads(facts) if facts else []
    choice = choices[0] if len(choices) == 1 else {}
    before = choice.get("unaided", choice.get("alone"))
    return before if isinstance(before, float | int) else None


def names(rows: tuple[SampledExchange, ...]) -> tuple[list[str], list[str]]:
    """Return (models, teams) in a sample, those with the most exchanges first."""
    return _by_weight(rows, "model"), _by_weight(rows, "team")


def _by_weight(rows: tuple[SampledExchange, ...], name: str) -> list[str]:
    """Return the values of an attribute in a sample, those with the most exchanges first."""
    found: dict[str, float] = {}
    for row in rows:
        if (value := getattr(row, name)) is not None:
            found[value] = found.get(value, 0.0) + row.weight
    return sorted(found, key=lambda value: (-found[value], value))


@dataclass(frozen=True, slots=True)
class OpinionExchange:
    """An exchange with second opinions, asked for or not, or with signals.

    After an escalation, opinions are there without being asked for. `calls` are the recorded calls
    for a second opinion, `judging` those of a judge. `opinions` are the results of the comparisons:
    `agree`, `differ` or `untold`.
    """

    model: str | None
    team: str | None
    calibrator: str | None
    confidence: float | None
    review_id: str | None
    calls: tuple[Mapping[str, Any], ...]
    opinions: tuple[str, ...]
    judging: tuple[Mapping[str, Any], ...] = ()
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class OpinionExchanges:
    """The exchanges with second opinions or signals among the latest of a window.

    `is_whole` says whether all exchanges of the window were read.
    """

    rows: tuple[OpinionExchange, ...]
    is_whole: bool


def opinion_exchanges(
    engine: sa.Engine, window: Window, limit: int = LOOKED_AT
) -> OpinionExchanges:
    """Return the exchanges with second opinions or signals among the latest `limit` of a window.

    Raises StoreError.
    """
    row = exchanges.c
    inside = sa.and_(
        row.request_id >= first_id(window.since),
        row.request_id < first_id(window.until),
    )
    columns = row.model, row.team, row.calibrator, row.confidence, row.review_id
    newest = sa.select(*columns, row.calls, row.facts).where(inside)
    recent = newest.order_by(row.request_id.desc()).limit(limit).subquery()
    in_facts = [recent.c.facts.like(each) for each in (_HAS_OPINIONS, *_HAS_SIGNALS)]
    in_calls = [recent.c.calls.like(each) for each in (_SECOND_OPINION_CALL, _JUDGE_CALL)]
    query = sa.select(recent).where(sa.or_(*in_facts, *in_calls))
    with reading(engine) as connection:
        count = connection.execute(sa.select(sa.func.count()).select_from(recent)).scalar() or 0
        rows = tuple(map(_read_exchange, connection.execute(query)))
    return OpinionExchanges(rows, count < limit)


def _read_exchange(row: Any) -> OpinionExchange:
    """Return the exchange in a row of `opinion_exchanges`, with its calls by purpose."""
    calls = json.loads(row.calls) if row.calls else []
    return OpinionExchange(
        row.model,
        row.team,
        row.calibrator,
        row.confidence,
        row.review_id,
        tuple(call for call in calls if call.get("purpose") == "second_opinion"),
        tuple(_opinions(row.facts)),
        tuple(call for call in calls if call.get("purpose") == "judge"),
    )


def _opinions(facts: str | None) -> Iterator[str]:
    """Yield the results of the comparisons in stored facts: `agree`, `differ` or `untold`."""
    for choice in json.loads(facts) if facts else []:
        yield from choice.get("opinions", ())
