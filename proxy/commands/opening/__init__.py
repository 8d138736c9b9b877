"""What commands share: exit statuses, and the opened record."""

__all__ = ["exits", "opened_record"]
