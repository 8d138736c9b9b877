"""Commands on labelled rows themselves: what they are made of, whether labels hold, a choice."""

__all__ = ["labels", "selecting", "survey"]
