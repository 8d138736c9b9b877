"""`init` for a first start, `migrate` after an upgrade."""

__all__ = ["init", "migrate"]
