"""The tests of which tool calls a person has to look at: a threshold, marks, or a policy.

The predicates of `pinocchio.langchain`, `pinocchio.openai_agents` and `pinocchio.pydantic_ai` use
them. A threshold needs only the standard library, a policy the package `policies` and PyYAML.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from os import PathLike
from typing import Any, Final, Protocol, TypeAlias

from pinocchio.packages import check_own

Marks: TypeAlias = Sequence[tuple[str, str]]
"""The marks of a call, each with the argument that it is about or an empty text."""


class Doubt(Protocol):
    """A test of whether to ask a person about a tool call.

    It takes the name of the tool, the arguments (JSON text or decoded), the confidence, the marks
    and the risk, each None where it is unknown.
    """

    def __call__(
        self,
        name: str | None,
        arguments: Any,
        confidence: float | None,
        marks: Marks | None = None,
        risk: str | None = None,
    ) -> bool: ...


KNOWN_FACTS: Final = frozenset({"arguments", "confidence", "marks", "tools"})
WEAK_MARKS: Final = frozenset({"failed_before", "not_looked_up", "unconfirmed"})
"""The marks that right calls have about as often as wrong ones; `marked=True` ignores them."""


def doubt(
    below: float | None,
    policy: str | PathLike[str] | None,
    marked: bool | Collection[str] = False,
) -> Doubt:
    """Return a test of calls: below a threshold, with a mark, or as a policy decides.

    `marked` is True for any mark but those that right calls have as often, or the names of marks.
    Raises ValueError where a policy is given beside the others, where nothing is given, and for a
    policy that needs facts unknown here or is in shadow.
    """
    if (policy is None) == (below is None and not marked) or isinstance(marked, str):
        raise ValueError(
            "give unsure() below=0.7, marked=True (or a list of marks), or both of them, "
            "or else a policy, as in policy='doubtful-calls'"
        )
    if policy is not None:
        return _by_policy(policy)
    threshold = 0.0 if below is None else float(below)
    names = None if isinstance(marked, bool) else frozenset(marked)

    def is_for_a_person(
        name: str | None,
        arguments: Any,
        confidence: float | None,
        marks: Marks | None = None,
        risk: str | None = None,
    ) -> bool:
        """Return whether a call has no number, one below the threshold, or one of the marks.

        Where marks are asked for and unknown, it is for a person, too.
        """
        if confidence is None or confidence < threshold:
            return True
        if not marked:
            return False
        return marks is None or any(
            mark not in WEAK_MARKS if names is None else mark in names for mark, _ in marks
        )

    return is_for_a_person


def _by_policy(name_or_path: str | PathLike[str]) -> Doubt:
    """Return a test that is true for every call the policy does not deliver as it is.

    It is also true for a call without a confidence, unless the policy decides without one.
    """
    check_own("policies")
    from policies import Annotate, Deliver, Facts, ToolCall, decide, load_policy

    policy = load_policy(name_or_path)
    if not policy.is_enforced:
        raise ValueError(f"policy {policy.name} has `mode: shadow`, in which it stops no call")
    if unknown := policy.looks_at - KNOWN_FACTS:
        raise ValueError(
            f"policy {policy.name} looks at {', '.join(sorted(unknown))}; of a call of a tool only "
            "its name, its arguments, the confidence, marks and risk are known here"
        )

    def is_for_a_person(
        name: str | None,
        arguments: Any,
        confidence: float | None,
        marks: Marks | None = None,
        risk: str | None = None,
    ) -> bool:
        """Return whether the policy does anything else than deliver this call.

        A call without a name is always for a person.
        """
        if name is None:
            return True
        pairs = None if marks is None else tuple((mark, argument) for mark, argument in marks)
        call = ToolCall(name, _as_text(arguments), marks=pairs, risk=risk)
        decision = decide(policy, Facts(confidence=confidence, model="", tools=(call,)))
        is_delivered = isinstance(decision.action, Deliver | Annotate)
        return decision.because == "score_error" or not is_delivered

    return is_for_a_person


def _as_text(arguments: Any) -> str:
    """Return arguments as JSON text; text is returned unchanged."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, default=str)
