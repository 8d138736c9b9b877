"""Labelled rows: the one JSON lines format, and the scores of rows."""

__all__ = [
    "copies",
    "files",
    "kept_scores",
    "row_fields",
    "rows",
    "run_folder",
    "scores",
    "selection",
    "shards",
]
