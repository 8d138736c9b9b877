"""Starts a proxy: its checks, its sockets, and one or several processes."""

__all__ = ["startup"]
