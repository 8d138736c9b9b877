"""The database: its tables, schema, audit chain, and the small stores that others need."""

__all__ = [
    "chain",
    "client_keys",
    "database",
    "notifications",
    "owned_ids",
    "schema",
    "tables",
    "verdicts",
]
