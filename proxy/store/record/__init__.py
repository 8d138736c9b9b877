"""The record of exchanges: written in batches, read by pages and commands."""

__all__ = ["exported", "facts", "reader", "second_opinions", "statistics", "writer"]
