"""Routes requests to upstreams, and hides their differences from the rest."""

__all__ = ["loops", "model_lists", "policy_models", "pool", "router", "upstream", "upstream_lines"]
