"""Labelled rows: the one JSON lines format, and the scores of rows."""

__all__ = [
    "files",
    "groups",
    "kept_scores",
    "results",
    "row_fields",
    "rows",
    "scores",
    "selection",
    "shards",
]
