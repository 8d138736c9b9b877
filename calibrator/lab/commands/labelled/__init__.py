"""The commands on labelled rows: their composition, the quality of labels, and selection."""

__all__ = ["labels", "selecting", "survey"]
