"""A chain of HMACs over the record, by which a later change is found."""

__all__ = ["chain", "verification"]
