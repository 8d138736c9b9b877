"""The checks of replies in a formal language: JSON, SQL, tables. Nothing is executed."""

__all__ = ["json_replies", "json_support", "sql", "tables"]
