"""The readers of a reply: each finds what speaks for or against it."""

__all__ = ["calls", "evidence", "inspection", "knowledge", "opinion"]
