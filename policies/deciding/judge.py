"""A judge: a model that is asked whether a reply is correct, before the rules look.

    judge:
      model: gpt-5-mini                             # who judges, best another one than answers
      when: {confidence: {between: [0.3, 0.9]}}     # or near_threshold, or left out: always
      by: token                                     # or words, for models without log-probabilities
      within: 10s                                   # the reply waits no longer than this

It sees the question and the reply, and what it says is P(correct) by the log-probabilities of one
token, or a number in words. Until labels have taught what its word is worth it changes no number.
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
    """Who is asked whether a reply is correct, and about which replies.

    `by` says whether log-probabilities are asked for; where none come, its words count.
    """

    model: str
    by: By = "token"
    within_s: float = WITHIN_S

    def __str__(self) -> str:
        """Tell it as `pinocchio check` does: `asks gpt-5-mini to judge ...`."""
        return f"asks {self.model} to judge {self.where}, waiting at most {self.within_s:g} s"


def read_judge(node: Node, rules: Sequence[Rule]) -> Judge | None:
    """Read `judge`; problems are reported, see `policies.reading.reading`."""
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
