"""Labelled rows: the one JSON lines format, and the scores of rows."""

__all__ = [
    "files",
    "groups",
    "kept_scores",
    "results",
    "rows",
    "scores",
    "selection",
    "shards",
]
