"""The operations of the desk, for the API, the console and the terminal.

Methods wait for the database, so call them on a thread; each raises ProxyError. A decision takes
effect at once, also for clients that wait. To let people undo one, a caller has to delay it before
it is sent, as the console does: what a client has received cannot be undone here.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from policies import Policy, load_policy, pack_names
from proxy.config.sections import LimitsConfig
from proxy.desk.decisions.basis import score_facts
from proxy.desk.decisions.editing import edit_reply, editable
from proxy.desk.decisions.rules import (
    ThresholdSide,
    compare_threshold,
    leaning_of_agent,
    policy_of,
    rule_of,
)
from proxy.desk.decisions.standing import LikeThis, coverable, standing_for
from proxy.desk.decisions.waiting_calls import Doubts, WaitingCall, with_arguments
from proxy.errors import (
    BadRequestError,
    DecidedError,
    NotAllowedError,
    NotFoundError,
    UnusableEditError,
)
from proxy.formats.conversation import Turn, read_reply, read_request
from proxy.holds.kept_scores import kept_threshold
from proxy.http.wire.json_splice import json_object
from proxy.store.database.database import storable
from proxy.store.queue import SEEN_QUEUES, Place, QueueEntry, ReviewQueue
from proxy.store.record.reader import find
from proxy.store.record.writer import DAY_S
from proxy.store.reviews.approvals import approved_by, has_approved, revision_of
from proxy.store.reviews.held_replies import (
    AUDIT,
    EXPIRED,
    HELD,
    REJECTED,
    RELEASED,
    HeldReply,
    state_name,
    stored_state,
)
from proxy.store.reviews.outbox import delivery_counts
from proxy.store.reviews.standing import StandingRequest
from proxy.store.reviews.used_links import LinkUse, found_use
from proxy.store.verdicts.feedback import FeedbackStore

if TYPE_CHECKING:
    from proxy.config.setup import Setup
    from proxy.generations.reloading import Refusal

State = Literal["open", "released", "rejected", "expired"]
STATES: Final[tuple[State, ...]] = get_args(State)
MOST_ON_A_PAGE: Final = 500
STATS_FOR_S: Final = 3.0  # seconds; with 100,000 open replies the counts take 150 ms
DECIDED_DAYS: Final = 30


@dataclass(frozen=True, slots=True)
class Verdict:
    """A reviewer's decision; `correct` is the label, or None for none."""

    verdict: Literal["approve", "edit", "reject"]
    correct: bool | None = None
    content: Any = None  # the content of an edit
    note: str | None = None
    revision: str | None = None  # the edit that is approved, where one waits for another approval
    like_this: LikeThis | None = None  # the calls that are approved with it

    @property
    def state(self) -> str:
        """The state of a reply after this decision."""
        return REJECTED if self.verdict == "reject" else RELEASED


@dataclass(frozen=True, slots=True)
class QueuePage:
    """A page of the queue; `next` is the cursor of the next page, or None at the end."""

    items: list[QueueEntry]
    next: str | None


