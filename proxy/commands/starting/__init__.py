"""Commands for the start: `init` at first, `migrate` after an upgrade, `capacity` before either."""

__all__ = ["capacity", "init", "migrate"]
