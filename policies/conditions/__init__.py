"""The conditions of a rule, and the facts that they look at."""

__all__ = [
    "certificate",
    "conditions",
    "confidence",
    "facts",
    "globs",
    "ranking",
    "tool_patterns",
    "tool_words",
]
