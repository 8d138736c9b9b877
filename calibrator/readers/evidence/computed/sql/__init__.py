"""SQL that a prompt asks for, compiled by SQLite for an empty database."""

__all__ = ["checking"]
