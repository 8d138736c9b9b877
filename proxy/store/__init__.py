"""The database: held replies, the record of exchanges, verdicts and client keys.

Only this package uses SQLAlchemy. `database.py` opens the databases for the other modules.
"""

__all__ = [
    "client_keys",
    "condition",
    "database",
    "notifications",
    "owned_ids",
    "patience",
    "retention",
    "schema",
    "tables",
]
