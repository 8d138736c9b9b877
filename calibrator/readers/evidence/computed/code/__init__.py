"""Program code in a reply: certain faults, and habits that are usually bugs.

Nothing is executed.
"""

__all__ = ["blocks", "checking", "python"]
