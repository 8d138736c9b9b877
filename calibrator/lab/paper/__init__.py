"""The paper's tables and figures for any labelled replies, as one report."""

__all__ = ["catalogue", "run"]
