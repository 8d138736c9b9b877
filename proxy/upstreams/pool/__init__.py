"""Our own HTTP client: connections to upstreams that are kept open."""

__all__ = ["connection", "forward_proxy", "pool"]
