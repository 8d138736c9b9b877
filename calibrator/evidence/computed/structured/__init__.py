"""Replies in a formal language: JSON, SQL, Python, tables. They are read, and never run."""

__all__ = ["json_replies", "json_support", "python_code", "sql", "tables"]
