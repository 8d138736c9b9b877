"""Commands on labelled rows themselves: what they are made of, and whether labels hold."""

__all__ = ["labels", "survey"]
