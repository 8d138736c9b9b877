"""Verdicts, each with the record of its reply and the content that was kept of it.

The reason why a reply was labelled decides what its label says about other replies:

    held       a policy held it; reviewers choose which held replies they label
    audited    it was delivered, and drawn at random with a known share
    other      somebody labelled it for another reason: it represents itself alone
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import sqlalchemy as sa

from policies import Facts
from proxy.http.wire.json_splice import json_object
from proxy.store.database.tables import metadata
from proxy.store.database.verdicts import reading, verdicts
from proxy.store.record.facts import facts_in
from proxy.store.record.reader import READ_AT_ONCE
from proxy.store.record.writer import conversation_of_row, exchanges, first_id
from proxy.store.reviews.held_replies import AUDIT

held_replies = metadata.tables["held_replies"]

Stratum = Literal["held", "audited", "other"]
DELIVERED: Final = ("deliver", "annotate", "escalate")
_SEVERAL: Final = '%"n":%'  # a pattern for the facts of a request for several choices


@dataclass(frozen=True, slots=True)
class LabelledReply:
    """A reply to a request for one choice, its confidence and its latest verdict.

    `confidence` is the one given, `score` the calibrator's own before the deployment's
    recalibration; None without one. `calibrator` names
    both. `model` is the answering model if known, else the one asked. `question` is equal for
    replies to the same question, `conversation` for those of one conversation. `share` is the
    probability with which an audited reply was drawn. Bytes are None where they were not kept or
    not requested.
    """

    request_id: str
    at: float  # the time of the request, in seconds since the epoch
    given_at: float  # the time of the verdict
    stratum: Stratum
    share: float | None
    is_correct: bool
    confidence: float
    score: float | None
    calibrator: str
    model: str
    team: str | None
    facts: Facts | None  # those that the policy used
    action: str | None
    question: str
    conversation: str | None = None
    path: str | None = None
    request: bytes | None = None
    reply: bytes | None = None

    @property
    def domain(self) -> str | None:
        """The domain of the question, as rules saw it."""
        return self.facts.domain if self.facts else None

    def is_by(self, calibrator: str) -> bool:
        """Return whether this calibrator gave the score, with any recalibration by the deployment.

        A checkpoint's name may end in its own curve, `embedded@3f2a+platt@9c1d`.
        """
        return self.calibrator == calibrator or self.calibrator.startswith(f"{calibrator}+")


@dataclass(frozen=True, slots=True)
class Totals:
    """How many conversations had scored replies to requests for one choice.

    `other` are those that were changed or not delivered for another reason than a hold; no sample
    of them is drawn.
    """

    delivered: int = 0
    held: int = 0
    other: int = 0


def base_of(calibrator: str) -> str:
    """Return a calibrator without its recalibration.

    `embedded@3f2a+platt@9c1d` -> `embedded@3f2a`.
    """
    return calibrator.partition("+")[0]


def labelled_replies(
    engine: sa.Engine, since: float = 0.0, *, has_content: bool = False
) -> Iterator[LabelledReply]:
    """Yield every labelled reply to a request since a time, in the order of requests.

    `since` is in seconds since the epoch. The latest of several verdicts counts. Replies without a
    confidence are left out, and so are those to requests for several choices, since a verdict does
    not say which choice it is about. Requests and replies are read only if `has_content`. Raises
    StoreError.
    """
    held = held_replies
    of_them = [held.c.kind, held.c.share, held.c.question, held.c.path, held.c.reply]
    of_them += [held.c.request] if has_content else []
    joined = verdicts.join(exchanges, exchanges.c.request_id == verdicts.c.request_id)
    joined = joined.outerjoin(held, held.c.request_id == verdicts.c.request_id)
    verdict = verdicts.c.is_correct, verdicts.c.given_at
    query = sa.select(*_OF_EXCHANGE, *verdict, *of_them).select_from(joined)
    query = query.where(*_is_counted(since))
    query = query.order_by(exchanges.c.request_id, verdicts.c.given_at, verdicts.c.id)
    options = {"yield_per": READ_AT_ONCE}
    with (
        reading(engine) as connection,
        connection.execute(query, execution_options=options) as rows,
    ):
        last = None
        for row in rows.mappings():
            if last is not None and last["request_id"] != row["request_id"]:
                yield _read_reply(last, has_content)
            last = row
        if last is not None:
            yield _read_reply(last, has_content)


def totals(engine: sa.Engine, since: float = 0.0, calibrator: str | None = None) -> Totals:
    """Count the conversations with scored replies: delivered, held, or other (see `Totals`).

    With `calibrator`, a name without recalibration, only its replies count. `since` is in seconds
    since the epoch. Raises StoreError.
    """
    stratum = sa.case(
        (exchanges.c.review_id.is_not(None), "held"),
        (exchanges.c.action.in_(DELIVERED), "delivered"),
        else_="other",
    )
    count = sa.func.count(sa.distinct(conversation_of_row))
    query = sa.select(stratum, count).where(*_is_counted(since))
    if calibrator is not None:
        is_plain = exchanges.c.calibrator == calibrator
        is_recalibrated = exchanges.c.calibrator.startswith(f"{calibrator}+", autoescape=True)
        query = query.where(is_plain | is_recalibrated)
    query = query.where(exchanges.c.upstream.is_not(None))  # a poll is no new reply
    with reading(engine) as connection:
        return Totals(**{name: of for name, of in connection.execute(query.group_by(sa.text("1")))})


def delivered_replies(engine: sa.Engine, since: float = 0.0) -> dict[str, int]:
    """Return how many scored replies were delivered, by conversation, where that is 2 or more.

    Only conversations that have a label are counted. Raises StoreError.
    """
    has_label = sa.select(exchanges.c.conversation)
    has_label = has_label.join(verdicts, verdicts.c.request_id == exchanges.c.request_id)
    count, conversation = sa.func.count(), exchanges.c.conversation
    query = sa.select(conversation, count).where(*_is_counted(since))
    query = query.where(
        exchanges.c.upstream.is_not(None),
        exchanges.c.review_id.is_(None),
        exchanges.c.action.in_(DELIVERED),
        conversation.in_(has_label),
    )
    with reading(engine) as connection:
        return {
            name: number
            for name, number in connection.execute(query.group_by(conversation))
            if number > 1
        }


def first_replies(engine: sa.Engine, since: float = 0.0) -> dict[str, str]:
    """Return the request id of the first scored reply, by conversation that has a label.

    `since` is in seconds since the epoch. Raises StoreError.
    """
    has_label = sa.select(exchanges.c.conversation)
    has_label = has_label.join(verdicts, verdicts.c.request_id == exchanges.c.request_id)
    conversation = exchanges.c.conversation
    query = sa.select(conversation, sa.func.min(exchanges.c.request_id))
    query = query.where(*_is_counted(since), conversation.in_(has_label)).group_by(conversation)
    with reading(engine) as connection:
        return {name: first for name, first in connection.execute(query)}


class ReviewerVerdict(NamedTuple):
    """A reviewer's verdict; `reviewer` is empty if nobody said who judged."""

    request_id: str
    reviewer: str
    is_correct: bool


