"""HTTP/1.1 at both ends: the listener, the pool of upstream connections, and what both share."""

__all__ = ["public_addresses"]
