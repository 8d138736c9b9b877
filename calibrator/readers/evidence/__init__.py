"""The checks of a reply: against its conversation, by computing, and by known facts."""

__all__ = [
    "acts",
    "computed",
    "context",
    "conversation",
    "facts",
    "familiarity",
    "finding",
    "number_words",
    "task_form",
]
