"""What all formats do with the events of a stream: read many at once, join deltas, doubt them."""

__all__ = ["known_types", "markers", "merging", "readings", "uniform_events"]
