"""Files of rows scored on a Ray cluster."""

__all__ = ["ray_scoring"]
