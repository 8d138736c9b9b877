"""Checkpoint folders: what `calibrator.json` says, where they come from, their digests."""

__all__ = ["checkpoint", "devices", "digests", "hub", "llm_config"]
