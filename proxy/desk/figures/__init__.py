"""The desk's metrics: gauges of the store and the process, and their pages."""

__all__ = ["exposition", "figures", "gauges"]
