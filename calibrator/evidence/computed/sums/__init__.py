"""Questions about numbers, amounts and letters whose answer can be computed."""

__all__ = ["arithmetic", "letters", "unit_table", "units"]
