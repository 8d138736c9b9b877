"""What is written to the client: live streams, heartbeats and replaced replies."""

__all__ = ["heartbeats", "live_stream", "replacements"]
