"""Policies: rules and actions, and from the facts of a completion to a decision."""

__all__ = [
    "actions",
    "asking",
    "costs",
    "decision",
    "judge",
    "narrowing",
    "policy",
    "rules",
    "second_opinion",
    "streams",
]
