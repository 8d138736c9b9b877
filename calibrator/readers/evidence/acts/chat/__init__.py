"""The checks whether a reply fits a chat: tone, form, earlier statements, the edited text."""

__all__ = [
    "addressing",
    "deeds",
    "diet",
    "editing",
    "expenses",
    "form",
    "memory",
    "plan",
    "tone",
    "turns",
]
