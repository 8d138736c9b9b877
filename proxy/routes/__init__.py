"""Admits a request and finds what answers its path."""

__all__ = ["admission", "results_api", "routes"]
