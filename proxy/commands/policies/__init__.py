"""Commands on policies: test, replay, explain, promote, certify."""

__all__ = ["certify", "explain", "promote", "replay", "schema", "test"]
