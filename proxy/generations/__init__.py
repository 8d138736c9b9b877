"""The configuration in force with all that is made from it, and its replacement."""

__all__ = ["generation", "reloading"]
