"""The conditions of a rule, and the facts that they are judged on.

A new condition is a field of `When` in `conditions.py`, its name in `ON_REQUEST` or `ON_REPLY`, and
a line in `read_when` (for the request, in `read_request_conditions`). Its fact is a field of
`Facts`, which the proxy fills in `CompletionRequest.facts` or `Answer.facts` and reads back from
its record in `store/record/facts.py`; `trying/schema.py` describes the condition to editors.
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
