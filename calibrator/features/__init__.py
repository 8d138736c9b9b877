"""Read texts as numbers, and score these with tower and forest, for the shipped calibrator."""

__all__ = [
    "checks",
    "difficulty",
    "forest",
    "ngrams",
    "small_encoder",
    "successors",
    "tower",
    "traits",
    "trees",
    "weights",
]
