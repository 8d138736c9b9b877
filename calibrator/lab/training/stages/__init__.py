"""Fit the stages of a training, each once."""

__all__ = ["abilities", "forest", "knowledge", "npz", "piece_vectors", "tower", "tree_fitting"]
