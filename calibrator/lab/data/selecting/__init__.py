"""Selection of scored rows for training: the surest, or pairs of a sure and an unsure reply."""

__all__ = ["filtering", "pairs", "scored_lines"]
