"""What all tables of the store share: metadata, the list of modules that define them, its place.

Columns stand in the modules of `TABLES_IN`; those of the record in `record/writer.py`.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from proxy.errors import StoreError

metadata = sa.MetaData()
_SQLITE = "sqlite:///"


def path_of(url: str) -> Path | None:
    """The file of a SQLite database; None for a database that is none."""
    return Path(url.removeprefix(_SQLITE)).expanduser() if url.startswith(_SQLITE) else None


def place_of(url: str) -> str:
    """Where a database is, as people may be told: without the password. Raises StoreError."""
    if path := path_of(url):
        return str(path)
    address = parsed_address(url)
    return f"postgresql://{address.host or ''}/{address.database or ''}"


def parsed_address(url: str) -> sa.URL:
    """The URL as SQLAlchemy reads it; `postgres://` means the same. Raises StoreError."""
    try:
        return sa.make_url(url).set(drivername="postgresql+psycopg")
    except (SQLAlchemyError, ValueError) as error:  # whose text may have the password
        raise StoreError(
            "the store's URL cannot be read; it is postgresql://USER:PASSWORD@HOST/DATABASE, "
            "with other characters than letters and digits written as %XX in USER and PASSWORD"
        ) from error


TABLES_IN: Final = (
    *(
        "chain.chain",
        "client_keys",
        "verdicts.drift",
        "verdicts.feedback",
        "verdicts.verdicts",
        "reviews.held_replies",
        "reviews.outbox",
        "reviews.standing",
    ),
    *("owned_ids", "reviews.polls", "record.writer", "reviews.events", "reviews.used_links"),
)


def all_tables() -> sa.MetaData:
    """The metadata, once every module that defines tables has put its own there."""
    for name in TABLES_IN:
        import_module(f"proxy.store.{name}")
    return metadata
