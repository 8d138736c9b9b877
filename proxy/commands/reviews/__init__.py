"""Commands for held replies and labels."""

__all__ = ["feedback", "fetch", "figures", "reviews", "verdict"]
