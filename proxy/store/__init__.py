"""The database: held replies, the record of exchanges, verdicts and client keys.

Only this package uses SQLAlchemy. `database.py` opens the databases for the other modules.
"""

__all__ = ["condition", "database", "exported", "patience", "queue", "retention", "verification"]
