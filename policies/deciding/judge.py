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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from policies.deciding.rules import Rule
from policies.deciding.second_opinion import AskedAbout, read_replies, read_time
from policies.reading.reading import Node

By: TypeAlias = Literal["token", "words"]

KEYS: Final = ("model", "when", "by", "within")
BY: Final[tuple[By, ...]] = ("token", "words")
WITHIN_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge(AskedAbout):
    """The model that is asked whether a reply is correct, and the replies it is asked about.

    `by` says whether log-probabilities are asked for; where none come, its words count.
    """

    model: str
    by: By = "token"
    within_s: float = WITHIN_S

    def __str__(self) -> str:
        """Return the sentence of `pinocchio check`: `asks gpt-5-mini to judge ...`."""
        return f"asks {self.model} to judge {self.where}, waiting at most {self.within_s:g} s"


def read_judge(node: Node, rules: Sequence[Rule]) -> Judge | None:
    """Read `judge`, None where absent; problems are reported, see `policies.reading.reading`."""
    if not node.is_present:
        return None
    node.check_keys(KEYS, required=("model",))
    when, is_near = read_replies(node["when"], rules)
    found = Judge(
        model=node["model"].model() if node["model"].is_present else "",
        when=when,
        by=node["by"].choice(BY, "token"),
        within_s=read_time(node["within"], WITHIN_S),
        is_near=is_near,
    )
    return found.near(rules)
