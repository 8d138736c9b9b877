"""What the shipped calibrator reads of a text as numbers; tower and forest on them."""

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
    "tree_fitting",
    "trees",
    "weights",
]
