"""The confidence of each choice, computed off the event loop and within a deadline.

The calibrator loads on a thread of its own while the proxy already relays. An error here costs a
confidence, never a completion: the status and a machine word say why there is none.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import structlog

from calibrator import (
    NO_SIGNALS,
    Batcher,
    CalibratorError,
    CallNotes,
    FieldDoubt,
    Item,
    NotScorableError,
    OtherReply,
    Question,
    QueueFullError,
    Score,
    Scorer,
    Signals,
    Ticket,
    UnavailableError,
    message_text,
    opinion_of,
    reads_images,
    reads_tool_use,
)
from proxy.formats import Choice
from proxy.formats.events.called import unread_part
from proxy.scoring.engines.findings import (
    NOTHING,
    UNFAMILIAR_TASK,
    Findings,
    calls_tools,
    findings_of,
    notes_of,
    unread_reason,
)
from proxy.scoring.images import ImagePart, Images
from proxy.scoring.renaming import model_renamer
from proxy.scoring.waits import Arrivals, Deadlines, lower_priority

log = structlog.get_logger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 5.0  # seconds until an unavailable scorer is tried again


class Status(StrEnum):
    """The values of `x-pinocchio-confidence-status`."""

    SCORED = "scored"
    TRUNCATED = "truncated"
    UNFAMILIAR = "unfamiliar"
    LOADING = "loading"
    PENDING = "pending"
    SKIPPED = "skipped"
    TIMEOUT = "timeout"
    ERROR = "error"
    NOT_SUPPORTED = "not_supported"


SCORED, TRUNCATED = Status.SCORED, Status.TRUNCATED  # saves the lookup of a member each time


@dataclass(slots=True)
class Confidence:
    """P(correct) of a choice, or None with the reason.

    `score` is the calibrator's own value, if a recalibration of the deployment has corrected it;
    `because` are facts that speak against the reply, if the calibrator gives any.
    """

    value: float | None
    status: Status
    reason: str | None = None
    score: float | None = None
    because: tuple[str, ...] = ()
    fields: tuple[FieldDoubt, ...] = ()  # arguments of calls without a source in the conversation
    notes: tuple[CallNotes, ...] | None = None  # marks and risk of each call; None: not examined
    evidence: Evidence | None = None  # other answers that changed it
    signals: Signals = NO_SIGNALS  # a judge's verdict, the tokens' probabilities
    aided: SignalChange | None = None  # how signals changed it
    stand_in: StandIn | None = None  # the calibrator that gave it instead of the configured one
    findings: Findings = NOTHING  # the calibrator's other findings


def least_sure(confidences: Sequence[Confidence]) -> Confidence:
    """Return the lowest confidence, one without a number first; raises ValueError for none."""
    if len(confidences) == 1:
        return confidences[0]
    return min(confidences, key=lambda each: -1.0 if each.value is None else each.value)


@dataclass(frozen=True, slots=True)
class OtherAnswer:
    """Another call's answer to the same question, as a chat message; `usage` is its cost."""

    message: Mapping[str, Any]
    model: str | None  # the model that gave it
    usage: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Evidence:
    """The other answers that changed a confidence.

    `before` is the confidence without them, and `score_before` that before a recalibration of the
    deployment, if there was one. `opinions` says for each of `others` whether it agrees, differs,
    or whether that is unknown; `calibrator` is the provenance of the confidence, such as
    `embedded@3f2a91c0+opinion@9c1d02ab`.
    """

    calibrator: str
    before: float
    opinions: tuple[str, ...]
    others: Sequence[OtherAnswer] = ()
    score_before: float | None = None


@dataclass(frozen=True, slots=True)
class SignalChange:
    """A change of a confidence by signals.

    `before` is the confidence without them, with the provenance `calibrator_before`, and
    `score_before` that before a recalibration, if there was one. `calibrator` is the new
    provenance, `kinds` are the signals that were used.
    """

    before: float
    calibrator_before: str
    score_before: float | None
    calibrator: str
    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StandIn:
    """The calibrator that scored instead of the configured one, and why.

    `calibrator` is its name with its own recalibration, `cause` the reason that the reply would
    have had without a number.
    """

    calibrator: str
    cause: str


@dataclass(slots=True)
class ScoreRequest:
    """A question and its answers, for which confidences are needed.

    `question` reads the client's request and may raise NotScorableError. `model` is the answering
    one. `domain` and `team` choose a recalibration's curve. `facts` returns the operator's facts
    that are context for an item.
    """

    question: Callable[[], Question]
    choices: Sequence[Choice]
    model: str
    domain: str | None = None
    team: str | None = None
    facts: Callable[[Item], tuple[str, ...]] | None = None


