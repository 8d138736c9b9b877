"""What the embedded calibrator checks of a reply beyond its likeness to right ones.

Likeness is what tower, forest and inspector say. Here a reply is held against its conversation:
what can be computed decides, a context that supports or contradicts the reply comes next, and
what the reply does (refuses, asks back, ..) moves the rest. A score says in `basis` what counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from calibrator.evidence.acts import fit, recognise
from calibrator.evidence.computed import verify
from calibrator.evidence.context import Judgement, Support
from calibrator.evidence.context.reader import Cutter
from calibrator.evidence.conversation import Conversation, read_conversation
from calibrator.evidence.facts import check_facts, needs_facts
from calibrator.evidence.task import TaskFamiliarity
from calibrator.features.weights import Array
from calibrator.recalibration.curves import log_odds, probability
from calibrator.scorer import COMPUTED, CONTEXT, FACTS, LIKENESS, Item, Score, Unsupported

MIX: Final = "evidence.mix"
GROUNDED_ACTS: Final = frozenset({"answer", "refusal", "clarification", "unknown", "summary", "data"})
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

    def weigh(self, items: Sequence[Item], scores: Sequence[Score]) -> list[Score]:
        """Return the scores of texts, changed by what was found out about each."""
        conversations = [read_conversation(each.messages, each.question) for each in items]
        acts = [
            recognise(conversation, item.answer)
            for conversation, item in zip(conversations, items, strict=True)
        ]
        grounded = [at for at, act in enumerate(acts) if act.kind in GROUNDED_ACTS]
        judged: list[Judgement | None] = [None] * len(items)
        if self._support is not None:
            found = self._support.judge([(conversations[at], acts[at].body) for at in grounded])
            for at, judgement in zip(grounded, found, strict=True):
                judged[at] = judgement
        return [
            self._weighed(item, conversation, act_kind, judgement, score)
            for item, conversation, act_kind, judgement, score in zip(
                items, conversations, acts, judged, scores, strict=True
            )
        ]
