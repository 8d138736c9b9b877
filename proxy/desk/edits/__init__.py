"""What a reviewer may change in a stored reply."""

__all__ = ["editable", "editing"]
