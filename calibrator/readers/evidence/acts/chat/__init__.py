"""The checks whether a reply fits a chat: tone, form, earlier statements, the edited text."""

__all__ = ["addressing", "diet", "editing", "form", "memory", "tone", "turns"]
