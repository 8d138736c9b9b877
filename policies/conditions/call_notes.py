"""The conditions on a call's marks and its risk.

    tools:
      - name: "*"
        marked: any                                  # a mark of any kind
      - name: "refund_*"
        marked: [not_in_conversation, placeholder]   # one of these, on any argument
      - name: send_email
        marked: {to: any, body: [not_in_conversation]}    # on these arguments
        risk: [medium, high]
    risk: high                                       # of a rule: of one of the calls

Both need a score, as marks and risk are determined together with it. Where the marks of a call are
unknown, a rule that restrains the reply matches, and one that delivers it does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from policies.conditions.facts import ToolCall
from policies.conditions.globs import Globs
from policies.reading.reading import Node, either
from policies.reading.shapes import Shape, by_name, or_mapping, words

MARKS: Final = (
    "not_in_conversation",
    "swapped",
    "other_choice",
    "contrary",
    "other_number",
    "other_date",
    "other_record",
    "other_tool",
    "wider",
    "ruled_out",
    "unasked_change",
    "placeholder",
    "schema",
    "impossible_date",
    "limit_passed",
    "repeated",
    "failed_before",
    "unconfirmed",
    "not_looked_up",
)
"""The marks that a call can have, the strongest first; docs/marks.md says what each means."""
RISKS: Final = ("low", "medium", "high")
ANY: Final = "any"
_ALL: Final = frozenset(MARKS)


@dataclass(frozen=True, slots=True)
class MarkCondition:
    """A condition that a call has at least one of the given marks.

    Each of `groups` names arguments (None for any) and marks. `if_unknown` is the answer for a call
    whose marks are unknown.
    """

    groups: tuple[tuple[Globs | None, frozenset[str]], ...]
    if_unknown: bool = True

    def match(self, call: ToolCall) -> bool:
        """Return whether a call has one of the marks on one of the arguments that `groups` name.

        `if_unknown` is returned for a call whose marks are None, that is, were not determined.
        """
        return self.if_unknown if call.marks is None else bool(self.find_marks(call))

    def find_marks(self, call: ToolCall) -> list[tuple[str, str]]:
        """Return the marks of a call that the condition names, each as (mark, argument or "")."""
        return [
            (mark, argument)
            for mark, argument in call.marks or ()
            if any(
                mark in marks and (globs is None or globs.match(argument))
                for globs, marks in self.groups
            )
        ]

    def covers(self, other: MarkCondition | None) -> bool:
        """Return whether this condition surely matches every call that `other` matches.

        Return False for None (no condition) and for groups of other globs, even if these are
        narrower.
        """
        if other is None or (other.if_unknown and not self.if_unknown):
            return False
        return all(
            any(
                (globs is None or globs == other_globs) and marks >= wanted
                for globs, marks in self.groups
            )
            for other_globs, wanted in other.groups
        )


@dataclass(frozen=True, slots=True)
class Risk:
    """A condition that a call's risk is one of `names`.

    `if_unknown` is the answer for a call whose risk is unknown.
    """

    names: frozenset[str]
    if_unknown: bool = True

    def match(self, call: ToolCall) -> bool:
        """Return whether the risk of a call is one of `names`; `if_unknown` where it is None."""
        return self.if_unknown if call.risk is None else call.risk in self.names

    def covers(self, other: Risk | None) -> bool:
        """Return whether this condition matches every call that `other` matches; False for None."""
        return (
            other is not None and other.names <= self.names and self.if_unknown >= other.if_unknown
        )

    def __str__(self) -> str:
        """Return the names in ascending order, such as `medium or high`."""
        return either([name for name in RISKS if name in self.names])


def _marks(node: Node) -> frozenset[str]:
    """Read `any` as all marks, or one mark or a list as a set; report unknown names."""
    return _ALL if node.value == ANY else _MARK_NAMES.read(node)


_MARK_NAMES: Final = words(MARKS)
_MARKS: Final = Shape(_marks, {"anyOf": [{"const": ANY}, _MARK_NAMES.schema]})
_BY_ARGUMENT: Final = by_name(_MARKS, least=1)
MARKED: Final = or_mapping(
    Shape(lambda node: MarkCondition(((None, _MARKS.read(node)),)), _MARKS.schema),
    Shape(
        lambda node: MarkCondition(
            tuple((Globs((name,)), marks) for name, marks in _BY_ARGUMENT.read(node).items())
        ),
        _BY_ARGUMENT.schema,
    ),
)
"""`any`, names of marks, or a mapping of arguments to these."""
_RISK_NAMES: Final = words(RISKS)
RISK: Final = Shape(lambda node: Risk(_RISK_NAMES.read(node)), _RISK_NAMES.schema)
"""One risk or several."""
