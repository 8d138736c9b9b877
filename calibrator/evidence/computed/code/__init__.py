"""Program code in a reply: certain faults, and habits that are usually bugs. Nothing is run."""

__all__ = ["blocks", "checking", "python"]
