"""The functions that make the report's tables, by what they are about."""

__all__ = [
    "asked",
    "comparisons",
    "failures",
    "groups",
    "reading",
    "recalibration",
    "retrained",
    "uses",
]
