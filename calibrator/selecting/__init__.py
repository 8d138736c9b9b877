"""Scored rows chosen for training: the surest ones, or pairs of a sure and an unsure reply."""

__all__ = ["filtering", "pairs", "scored_lines"]
