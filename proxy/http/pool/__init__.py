"""An HTTP client of our own, which keeps connections to upstreams open."""

__all__ = ["connection", "forward_proxy", "pool"]
