"""Commands for the start: `init` at first, `migrate` after an upgrade."""

__all__ = ["check", "init", "migrate", "serve"]
