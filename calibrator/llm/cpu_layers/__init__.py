"""Layers that are replaced so that scoring costs less: for a CPU, and in float8."""

__all__ = ["float8", "kernels", "last_layer", "positions", "replace"]
