"""The scoring server: one calibrator for several proxies."""

__all__ = ["app"]
