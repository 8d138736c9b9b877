"""The checks of a reply against its conversation, beyond its likeness to right replies.

Likeness is the score of tower, forest and inspector. Here a reply is compared with its
conversation. A computation decides first; next comes a context that supports or contradicts the
reply; the kind of reply (refusal, question back, ..) changes the rest. `basis` of a score names
what counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from calibrator.features.weights import Array
from calibrator.readers.evidence.acts import (
    Act,
    fit,
    has_only_its_text,
    recognise,
    without_quotation,
)
from calibrator.readers.evidence.computed import (
    ValueSupport,
    Verdict,
    support_of_values,
    suspect,
    verify,
)
from calibrator.readers.evidence.context import Cutter, Judgement, Support, own_document
from calibrator.readers.evidence.context.support import documents_of
from calibrator.readers.evidence.conversation import Conversation, read_conversation
from calibrator.readers.evidence.facts import check_facts, needs_facts
from calibrator.readers.evidence.familiarity import TaskFamiliarity
from calibrator.readers.evidence.finding import Finding
from calibrator.recalibration.curves import log_odds, probability
from calibrator.scorer import (
    CALLS,
    COMPUTED,
    CONTEXT,
    FACTS,
    LIKENESS,
    Item,
    Score,
    UnsupportedSentence,
)
from calibrator.text.stripping import without_question
from calibrator.text.transcript import TOOLS_OFFERED

MIX: Final = "evidence.mix"
GROUNDED_ACTS: Final = frozenset(
    {"answer", "refusal", "clarification", "unknown", "summary", "data"}
)
FACT_RIGHT: Final = 0.95  # P(correct) if a table of facts agrees with the reply
CHECKED_BELOW: Final = 0.5  # confidence below which a check gives its reasons
OF_FORM: Final = frozenset({"form"})  # wishes that a reply may miss and still be right
FORM_SHIFT: Final = -1.2  # log-odds, for a wish of form that the reply misses
NOT_READ: Final = "context_not_read"


@dataclass(frozen=True, slots=True)
class Mix:
    """The weights of each kind of evidence, fitted on sources that no other part learnt from.

    `support` and `likeness` multiply log-odds if there is a context, and `base` is added.
    `computed_right` and `computed_wrong` are P(correct) if something was computed, and
    `computed_likeness` multiplies the log-odds of likeness beside them. `unfamiliar` multiplies the
    log-odds of likeness alone for tasks of unknown kinds, to which `unfamiliar_base` is added. The
    last four are added to the log-odds of replies of one kind.
    """

    support: float = 1.0
    likeness: float = 0.0  # beside a context, likeness does not improve the ranking
    base: float = 0.0
    computed_right: float = 0.93
    computed_wrong: float = 0.06
    unfamiliar: float = 0.5
    computed_likeness: float = 0.15
    unfamiliar_base: float = 0.0
    translation: float = 0.0  # in an unfamiliar task
    code: float = 0.0  # in an unfamiliar task
    summary: float = 0.0  # with a context
    data: float = 0.0  # with a context

    @classmethod
    def from_array(cls, array: Array | None) -> Mix:
        """Return the mix whose fields have the numbers of a checkpoint's array, in their order.

        None gives the defaults. Raises TypeError for an array that is too long.
        """
        return cls() if array is None else cls(*map(float, array.tolist()))


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """A reply with its conversation and its act.

    `item` is unchanged. `answer` is its text without restatements of the question and without a
    quotation of the conversation at its beginning. `request` is without a document.
    """

    item: Item
    conversation: Conversation
    request: str
    answer: str
    act: Act

    @property
    def bare_item(self) -> Item:
        """The item without openings and apologies in its answer, for judging its likeness.

        It is the same item if the answer has none.
        """
        body = self.act.body
        return self.item if body == self.item.answer else replace(self.item, answer=body)


def read_reply(item: Item) -> ParsedReply:
    """Parse an item: its conversation, what its reply does, and the text that is compared.

    The item is not changed.
    """
    messages = item.messages or (item.tool_use.messages if item.tool_use is not None else ())
    conversation = read_conversation(messages, item.question)
    if item.facts:
        conversation = replace(conversation, facts=item.facts)
    request = conversation.instruction if own_document(conversation) else conversation.request
    answer = without_question(request, without_quotation(item.answer, conversation))
    return ParsedReply(item, conversation, request, answer, recognise(conversation, answer))


@dataclass(frozen=True, slots=True)
class CheckedReply:
    """A reply, its judgement by the context, and whether tasks of its kind are unknown."""

    reply: ParsedReply
    judgement: Judgement | None
    is_unfamiliar: bool


class Evidence:
    """A check of replies against their conversations, which changes their scores."""

    def __init__(self, support: Support | None, task: TaskFamiliarity | None, mix: Mix) -> None:
        self._support = support
        self._task = task
        self._mix = mix

    @classmethod
    def from_state(cls, state: Mapping[str, Array], cut: Cutter) -> Evidence:
        """Load the arrays of `evidence.safetensors`; `cut` cuts texts into word pieces.

        Raises KeyError, TypeError or ValueError for arrays that do not fit.
        """
        support = Support.from_state(state, cut)
        return cls(support, TaskFamiliarity.from_state(state), Mix.from_array(state.get(MIX)))

    def check(self, replies: Sequence[ParsedReply]) -> list[CheckedReply]:
        """Return each reply with its judgement by the context, and whether its task is unfamiliar.

        The judgement is None for a reply that need not rely on a context, and for all without the
        part `support`. A reply in JSON is judged by its values. The order is kept.
        """
        strange = [self._is_unfamiliar(each) for each in replies]
        judged: list[Judgement | None] = [None] * len(replies)
        if self._support is not None:
            chosen = [at for at, each in enumerate(replies) if _is_grounded(each, strange[at])]
            for at in chosen:
                judged[at] = _judge_json(replies[at])
            chosen = [at for at in chosen if judged[at] is None]
            pairs = [(replies[at].conversation, replies[at].act.body) for at in chosen]
            for at, judgement in zip(chosen, self._support.judge(pairs), strict=True):
                judged[at] = judgement
        return [CheckedReply(*each) for each in zip(replies, judged, strange, strict=True)]

    def weigh(
        self,
        checked: Sequence[CheckedReply],
        scores: Sequence[Score],
        lines: Sequence[tuple[float, float]] | None = None,
    ) -> list[Score]:
        """Return the scores of replies, in order, changed by the evidence about each.

        `lines` holds a slope and an offset for each, learnt from a deployment's labels, which
        change its final log-odds unless a computation decided; None changes none.
        """
        lines = [(1.0, 0.0)] * len(scores) if lines is None else lines
        return [self._weigh(*each) for each in zip(checked, scores, lines, strict=True)]

    def _is_unfamiliar(self, reply: ParsedReply) -> bool:
        """Return whether the calibrator was not trained on tasks of this kind.

        False without the part that knows, and for replies where tools were offered or used.
        """
        task = self._task
        if task is None or reply.item.tool_use is not None or TOOLS_OFFERED in reply.item.question:
            return False  # the calibrator was trained on calls and offers of tools
        return task.is_unfamiliar(reply.conversation)

    def _weigh(self, checked: CheckedReply, score: Score, line: tuple[float, float]) -> Score:
        """Return one score with confidence, basis, reasons and act by the evidence on its reply.

        The strongest evidence gives the log-odds. Unless that is a computation, findings about form
        and suspicious values shift them, and `line`, a slope and an offset, changes the result.
        Reasons are kept below a confidence of `CHECKED_BELOW`. A reply in an agent's conversation
        keeps its score but for `line`, with the basis `calls`.
        """
        reply, judgement, is_unfamiliar = checked.reply, checked.judgement, checked.is_unfamiliar
        likeness, (slope, offset) = log_odds(score.confidence), line
        if reply.item.tool_use is not None:
            # an agent's claims were compared with its calls already
            if line != (1.0, 0.0):
                score = replace(score, confidence=probability(slope * likeness + offset))
            return replace(score, basis=(CALLS,), act=reply.act.kind)
        found = self._strongest_evidence(reply, judgement, likeness, is_unfamiliar)
        if found.basis == (LIKENESS,) and not found.reasons:
            found.reasons = [*score.because]
        basis, finding = found.basis, None
        if basis != (COMPUTED,):
            finding = fit(reply.conversation, reply.act, reply.answer)
            suspicion = suspect(reply.conversation, reply.item.answer)
            if suspicion is not None:
                found.odds += suspicion.shift
                found.reasons.insert(0, suspicion.reason)
        if finding is not None and _counts(finding):
            found.odds += finding.shift
            if reply.conversation.rules and finding.is_right is not None and basis == (LIKENESS,):
                basis = (CONTEXT,)  # a rule of the system message was kept or broken
            if finding.shift < 0:
                found.reasons.insert(0, finding.reason)
        if basis != (COMPUTED,):
            found.odds = slope * found.odds + offset
        confidence = probability(found.odds)
        is_complete = judgement is None or judgement.is_complete
        is_alone = basis == (LIKENESS,)
        return replace(
            score,
            confidence=confidence,
            because=tuple(dict.fromkeys(found.reasons)) if confidence < CHECKED_BELOW else (),
            is_truncated=score.is_truncated if judgement is None else not is_complete,
            unread="" if is_complete else NOT_READ,
            support=None if judgement is None else judgement.support,
            unsupported=() if judgement is None else judgement.unsupported,
            basis=basis,
            act=reply.act.kind,
            needs_facts=is_alone and needs_facts(reply.conversation),
            is_unfamiliar=is_alone and is_unfamiliar,
        )

    def _strongest_evidence(
        self, reply: ParsedReply, judgement: Judgement | None, likeness: float, is_unfamiliar: bool
    ) -> _DecisiveEvidence:
        """Return what decides: a computation, the context, a known fact, or likeness alone.

        They are tried in this order. `likeness` is the log-odds by likeness, which has a small part
        in the others too. A missed wish of form lowers the log-odds by `FORM_SHIFT` without
        deciding.
        """
        mix = self._mix
        claim = without_question(reply.request, reply.act.body)
        verdict = _verdict(reply, claim)
        reasons = [] if verdict is None or verdict.is_right else [verdict.reason]
        if verdict is not None and verdict.task not in OF_FORM:
            share = mix.computed_right if verdict.is_right else mix.computed_wrong
            return _DecisiveEvidence(
                (COMPUTED,), log_odds(share) + mix.computed_likeness * likeness, reasons
            )
        against = FORM_SHIFT if reasons else 0.0
        if judgement is not None:
            odds = mix.support * log_odds(judgement.support) + mix.likeness * likeness + mix.base
            odds += {"summary": mix.summary, "data": mix.data}.get(reply.act.kind, 0.0)
            basis = _basis_of_context(reply.conversation)
            source = "facts" if basis == (FACTS,) else "context"
            reasons += [_reason(each, source) for each in judgement.unsupported]
            return _DecisiveEvidence(basis, odds + against, reasons)
        if (
            fact := check_facts(reply.conversation, claim)
        ) is not None and fact.is_right is not None:
            odds = log_odds(FACT_RIGHT) * (1 if fact.is_right else -1)
            return _DecisiveEvidence((FACTS,), odds, [] if fact.is_right else [fact.reason])
        if is_unfamiliar:
            likeness = mix.unfamiliar * likeness + mix.unfamiliar_base
            likeness += {"translation": mix.translation, "code": mix.code}.get(reply.act.kind, 0.0)
        return _DecisiveEvidence(
            (COMPUTED,) if reasons else (LIKENESS,), likeness + against, reasons
        )


@dataclass(slots=True)
class _DecisiveEvidence:
    """The decisive evidence on a reply: basis, log-odds of right, and the reasons against it."""

    basis: tuple[str, ...]
    odds: float
    reasons: list[str]


def _verdict(reply: ParsedReply, claim: str) -> Verdict | None:
    """Check by computation a whole reply, or `claim`, its text without openings, or return None.

    None means that nothing about it can be computed. The claim is checked if the whole reply has no
    verdict or only misses a wish of form.
    """
    found = verify(reply.conversation, reply.item.answer)
    is_of_form = found is not None and found.task in OF_FORM and not found.is_right
    if (found is None or is_of_form) and claim.strip() != reply.item.answer.strip():
        found = verify(reply.conversation, claim)  # an opening breaks no limit of length
    return found


def _judge_json(reply: ParsedReply) -> Judgement | None:
    """Judge a reply in JSON by whether its values are in the conversation.

    None for another reply, where tools were offered, and where the values cannot be compared.
    """
    if reply.act.kind != "data" or TOOLS_OFFERED in reply.item.question:
        return None
    found: ValueSupport | None = support_of_values(reply.conversation, reply.item.answer)
    if found is None:
        return None
    doubts = tuple(
        UnsupportedSentence(f"{key}: {value}", (value,), kind) for key, value, kind in found.doubts
    )
    return Judgement(found.support, doubts if found.support < CHECKED_BELOW else ())


def _is_grounded(reply: ParsedReply, is_unfamiliar: bool) -> bool:
    """Return whether a reply is to be judged by its context: rules, results, earlier turns, facts.

    Only acts of `GROUNDED_ACTS` are, without tools. Where there is none of these, a reply to an
    unfamiliar kind of task is, by a document in the request; one to a known kind, such as a problem
    in prose, is not: likeness judges it better.
    """
    conversation = reply.conversation
    if reply.item.tool_use is not None or has_only_its_text(conversation):
        return False
    sources = conversation.rules, conversation.results, conversation.earlier, conversation.facts
    return reply.act.kind in GROUNDED_ACTS and (any(sources) or is_unfamiliar)


def _basis_of_context(conversation: Conversation) -> tuple[str, ...]:
    """Return the source of the context: `("context",)`, `("facts",)`, or both.

    Facts are the operator's texts.
    """
    if not conversation.facts:
        return (CONTEXT,)
    has_more = len(documents_of(conversation)) > len(conversation.facts)
    return (CONTEXT, FACTS) if has_more else (FACTS,)


def _counts(finding: Finding) -> bool:
    """Return whether a finding changes a confidence.

    It does if it says right or wrong, or lowers the log-odds; a merely plausible act raises
    nothing.
    """
    return finding.is_right is not None or finding.shift < 0


def _reason(unsupported: UnsupportedSentence, source: str) -> str:
    """Describe a sentence that is not supported, such as `the context does not say: Paris`.

    `source` is `context` or `facts`; a contradicted one gives `the context says otherwise: ..`.
    """
    says = "say" if source == "facts" else "says"
    named = ", ".join(unsupported.words) or f'"{unsupported.sentence}"'
    if unsupported.kind == "contradicted":
        return f"the {source} {says} otherwise: {named}"
    return f"the {source} {'do' if source == 'facts' else 'does'} not say: {named}"
