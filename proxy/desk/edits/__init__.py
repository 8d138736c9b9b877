"""Edits: the changes that a reviewer may make to a stored reply."""

__all__ = ["editable", "editing"]
