"""Fit the stages of a training, each once."""

__all__ = [
    "abilities",
    "forest",
    "npz",
    "opinion_folds",
    "parts_stage",
    "piece_vectors",
    "tower",
    "tower_stage",
]
