"""The functions that make the report's tables, by subject."""

__all__ = [
    "asked",
    "comparisons",
    "groups",
    "reading",
    "recalibration",
    "retrained",
    "scored",
    "tables",
    "uses",
]
