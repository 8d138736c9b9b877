"""Commands that query models: for answers to questions, and about answers."""

__all__ = ["collect", "elicit"]
