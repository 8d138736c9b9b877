"""The commands for those who run a proxy, review its replies or learn from them, one file each."""

__all__ = ["app"]
