"""The paper's tables and figures on anybody's labelled replies, as one report."""

__all__ = ["catalogue", "run", "scored", "tables"]
