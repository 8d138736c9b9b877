"""Commands of whoever runs a proxy, reviews its replies or learns from them, one file each."""

__all__ = ["app", "serve"]
