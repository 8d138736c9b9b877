"""WebSockets, which are relayed and labelled but not scored."""

__all__ = ["websockets"]
