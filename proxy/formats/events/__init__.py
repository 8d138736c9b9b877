"""What all formats do with a stream's events: read many at once, join deltas, find ambiguity."""

__all__ = ["called", "known_types", "merging", "readings"]
