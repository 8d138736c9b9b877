"""Policies: their rules and actions, and the decision for the facts of a completion."""

__all__ = [
    "actions",
    "asking",
    "costs",
    "decision",
    "judge",
    "policy",
    "rules",
    "second_opinion",
    "streams",
]
