"""Commands on policies: test, replay, explain, promote, certify, hook."""

__all__ = ["certify", "explain", "hook", "promote", "replay", "schema", "test"]
