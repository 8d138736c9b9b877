"""Makes the knowledge's lessons and pairs."""

__all__ = ["lessons", "pairs"]
