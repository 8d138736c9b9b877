"""The traits, numeric features, of a tool call compared with its conversation."""

__all__ = [
    "claims",
    "conversation",
    "grounding",
    "planting",
    "requests",
    "rules",
    "sources",
    "steps",
    "traits",
    "values",
]
