"""What all formats do with the events of a stream: read many at once, join deltas."""

__all__ = ["markers", "merging", "uniform_events"]
