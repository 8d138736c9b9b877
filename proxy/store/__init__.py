"""What is kept: held replies, the record of exchanges, verdicts, client keys.

The only package that knows SQLAlchemy. `database.py` opens what the others read and write.
"""

__all__ = [
    "client_keys",
    "condition",
    "database",
    "notifications",
    "owned_ids",
    "retention",
    "schema",
    "tables",
]
