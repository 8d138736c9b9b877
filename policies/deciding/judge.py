"""A judge: a model that is asked whether a reply is correct, before the rules look at it.

    judge:
      model: gpt-5-mini                             # the judge, best not the answering model
      when: {confidence: {between: [0.3, 0.9]}}     # or near_threshold, or left out: always
      by: token                                     # or words, for models without log-probabilities
      within: 10s                                   # the longest time that the reply waits

The judge sees the question and the reply. Its answer is P(correct), from the log-probabilities of
one token or as a number in words. It changes no confidence until labels have shown its worth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from policies.deciding.second_opinion import (
    ANY_REPLY,
    ASKING_WHEN,
    MAX_WITHIN,
    AskingWhen,
    Consultation,
)
from policies.reading.reading import Node
from policies.reading.shapes import MODEL, duration, mapping, word

By: TypeAlias = Literal["token", "words"]

BY: Final[tuple[By, ...]] = ("token", "words")
WITHIN_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge(Consultation):
    """The model that is asked whether a reply is correct, and the replies it is asked about.

    `by` says whether log-probabilities are asked for; where none come, its words count.
    """

    model: str
    by: By = "token"
    within_s: float = WITHIN_S

    def __str__(self) -> str:
        """Return the sentence of `pinocchio check`: `asks gpt-5-mini to judge every reply, ...`."""
        return f"asks {self.model} to judge {self.where}, waiting at most {self.within_s:g} s"


def _judge(
    node: Node, *, when: AskingWhen = ANY_REPLY, within: float = WITHIN_S, **options: Any
) -> Judge:
    """Build the `Judge` from the keys of `judge`; `when` is (conditions, is near a threshold)."""
    return Judge(when=when[0], is_near=when[1], within_s=within, **options)


JUDGE: Final = mapping(
    _judge,
    {"model": MODEL, "when": ASKING_WHEN, "by": word(BY), "within": duration(MAX_WITHIN)},
    required=("model",),
)
