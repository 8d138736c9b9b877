"""A chain of HMACs over the record, which shows whoever changed it later."""

__all__ = ["chain", "verification"]
