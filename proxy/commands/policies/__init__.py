"""Commands for policies: test, replay, explain, promote, certify, hook."""

__all__ = ["certify", "explain", "hook", "promote", "replay", "test"]
