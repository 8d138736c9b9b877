"""The conditions of a rule, and the facts that they look at.

A new condition is a field of `When` in `conditions.py`, its name in `ON_REQUEST` or `ON_REPLY`, and
a line in `read_when`. What it looks at is a field of `Facts`; `trying/schema.py` describes it to
editors.
"""

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
