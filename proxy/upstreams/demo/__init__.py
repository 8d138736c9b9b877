"""The demo upstream: canned answers without network or key."""

__all__ = ["demo"]
