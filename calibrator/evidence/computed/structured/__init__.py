"""Replies in a formal language: JSON, SQL, tables. They are read, and never run."""

__all__ = ["json_replies", "json_support", "sql", "tables"]
