"""Upstreams: how requests are routed to them, and how their differences are hidden."""

__all__ = ["loops", "model_lists", "policy_models", "router", "upstream_lines"]
