"""Where requests go: the rest of the proxy cannot tell upstreams apart."""

__all__ = ["loops", "model_lists", "policy_models", "pool", "router", "upstream", "upstream_lines"]
