"""What a policy may ask for that a proxy has to carry out, or feed with facts, to mean anything.

A policy that asks for more than the proxy does is refused when it is loaded: nothing in a policy
is silently ignored. `SERVED` is the one place that says what is carried out today.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Literal, TypeAlias, get_args

from policies.errors import Problem

Feature: TypeAlias = Literal[
    "annotate",  # the label of `annotate` in the member `pinocchio`
    "ask",  # asking several times, or several models, and taking the surest reply
    "block message",
    "calibrator",  # Facts.calibrator, and reading certificates: `max_error`
    "clarify generate",  # a question written by a model
    "deliver notice",
    "escalate ladder",  # more than one stronger model, in turn
    "hold async",
    "hold expiry",  # what happens to a held reply that nobody decided on
    "hold wait",
    "key",  # Facts.key
    "length",  # Facts.length
    "recent share",  # Facts.share_below: `lowest_share`
    "refusal",  # Facts.refusal
    "rule shadow",  # recording Decision.shadowed
    "team",  # Facts.team
]

FEATURES: Final[frozenset[Feature]] = frozenset(get_args(Feature))
"""All that a policy can ask for."""

SERVED: Final[frozenset[Feature]] = frozenset(
    {
        "annotate",
        "ask",
        "block message",
        "calibrator",
        "clarify generate",
        "deliver notice",
        "escalate ladder",
        "hold async",
        "hold expiry",
        "hold wait",
        "key",
        "length",
        "recent share",
        "refusal",
        "rule shadow",
        "team",
    }
)
"""What this version's proxy carries out beyond what every policy may ask for."""


def unsupported(
    uses: Collection[tuple[Feature, Problem]], supports: Collection[Feature] = SERVED
) -> list[Problem]:
    """The places where something is asked for that is not in `supports`."""
    return [place for feature, place in uses if feature not in supports]
