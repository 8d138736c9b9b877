"""The parts that write to the client: live streams and heartbeats."""

__all__ = ["heartbeats", "live_stream"]
