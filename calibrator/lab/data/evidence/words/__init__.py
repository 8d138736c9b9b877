"""The words and templates of made conversations."""

__all__ = ["templates", "values"]
