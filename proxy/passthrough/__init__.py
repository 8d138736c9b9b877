"""Requests that are relayed and labelled but not scored: other paths, and WebSockets."""

__all__ = ["surfaces", "websockets"]
