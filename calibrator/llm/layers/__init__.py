"""Replace layers so that scoring costs less, and record passes that a GPU replays."""

__all__ = ["graphs", "last_layer", "replace"]
