"""`init` for a first start, `migrate` after an upgrade, `capacity` before either."""

__all__ = ["capacity", "init", "migrate"]
