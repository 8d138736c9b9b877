"""Commands for the start: `init` at first, `migrate` after an upgrade."""

__all__ = ["init", "migrate"]
