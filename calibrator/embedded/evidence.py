"""What the embedded calibrator checks of a reply beyond its likeness to right ones.

Likeness is what tower, forest and inspector say. Here a reply is held against its conversation:
what can be computed decides, a context that supports or contradicts the reply comes next, and
what the reply does (refuses, asks back, ..) moves the rest. A score says in `basis` what counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from calibrator.evidence.acts import Act, fit, recognise
from calibrator.evidence.computed import verify
from calibrator.evidence.context import Cutter, Judgement, Support
from calibrator.evidence.conversation import Conversation, read_conversation
from calibrator.evidence.facts import check_facts, needs_facts
from calibrator.evidence.task.familiarity import TaskFamiliarity
from calibrator.features.weights import Array
from calibrator.recalibration.curves import log_odds, probability
from calibrator.scorer import COMPUTED, CONTEXT, FACTS, LIKENESS, Item, Score, Unsupported
from calibrator.text.restated_question import without_question

MIX: Final = "evidence.mix"
GROUNDED_ACTS: Final = frozenset(
    {"answer", "refusal", "clarification", "unknown", "summary", "data"}
)
FACT_RIGHT: Final = 0.95  # P(correct) where a table of facts agrees with the reply
CHECKED_BELOW: Final = 0.5  # confidence below which a check says why
NOT_READ: Final = "context_not_read"


@dataclass(frozen=True, slots=True)
class Mix:
    """How much each kind of evidence counts; fitted on sources that nothing else learnt from.

    `support` and `likeness` multiply log-odds where there is a context, `base` is added.
    `computed_right` and `computed_wrong` are P(correct) where something was computed, and
    `unfamiliar` multiplies the log-odds of likeness alone for tasks of unknown kinds.
    """

    support: float = 1.0
    likeness: float = 0.15
    base: float = 0.0
    computed_right: float = 0.93
    computed_wrong: float = 0.06
    unfamiliar: float = 0.35
    computed_likeness: float = 0.15

    @classmethod
    def from_array(cls, array: Array | None) -> Mix:
        """Return the mix of a checkpoint's array; raises TypeError for one of another length."""
        return cls() if array is None else cls(*map(float, array.tolist()))


@dataclass(frozen=True, slots=True)
class ReadReply:
    """A reply with its conversation and what it does; `item` is as it came."""

    item: Item
    conversation: Conversation
    act: Act

    @property
    def bare(self) -> Item:
        """The item without openings and apologies, as its likeness is judged."""
        body = self.act.body
        return self.item if body == self.item.answer else replace(self.item, answer=body)


def read_reply(item: Item) -> ReadReply:
    """Read the conversation of an item, and recognise what its reply does."""
    messages = item.messages or (item.tool_use.messages if item.tool_use is not None else ())
    conversation = read_conversation(messages, item.question)
    return ReadReply(item, conversation, recognise(conversation, item.answer))


class Evidence:
    """Checks replies against their conversations, and changes their scores by what it finds."""

    def __init__(self, support: Support | None, task: TaskFamiliarity | None, mix: Mix) -> None:
        self._support = support
        self._task = task
        self._mix = mix

    @classmethod
    def from_state(cls, state: Mapping[str, Array], cut: Cutter) -> Evidence:
        """Return what the arrays of `evidence.safetensors` hold.

        Raises KeyError, TypeError or ValueError for arrays that do not fit.
        """
        support = Support.from_state(state, cut)
        return cls(support, TaskFamiliarity.from_state(state), Mix.from_array(state.get(MIX)))

    def weigh(self, replies: Sequence[ReadReply], scores: Sequence[Score]) -> list[Score]:
        """Return the scores of replies, changed by what was found out about each."""
        chosen = [at for at, each in enumerate(replies) if each.act.kind in GROUNDED_ACTS]
        judged: list[Judgement | None] = [None] * len(replies)
        if self._support is not None:
            asked = [(replies[at].conversation, replies[at].act.body) for at in chosen]
            for at, judgement in zip(chosen, self._support.judge(asked), strict=True):
                judged[at] = judgement
        return [self._weighed(*each) for each in zip(replies, judged, scores, strict=True)]

    def _weighed(self, reply: ReadReply, judgement: Judgement | None, score: Score) -> Score:
        """Return one score, changed by the strongest evidence that there is."""
        item, conversation, act = reply.item, reply.conversation, reply.act
        claim = without_question(conversation.request, act.body)
        verdict = verify(conversation, item.answer)
        if verdict is None and claim != item.answer:
            verdict = verify(conversation, claim)
        finding = fit(conversation, act, item.answer)
        fact = None if judgement is not None else check_facts(conversation, claim)
        likeness = log_odds(score.confidence)
        is_unfamiliar = self._task is not None and self._task.is_unfamiliar(
            conversation, has_tools=item.tool_use is not None
        )
        mix, basis, reasons = self._mix, [], list(score.because)
        if verdict is not None:
            basis.append(COMPUTED)
            odds = log_odds(mix.computed_right if verdict.is_right else mix.computed_wrong)
            odds += mix.computed_likeness * likeness
            reasons = [] if verdict.is_right else [verdict.reason]
        elif judgement is not None:
            basis.append(CONTEXT)
            odds = mix.support * log_odds(judgement.support) + mix.likeness * likeness + mix.base
            reasons = [_reason(each) for each in judgement.unsupported]
        elif fact is not None:
            basis.append(FACTS)
            odds = log_odds(FACT_RIGHT) if fact.is_right else -log_odds(FACT_RIGHT)
            reasons = [] if fact.is_right else [fact.reason]
        else:
            basis.append(LIKENESS)
            odds = likeness * (mix.unfamiliar if is_unfamiliar else 1.0)
        if finding is not None and verdict is None:
            odds += finding.shift
            if finding.is_right is not None and conversation.rules:
                basis = [CONTEXT, *(each for each in basis if each not in (CONTEXT, LIKENESS))]
            if finding.shift < 0:
                reasons = [finding.reason, *reasons]
        confidence = probability(odds)
        is_complete = judgement is None or judgement.is_complete
        return replace(
            score,
            confidence=confidence,
            because=tuple(dict.fromkeys(reasons)) if confidence < CHECKED_BELOW else (),
            is_truncated=score.is_truncated if judgement is None else not is_complete,
            unread=NOT_READ if not is_complete else "",
            support=None if judgement is None else judgement.support,
            unsupported=() if judgement is None else judgement.unsupported,
            basis=tuple(basis),
            act=act.kind,
            needs_facts=basis == [LIKENESS] and needs_facts(conversation),
            is_unfamiliar=is_unfamiliar and basis == [LIKENESS],
        )


def _reason(unsupported: Unsupported) -> str:
    """Return what a sentence lacks, in words."""
    named = ", ".join(unsupported.words) or f'"{unsupported.sentence}"'
    if unsupported.kind == "contradicted":
        return f"the context says otherwise: {named}"
    return f"the context does not say: {named}"
