"""Checkpoint folders: configuration, sources and digests."""

__all__ = ["checkpoint", "devices", "extras", "hub", "llm_config"]
