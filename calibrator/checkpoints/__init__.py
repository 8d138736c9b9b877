"""Checkpoint folders: configuration, sources and digests."""

__all__ = ["checkpoint", "devices", "digests", "hub", "llm_config"]
