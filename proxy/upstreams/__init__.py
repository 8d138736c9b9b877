"""Upstreams: how requests are routed to them, and how their differences are hidden."""

__all__ = ["loops", "model_lists", "router", "upstream_lines"]
