"""Commands for policies: test, replay, explain, promote, certify, hook, schema."""

__all__ = ["certify", "explain", "hook", "promote", "replay", "schema", "test"]