class Desk:
    """The operations on the replies of a queue.

    `setup` returns the configuration in force, and `refusal` the reason why a newer one is refused.
    `on_decision` is called with each reply that is decided and its verdict.
    """

    def __init__(
        self,
        queue: ReviewQueue,
        setup: Callable[[], Setup] | None = None,
        on_decision: Callable[[HeldReply, Verdict], None] = lambda *_: None,
        refusal: Callable[[], Refusal | None] = lambda: None,
    ) -> None:
        self.queue = queue
        self.setup = setup
        self.feedback = FeedbackStore(lambda: queue.engine)
        self._on_decision = on_decision
        self.refusal = refusal
        self.doubts = Doubts()
        self._stats: tuple[float, dict[str, Any]] = (0.0, {})

    def page(
        self,
        state: State = "open",
        *,
        queue: str | None = None,
        team: str | None = None,
        kind: str | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> QueuePage:
        """Return a page of the queue: unscored replies, then the least sure, then the oldest.

        `state` is a public name such as "open". `after` is the `next` of the page before. `limit`
        is at most `MOST_ON_A_PAGE`. Raises BadRequestError for an unknown cursor.
        """
        limit = max(1, min(limit, MOST_ON_A_PAGE))
        place = _place(after) if after else None
        entries = self.queue.page(
            stored_state(state) or HELD, limit + 1, place, queue=queue, team=team, kind=kind
        )
        items = entries[:limit]
        return QueuePage(items, _cursor(items[-1].place) if len(entries) > limit else None)

    def calls(self, held: HeldReply | QueueEntry) -> list[WaitingCall]:
        """Return the calls of a reply, with marks on what is unusual about them."""
        policy = policy_of(self._book, held.policy)
        return self.doubts.waiting_calls(held, rule_of(policy, held.policy) if policy else None)

    def missing_policy(self, label: str) -> str | None:
        """Return the policy's name in a label `policy/rule@digest` if no such policy is configured.

        None if one is, in whatever version, or if the configuration is unknown.
        """
        name = label.partition("/")[0]
        is_known = self.setup is None or any(each.name == name for each in self._book)
        return None if is_known or not name else name

    def compare_threshold(self, label: str | None, confidence: float | None) -> ThresholdSide:
        """Return on which side of the deciding rule's threshold a confidence is.

        `label` is the decision's, `policy/rule@digest`. The side is None where there is no
        threshold, or the policy has changed since.
        """
        return compare_threshold(self._book, label, confidence)

    def leaning_of(self, held: HeldReply | QueueEntry) -> ThresholdSide:
        """Return on which side of a threshold a reply's confidence is.

        The threshold is that of the rule which held it, or of an agent that stopped its own call.
        """
        if not held.policy and (threshold := kept_threshold(held.findings)) is not None:
            return leaning_of_agent(threshold, held.confidence)
        return self.compare_threshold(held.policy, held.confidence)

    @property
    def _limits(self) -> LimitsConfig:
        """The configured limits, or the defaults without a configuration."""
        return self.setup().config.limits if self.setup is not None else LimitsConfig()

    @property
    def _book(self) -> Iterable[Policy]:
        """The configured policies, then the packs: `serve --policy` names some without a file."""
        if self.setup is None:
            return
        yield from self.setup().book
        yield from _packs()

    def entry_facts(self, held: HeldReply | QueueEntry) -> dict[str, Any]:
        """Return the facts of an entry in the queue by name; times are seconds since the epoch.

        Besides the stored ones these are the threshold and the calls with their marks.
        """
        side, threshold, _ = self.leaning_of(held)
        return {
            **stored_facts(held),
            "threshold": threshold,
            "is_below_threshold": None if side is None else side == "low",
            "calls": [call.facts() for call in self.calls(held)],
        }

    def find_reply(self, id: str) -> HeldReply:
        """Return the reply under review with this id; raises NotFoundError."""
        reply = self.queue.get(id)
        if reply is None:
            raise NotFoundError(f"there is no review {id[:100]!r}", code="review_not_found")
        return reply

    def review(self, id: str) -> dict[str, Any]:
        """Return all facts of one reply, as JSON values, with `why`, how each rule evaluated it.

        Raises NotFoundError.
        """
        held = self.find_reply(id)
        return {**self._facts(held), "why": self._why(held)}

    def decide(
        self,
        id: str,
        verdict: Verdict,
        reviewer: str,
        *,
        is_named: bool = True,
        link: LinkUse | None = None,
    ) -> dict[str, Any]:
        """Decide on a reply and return its review as JSON values, without `why`.

        The review stays open where others have to approve too. Where the same reviewer has decided
        the same before, the review is returned again. A `link` is used up by its decision.
        `on_decision` is called with the changed reply. Raises NotFoundError, UnusableEditError,
        DecidedError where somebody else or the expiry was faster or the link was used before,
        BadRequestError for content without an edit and the like, and NotAllowedError for one of
        several approvals by somebody without a name.
        """
        if (verdict.verdict == "edit") != (verdict.content is not None):
            message = "'edit' takes content, and only 'edit' does"
            raise BadRequestError(message, param="content")
        if verdict.like_this is not None and verdict.verdict != "approve":
            raise BadRequestError("only 'approve' takes like_this", param="like_this")
        held = self.find_reply(id)
        if held.quorum > 1 and verdict.verdict != "reject" and not is_named:
            text = f"{id} needs {held.quorum} people, and this key does not say whose it is"
            raise NotAllowedError(f"{text}: make it with --name", code="reviewer_unnamed")
        if held.state == HELD:
            revised = (
                edit_reply(held.as_proposed, verdict.content) if verdict.verdict == "edit" else None
            )
            decided = self.queue.decide(
                held,
                verdict.state,
                reviewer,
                is_correct=verdict.correct,
                revised=revised,
                note=verdict.note,
                revision=verdict.revision,
                link=link,
                standing=self._standing_request(held, verdict),
            )
            if decided is not None:
                if (decided.state, decided.approved) != (HELD, held.approved):
                    self._stats = 0.0, {}  # the next page shows how many are left
                    self._on_decision(decided, verdict)
                return self._facts(decided)
            held = self.find_reply(id)
        if link is not None and found_use(self.queue.engine, link) is not None:
            text = f"this link has decided on {id} before"
            raise DecidedError(text, self._facts(held), code="link_used")
        if self._is_same(held, verdict, reviewer):
            return self._facts(held)
        if held.state == HELD:
            by = approved_by(held.approved)[0]["by"]
            text = f"{by} has edited {id}: read it, and approve its 'revision'"
            raise DecidedError(text, self._facts(held), code="review_edited")
        raise self._decided_error(held)

    def _standing_request(self, held: HeldReply, verdict: Verdict) -> StandingRequest | None:
        """Return the standing approval that a verdict asks for, as it is stored, or None.

        Raises BadRequestError where it goes too far.
        """
        like_this = verdict.like_this
        return None if like_this is None else standing_for(held, like_this, self._limits)

    def _is_same(self, held: HeldReply, verdict: Verdict, reviewer: str) -> bool:
        """Return whether this reviewer has made the same decision before, with the same label.

        A client repeats a decision whose answer was lost.
        """
        revised = None
        if verdict.verdict == "edit":
            try:
                revised = edit_reply(held, verdict.content)
            except UnusableEditError:
                return False
        is_approved = verdict.verdict == "approve" and has_approved(held.approved, reviewer)
        if held.quorum > 1 and held.state == RELEASED and is_approved:
            return verdict.revision == revision_of(held.revised)
        labels = {each.reviewer: each.is_correct for each in self.queue.labels(held)}
        then = (held.state, held.decided_by, held.revised, held.note)
        is_label_same = held.request_id is None or labels.get(reviewer) == verdict.correct
        return then == (verdict.state, reviewer, revised, storable(verdict.note)) and is_label_same

    def _decided_error(self, held: HeldReply) -> DecidedError:
        """Return the error for a reply that was decided or has expired; it holds the review."""
        review = self._facts(held)
        if held.state == EXPIRED:
            message = f"nobody decided on {held.id} in time: it is {state_name(held.current_state)}"
            return DecidedError(message, review, code="review_expired")
        by = f" by {held.decided_by}" if held.decided_by else ""
        return DecidedError(f"{held.id} was {held.state}{by} already", review)

    def label(
        self, id: str, is_correct: bool, reviewer: str, note: str | None = None
    ) -> dict[str, Any]:
        """Store a reviewer's label of a reply in any state, and return the review.

        It replaces an earlier label of the same reviewer; several reviewers may label one reply.
        Raises NotFoundError, and BadRequestError for a reply without a request id.
        """
        held = self.find_reply(id)
        if held.request_id is None:
            message = f"{id} has no request id to label"
            raise BadRequestError(message, code="no_request_id")
        self.queue.give_label(held.request_id, is_correct, reviewer, note)
        return self._facts(held)

    def stats(self) -> dict[str, Any]:
        """Return counts of what waits and what was decided in the last `DECIDED_DAYS` days.

        They are at most `STATS_FOR_S` seconds old. A reviewer who is bound to queues gets these
        queues only, and no decisions. `configuration` says whether the newest one was refused.
        """
        at, stats = self._stats
        if time.monotonic() - at > STATS_FOR_S or not stats:
            waiting = self.queue.open_counts()
            decided = self.queue.decided_counts(time.time() - DECIDED_DAYS * DAY_S)
            for row in decided:
                row["day"] = time.strftime("%Y-%m-%d", time.gmtime(row["day"] * DAY_S))
            stats = {
                "open": sum(row["count"] for row in waiting),
                "oldest_at": min((row["oldest_at"] for row in waiting), default=None),
                "queues": waiting,
                "decided": decided,
                "webhooks": delivery_counts(self.queue.engine),
            }
            self._stats = time.monotonic(), stats
        stats = stats | {"configuration": self._configuration()}
        if (queues := SEEN_QUEUES.get()) is None:
            return stats
        waiting = [row for row in stats["queues"] if row["queue"] in queues]
        return stats | {
            "open": sum(row["count"] for row in waiting),
            "oldest_at": min((row["oldest_at"] for row in waiting), default=None),
            "queues": waiting,
            "decided": [],
        }

    def _configuration(self) -> dict[str, Any]:
        """Return `is_refused`, `refused_at` and `problems` of the newest configuration."""
        refusal = self.refusal()
        if refusal is None:
            return {"is_refused": False, "refused_at": None, "problems": []}
        problems = list(refusal.problems)
        return {"is_refused": True, "refused_at": refusal.at, "problems": problems}

    # --- a review -------------------------------------------------------------------------------

    def _facts(self, held: HeldReply) -> dict[str, Any]:
        """Return all facts of a reply by name, as JSON values, except `why`."""
        parts, path = editable(held.as_proposed), held.path
        labels, history = self.queue.labels_and_events(held)
        return {
            **self.entry_facts(held),
            "question": held.question,
            "doubts": self.doubts.of(held)[1],
            "path": path,
            "note": held.note,
            "share": held.share,
            "taken_at": held.taken_at,
            "is_bound": held.is_bound,
            "revision": revision_of(held.proposed),
            "like_this": coverable(held, self._limits) if held.state == HELD else None,
            "conversation": [
                _turn(each) for each in read_request(held.request, path, held.question)
            ],
            "answer": [_turn(each) for each in read_reply(held.reply, path)],
            "request": json_object(held.request) if held.request is not None else None,
            "reply": json_object(held.reply),
            "proposed": json_object(held.proposed) if held.proposed is not None else None,
            "revised": json_object(held.revised) if held.revised is not None else None,
            "editable": parts
            and {
                "texts": [each.text for each in parts.texts],
                "tool_calls": [{"name": c.name, "arguments": c.arguments} for c in parts.calls],
            },
            "labels": [
                {
                    "reviewer": each.reviewer,
                    "correct": each.is_correct,
                    "given_at": each.given_at,
                    "note": each.note,
                }
                for each in labels
            ],
            "feedback": [  # volunteered labels, mostly from clients
                {
                    "by": each.given_by,
                    "correct": each.is_correct,
                    "given_at": each.given_at,
                    "note": each.note,
                }
                for each in self.feedback.of(held.request_id)
            ],
            "history": [{"event": each.event, "at": each.at, "by": each.by} for each in history],
        }

    def _why(self, held: HeldReply) -> list[dict[str, Any]] | None:
        """Return how each rule evaluated the choices, one after the other.

        Each entry has `rule`, `verdict` and `reasons`. None where that is unknown: the exchange is
        not on record, the policy has changed since, or the desk has no configuration.
        """
        from policies import explain

        exchange = find(self.queue.engine, held.request_id) if held.request_id else None
        if exchange is None or self.setup is None:
            return None
        policy = policy_of(self._book, held.policy)
        if policy is None:
            return None
        rules = [
            rule
            for facts in with_arguments(exchange.facts, held)
            for rule in explain(policy, facts).rules
        ]
        return [
            {"rule": each.rule, "verdict": each.verdict, "reasons": list(each.reasons)}
            for each in rules
        ]


def stored_facts(held: QueueEntry | HeldReply) -> dict[str, Any]:
    """Return the stored facts of an entry in the queue by name, with approvals and score.

    Times are seconds since the epoch. `on_expiry` is None for an audited reply.
    """
    names = ("id", "kind", "queue", "team", "model", "policy", "confidence", "calibrator")
    times = ("request_id", "created_at", "expires_at", "on_expiry", "decided_at", "decided_by")
    facts = {name: getattr(held, name) for name in names + times}
    if held.kind == AUDIT:  # it was delivered, so its expiry changes nothing
        facts["on_expiry"] = None
    facts["approvals"] = approvals_of(held)
    facts["escalation"] = escalation_of(held)
    facts["score"] = score_facts(held)
    return facts | {"state": state_name(held.state), "question": held.question[:500]}


def approvals_of(held: QueueEntry | HeldReply) -> dict[str, Any] | None:
    """Return `needed`, how many people have to approve, and `given`; None where one is enough."""
    if held.quorum == 1:
        return None
    return {"needed": held.quorum, "given": approved_by(held.approved)}


def escalation_of(held: QueueEntry | HeldReply) -> dict[str, Any] | None:
    """Return `to`, the queue that a reply moves to, and `at`, when; None where it stays.

    `at` is None once it has moved.
    """
    if held.escalate_to is None:
        return None
    return {"at": held.escalate_at, "to": held.escalate_to}


def _turn(turn: Turn) -> dict[str, Any]:
    """Return a message as JSON values: its role, and its parts (texts, thoughts, images, calls)."""
    return {"role": turn.role, "parts": [asdict(part) for part in turn.parts]}


def _cursor(place: Place) -> str:
    """Return the cursor for a place in the queue: JSON in base64 for URLs."""
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")


def _place(cursor: str) -> Place:
    """Decode a cursor to (confidence, time, id); raises BadRequestError for an invalid one."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        confidence, created_at, id = json.loads(base64.urlsafe_b64decode(padded))
        place = (None if confidence is None else float(confidence), float(created_at), str(id))
        str(id).encode()
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        message = "'after' is the 'next' of the page before"
        raise BadRequestError(message, param="after", code="invalid_cursor") from error
    return place


@cache
def _packs() -> tuple[Policy, ...]:
    """Return the policies that come with the proxy (packs), loaded once."""
    return tuple(map(load_policy, pack_names()))
