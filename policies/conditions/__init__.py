"""The conditions of a rule, and the facts that they are judged on.

A new condition is a field of `When` in `conditions.py`, and its shape in `ON_REQUEST` or
`ON_REPLY`, which is both its reader and its JSON Schema for editors. Its fact is a field of
`Facts`, which the proxy fills in `CompletionRequest.facts` or `Answer.facts` and reads back from
its record in `store/record/facts.py`.
"""

__all__ = [
    "call_notes",
    "certificate",
    "commands",
    "conditions",
    "confidence",
    "facts",
    "findings",
    "globs",
    "paths",
    "ranking",
    "tool_names",
    "tool_patterns",
    "tool_words",
]
