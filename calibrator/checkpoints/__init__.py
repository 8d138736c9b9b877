"""Checkpoint folders: configuration, sources and digests."""

__all__ = ["checkpoint", "devices", "digests", "extras", "hub", "llm_config"]