class Scoring:
    """The proxy's access to a scorer, which `load` returns, possibly after seconds.

    `on_ready` is called, from any thread, once loading has ended, with or without success.
    """

    def __init__(
        self,
        load: Callable[[], Scorer] | None,
        *,
        timeout_s: float = 2.0,
        max_queue: int = 1_024,
        images: Images | None = None,
        on_ready: Callable[[], None] = lambda: None,
        rated_like: Mapping[str, str] | None = None,  # model names to those they are rated as
    ) -> None:
        self._load, self._rated_as = load, model_renamer(rated_like or {})
        self._timeout_s = timeout_s
        self._deadlines = Deadlines(timeout_s)
        self._images = images or Images()
        self._max_queue = max_queue
        self._on_ready = on_ready
        self._batcher: Batcher | None = None
        self.name: str | None = None
        """The calibrator's name, once it is loaded."""
        self._arrivals: Arrivals | None = None
        self._scorer: Scorer | None = None
        self._is_closing = threading.Event()
        self._absence = Confidence(None, Status.LOADING, "calibrator_loading")
        if load is None:
            self._absence = Confidence(None, Status.SKIPPED, "no_calibrator")

    @property
    def reads_images(self) -> bool:
        """Whether the calibrator reads images; False until it is loaded."""
        return self._scorer is not None and reads_images(self._scorer)

    @property
    def reads_tool_use(self) -> bool:
        """Whether the calibrator reads the conversation before tool calls; False while it loads."""
        return self._scorer is not None and reads_tool_use(self._scorer)

    @property
    def opinion(self) -> str:
        """The provenance of a confidence that takes other answers into account, or empty."""
        return opinion_of(self._scorer) if self._scorer is not None else ""

    @property
    def is_ready(self) -> bool:
        """Whether there is nothing to wait for: the calibrator is loaded, or none is configured."""
        return self._batcher is not None or self._load is None

    def load_figures(self) -> tuple[int, dict[int, int]]:
        """Return the number of choices that wait, and how many batches there were of each size."""
        return self._batcher.load_figures() if self._batcher else (0, {})

    def start(self) -> None:
        """Start to load the calibrator on a thread of its own."""
        threading.Thread(target=self._run_load, name="load-calibrator", daemon=True).start()

    def _run_load(self) -> None:
        """Load the scorer on this thread, at a low priority, and then call `on_ready`."""
        lower_priority()
        if self._load is not None:
            self._try_load(self._load)
        if not self._is_closing.is_set():
            self._on_ready()

    def _try_load(self, load: Callable[[], Scorer]) -> None:
        """Load the scorer, again while it is unavailable; other errors are logged and final."""
        message, pause_s = None, FIRST_PAUSE_S
        while not self._is_closing.is_set():
            try:
                scorer = _warm(load())
                break
            except UnavailableError as error:
                if message != (message := str(error)):
                    log.warning("calibrator_unavailable", reason=error.reason, error=message)
                self._is_closing.wait(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            except Exception as error:
                self._absence = Confidence(None, Status.ERROR, "calibrator_failed")
                log.error("calibrator_failed", error=str(error))
                return
        else:
            return
        self._take(scorer)

    def _take(self, scorer: Scorer) -> None:
        """Use a loaded scorer from now on and log its name; close it if the proxy is closing."""
        self._scorer = scorer
        if self._is_closing.is_set():
            _close(scorer)
            return
        self._batcher = Batcher(scorer, max_queue=self._max_queue)
        self.name = self._batcher.name
        # The embedded calibrator has a compiled kernel only if it was built here.
        more = {"kernel": kernel} if (kernel := getattr(scorer, "kernel", None)) else {}
        log.info("calibrator_ready", calibrator=scorer.name, **more)

    def close(self) -> None:
        """Close the scorer, its queue and the images; waiting requests get the status `error`."""
        self._is_closing.set()
        if self._scorer is not None:
            _close(self._scorer)
        if self._batcher is not None:
            self._batcher.close()
        if self._arrivals is not None:
            self._arrivals.close()
            self._arrivals = None
        self._images.close()

    async def score(self, request: ScoreRequest) -> list[Confidence]:
        """Return one confidence for each choice, in their order; raises nothing.

        Where there is no number, the confidence has the status and reason of that.
        """
        choices, facts = request.choices, request.facts
        if self._batcher is None:
            return [self._absence] * len(choices)
        try:
            question, items, found = request.question(), [], []
            model, domain = self._rated_as(request.model), request.domain
            for choice in choices:
                items.append(item := _item_of(question, choice, model, domain))
                item.facts = facts(item) if facts is not None else ()
            if question.images:
                return await self._with_images(question.images, items)
            for ticket, item in zip(await self.tickets(items), items, strict=True):
                found.append(_confidence(ticket))
                if found[-1].notes is None and found[-1].value is not None and calls_tools(item):
                    found[-1].notes = await asyncio.to_thread(notes_of, item)
            return found
        except NotScorableError as error:
            return [Confidence(None, Status.NOT_SUPPORTED, error.reason)] * len(choices)
        except QueueFullError:
            return [Confidence(None, Status.SKIPPED, "queue_full")] * len(choices)
        except Exception as error:
            log.error("score_failed", **describe_error(error))
            return [Confidence(None, Status.ERROR, "scorer_failed")] * len(choices)

    async def with_others(
        self, request: ScoreRequest, found: Sequence[Confidence], others: Sequence[OtherAnswer]
    ) -> list[Confidence]:
        """Return the confidences in `found` after comparison with other answers; raises nothing.

        A confidence is unchanged if it has no number or there is nothing to compare. Domain, team
        and facts of the request are ignored.
        """
        if not self.opinion or not others:
            return list(found)
        try:
            question, model = request.question(), self._rated_as(request.model)
            other_replies = tuple(_other(question, each) for each in others)
            at = [at for at, each in enumerate(found) if each.value is not None]
            items = [_item_of(question, request.choices[each], model, None) for each in at]
            for item, each in zip(items, at, strict=True):
                item.others, item.alone = other_replies, found[each].value
            tickets = await self.tickets(items)
        except (NotScorableError, QueueFullError):
            return list(found)
        except Exception as error:
            log.error("score_failed", **describe_error(error))
            return list(found)
        changed = list(found)
        for each, ticket in zip(at, tickets, strict=True):
            changed[each] = _move_by_others(found[each], ticket.score, self.opinion, others)
        return changed

    async def _with_images(
        self, parts: Sequence[ImagePart], items: Sequence[Item]
    ) -> list[Confidence]:
        """Return confidences for a question with images, whose loading counts toward the deadline.

        Raises what `tickets` raises, and NotScorableError where images cannot be read or fetched.
        """
        if not self.reads_images:
            if not self._images.may_be_ignored:
                raise NotScorableError("image", "this calibrator reads text only")
            found = [_confidence(ticket) for ticket in await self.tickets(items)]
            for each in (one for one in found if one.value is not None):
                each.status, each.reason = TRUNCATED, "image"  # the images were not read
            return found
        try:
            async with asyncio.timeout(self._timeout_s), self._images.of(parts) as images:
                for item in items:
                    item.images = images
                return [*map(_confidence, await self.tickets(items))]
        except TimeoutError:
            return [Confidence(None, Status.TIMEOUT, "deadline")] * len(items)

    async def tickets(self, items: Sequence[Item]) -> list[Ticket]:
        """Return a ticket for each item; those that are not done in time are cancelled.

        Raises QueueFullError, and CalibratorError where no scorer is loaded.
        """
        if (batcher := self._batcher) is None:
            raise CalibratorError("the scorer is not there")
        loop, arrivals = asyncio.get_running_loop(), self._arrivals
        if arrivals is None or arrivals.loop is not loop:
            arrivals = self._arrive_on(loop)
        waiting, tickets = arrivals.submit(batcher, items)
        self._deadlines.add(waiting, loop)
        try:
            if items:
                await waiting.over
            return tickets
        finally:
            self._deadlines.discard(waiting)
            for ticket in tickets:
                if not ticket.is_done:
                    ticket.cancel()
                    ticket.item.images = ()  # saves memory: it may stay in the queue for a while
                    ticket.item.tool_use, ticket.item.messages = None, ()

    def _arrive_on(self, loop: asyncio.AbstractEventLoop) -> Arrivals:
        """Make scores arrive on this loop from now on, and return its `Arrivals`."""
        if self._arrivals is not None:
            self._arrivals.close()
        self._arrivals = Arrivals(loop)
        return self._arrivals


def _item_of(question: Question, choice: Choice, model: str, domain: str | None) -> Item:
    """Return the scorer's input for a choice; raises NotScorableError if it cannot read it."""
    if choice.is_part_unread:
        raise NotScorableError("unreadable_event", "a part of the answer could not be read")
    if (text := choice.plain_text()) is None:
        return _item(question, choice.message, model, domain)
    tool_use, messages = question.tool_use(choice.message), question.all_messages()
    return Item(question.text, text, model, None, domain, (), tool_use, messages=messages)


def _item(
    question: Question, message: Mapping[str, Any], model: str | None, domain: str | None
) -> Item:
    """Return the scorer's input for a chat message; raises NotScorableError as `_item_of`."""
    if (unread := unread_part(message)) is not None:
        raise NotScorableError(unread, "an answer that is more than text and known calls")
    try:
        text = message_text(message)
    except ValueError as error:
        raise NotScorableError("content", str(error)) from error
    tool_use, messages = question.tool_use(message), question.all_messages()
    return Item(question.text, text, model, None, domain, (), tool_use, messages=messages)


def _other(question: Question, other: OtherAnswer) -> OtherReply:
    """Return another answer for the calibrator; raises NotScorableError as `_item` does."""
    item = _item(question, other.message, other.model, None)
    return OtherReply(item.answer, other.model, item.tool_use)


def _move_by_others(
    confidence: Confidence, score: Score | None, name: str, others: Sequence[OtherAnswer]
) -> Confidence:
    """Return a confidence as other answers changed it; unchanged if these were not compared."""
    if score is None or score.alone is None or not 0 <= score.confidence <= 1:
        return confidence
    assert confidence.value is not None
    evidence = Evidence(name, confidence.value, score.compared, others[: len(score.compared)])
    findings = confidence.findings.with_opinions()
    return replace(confidence, value=score.confidence, evidence=evidence, findings=findings)


def _warm(scorer: Scorer) -> Scorer:
    """Return the scorer after a first, slow pass; closes it and raises the error if that fails."""
    question = "How many days are 3 weeks, and what is 15 % of 240 euros?"
    messages = ({"role": "system", "content": "Open 24/7."}, {"role": "user", "content": question})
    try:
        scorer.score_batch([Item(question, "warm-up", messages=messages)])
    except BaseException:
        _close(scorer)
        raise
    return scorer


def _close(scorer: Scorer) -> None:
    """Close a scorer that has connections, as one over HTTP has; do nothing for others."""
    if (close := getattr(scorer, "close", None)) is not None:
        close()


def describe_error(error: BaseException) -> dict[str, str]:
    """Return an error's type as `kind` and, for a CalibratorError, its message as `error`.

    Other messages may quote the text that was to be scored.
    """
    message = {"error": str(error)} if isinstance(error, CalibratorError) else {}
    return {**message, "kind": type(error).__name__}


_OF_ENGINES = {"engine_timeout": Status.TIMEOUT, "engine_busy": Status.SKIPPED}


def _absence(error: BaseException) -> Confidence:
    """Return a confidence without a number for an error of the scorer; unknown ones are logged."""
    if isinstance(error, UnavailableError):  # the engine has logged it
        return Confidence(None, _OF_ENGINES.get(error.reason, Status.ERROR), error.reason)
    if isinstance(error, NotScorableError):
        return Confidence(None, Status.NOT_SUPPORTED, error.reason)
    log.error("score_failed", **describe_error(error))
    return Confidence(None, Status.ERROR, "scorer_failed")


def _confidence(ticket: Ticket) -> Confidence:
    """Return a ticket's confidence, or the status and reason of one without a number."""
    if not ticket.is_done:
        return Confidence(None, Status.TIMEOUT, "deadline")
    if ticket.error is not None:
        return _absence(ticket.error)
    if (score := ticket.score) is None:
        return Confidence(None, Status.ERROR, "scorer_closed")
    if not 0 <= score.confidence <= 1:  # also true for NaN
        log.error("score_failed", error=f"{score.confidence} is no probability")
        return Confidence(None, Status.ERROR, "scorer_failed")
    confidence = Confidence(score.confidence, SCORED, None, None, score.because, score.fields)
    confidence.findings, confidence.notes = findings_of(score), score.notes
    if score.is_truncated:
        confidence.status, confidence.reason = TRUNCATED, unread_reason(score)
    elif score.is_unfamiliar:
        confidence.status, confidence.reason = Status.UNFAMILIAR, UNFAMILIAR_TASK
    return confidence
