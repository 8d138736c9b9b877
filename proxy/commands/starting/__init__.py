"""Commands before the first start of a proxy, and before that of a newer version."""

__all__ = ["init", "migrate"]
