"""Whether a reply fits a chat: its tone, its form, what the user said before, the text it edits."""

__all__ = ["addressing", "editing", "form", "memory", "tone", "turns"]
