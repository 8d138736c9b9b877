"""The functions that make the report's tables, by subject."""

__all__ = [
    "comparisons",
    "elicited",
    "groups",
    "reading",
    "recalibration",
    "retrained",
    "scored",
    "tables",
    "uses",
]
