"""Which calls of tools a person has to look at: by a threshold, or as a policy decides.

The predicates of `pinocchio.langchain`, `pinocchio.openai_agents` and `pinocchio.pydantic_ai` ask
here. A threshold needs the standard library alone, a policy the package `policies` and PyYAML.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from os import PathLike
from typing import Any, Final, TypeAlias

from pinocchio.packages import check_own

Doubt: TypeAlias = Callable[[str | None, Any, float | None], bool]
"""Whether to ask a person, by the name of the tool, the arguments (JSON text or what it says) and
the confidence; None where the name or the confidence is not known."""

KNOWN_FACTS: Final = frozenset({"arguments", "confidence", "tools"})


def doubt(below: float | None, policy: str | PathLike[str] | None) -> Doubt:
    """The test for one of the two; raises ValueError for both, for neither, and for a policy that
    cannot be asked here."""
    if (below is None) == (policy is None):
        raise ValueError("give unsure() either below=0.9 or policy='agent-tools'")
    if policy is not None:
        return _by_policy(policy)
    threshold = float(below or 0.0)
    return lambda name, arguments, confidence: confidence is None or confidence < threshold


def _by_policy(name_or_path: str | PathLike[str]) -> Doubt:
    """What is not delivered as it is, is for a person. A call without a number is too, unless the
    policy decides on it without one."""
    check_own("policies")
    from policies import Annotate, Deliver, Facts, ToolCall, decide, load_policy

    policy = load_policy(name_or_path)
    if not policy.is_enforced:
        raise ValueError(f"policy {policy.name} has `mode: shadow`, in which it stops no call")
    if unknown := policy.looks_at - KNOWN_FACTS:
        raise ValueError(
            f"policy {policy.name} looks at {', '.join(sorted(unknown))}; of a call of a tool only "
            "its name, its arguments and the confidence are known here"
        )

    def is_for_a_person(name: str | None, arguments: Any, confidence: float | None) -> bool:
        if name is None:
            return True
        call = ToolCall(name, _as_text(arguments))
        decision = decide(policy, Facts(confidence=confidence, model="", tools=(call,)))
        is_delivered = isinstance(decision.action, Deliver | Annotate)
        return decision.because == "score_error" or not is_delivered

    return is_for_a_person


def _as_text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, default=str)
