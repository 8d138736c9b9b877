"""A chain of HMACs over the record, which reveals later changes."""

__all__ = ["chain", "verification"]
