"""The checks of replies in a formal language: JSON and tables."""

__all__ = ["json_replies", "json_support", "tables"]
