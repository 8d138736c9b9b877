"""Questions about numbers, amounts and letters with a computable answer."""

__all__ = ["arithmetic", "claims", "letters", "unit_table", "units"]
