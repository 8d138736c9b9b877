"""Layers that are replaced so that scoring costs less, and passes that a GPU plays back."""

__all__ = ["graphs", "last_layer", "positions", "replace", "servable"]
