"""A reply that calls tools beside its conversation, read as traits."""

__all__ = [
    "claims",
    "conversation",
    "grounding",
    "planting",
    "requests",
    "rules",
    "steps",
    "values",
]
