"""Commands on held replies and labels."""

__all__ = ["feedback", "figures", "reviews", "verdict"]
