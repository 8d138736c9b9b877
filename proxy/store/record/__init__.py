"""The record of exchanges: written in batches, read by pages and commands."""

__all__ = ["facts", "reader", "writer"]
