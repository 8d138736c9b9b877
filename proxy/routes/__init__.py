"""Admits a request and finds what answers its path."""

__all__ = ["admission", "azure", "results_api", "routes"]