def all_verdicts(engine: sa.Engine, since: float = 0.0) -> list[ReviewerVerdict]:
    """Return all reviewers' verdicts on replies to requests since a time, in the order of verdicts.

    Raises StoreError.
    """
    columns = verdicts.c.request_id, verdicts.c.reviewer, verdicts.c.is_correct
    query = (
        sa.select(*columns).where(verdicts.c.request_id >= first_id(since)).order_by(verdicts.c.id)
    )
    with reading(engine) as connection:
        return [ReviewerVerdict(*row) for row in connection.execute(query)]


_OF_EXCHANGE: Final = (
    exchanges.c.request_id,
    exchanges.c.started_at,
    exchanges.c.review_id,
    exchanges.c.action,
    exchanges.c.confidence,
    exchanges.c.score,
    exchanges.c.calibrator,
    exchanges.c.model,
    exchanges.c.team,
    exchanges.c.key,
    exchanges.c.is_stream,
    exchanges.c.policy,
    exchanges.c.facts,
    exchanges.c.conversation,
    exchanges.c.support,
    exchanges.c.basis,
    exchanges.c.act,
    exchanges.c.needs_facts,
    exchanges.c.is_familiar,
)


def _is_counted(since: float) -> tuple[sa.ColumnElement[bool], ...]:
    """Return the conditions of a scored reply to a request for one choice since a time.

    The one on the primary key comes first.
    """
    return (
        exchanges.c.request_id >= first_id(since),
        exchanges.c.confidence.is_not(None),
        exchanges.c.calibrator.is_not(None),
        sa.func.coalesce(exchanges.c.facts, "").not_like(_SEVERAL),
    )


def _read_reply(row: Any, has_content: bool) -> LabelledReply:
    """Return the reply in a row of `labelled_replies`; its bytes only if `has_content`."""
    reply = json_object(row["reply"]) if row["reply"] else None
    answering_model = (reply or {}).get("model")
    facts, _ = facts_in(row)
    return LabelledReply(
        row["request_id"],
        row["started_at"],
        row["given_at"],
        _stratum(row),
        row["share"] if row["kind"] == AUDIT else None,
        bool(row["is_correct"]),
        row["confidence"],
        row["score"],
        row["calibrator"],
        answering_model if isinstance(answering_model, str) else row["model"] or "",
        row["team"],
        facts[0] if facts else None,
        row["action"],
        row["question"] or row["request_id"],
        row["conversation"],
        row["path"],
        row["request"] if has_content else None,
        row["reply"] if has_content else None,
    )


def _stratum(row: Any) -> Stratum:
    """Return why a reply was labelled: "held", "audited" or "other" (see the module)."""
    if row["review_id"] is not None:
        return "held"
    return "audited" if row["kind"] == AUDIT and row["share"] else "other"
