"""Commands for held replies and labels."""

__all__ = ["label", "report", "reviews"]
