"""Compares a tool call with its conversation, and gives traits: numeric features."""

__all__ = [
    "claims",
    "conversation",
    "grounding",
    "planting",
    "reply",
    "requests",
    "rules",
    "steps",
    "values",
]
