"""`pinocchio study`: one study by name, or all of the paper's tables as a report."""

__all__ = ["others", "study"]
