"""Program code in a reply: certain faults, and habits that are usually bugs; never executed."""

__all__ = ["blocks", "checking", "python", "sql"]
