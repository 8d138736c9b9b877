"""Read texts as numbers, and score these with tower and forest, for the shipped calibrator."""

__all__ = [
    "abilities",
    "checks",
    "difficulty",
    "forest",
    "ngrams",
    "packing",
    "small_encoder",
    "successors",
    "topics",
    "tower",
    "traits",
    "trees",
    "weights",
]
