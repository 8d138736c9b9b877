"""The researchers' commands."""

__all__ = ["app"]
