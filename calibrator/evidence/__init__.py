"""The checks of a reply: against its conversation, by computing, and by known facts."""

__all__ = [
    "acts",
    "computed",
    "context",
    "conversation",
    "fact_file",
    "facts",
    "finding",
    "number_words",
    "task",
]
