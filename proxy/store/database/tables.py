"""What all tables of the store share: the metadata, the modules that define them, and the location.

Columns are defined in the modules of `TABLES_IN`, those of the record in `record/writer.py`.
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
    """Return the file of a SQLite database, or None for a URL of another database."""
    return Path(url.removeprefix(_SQLITE)).expanduser() if url.startswith(_SQLITE) else None


def place_of(url: str) -> str:
    """Return where a database is, for messages: the SQLite file, or the URL without its user.

    Raises StoreError for a URL that cannot be read.
    """
    if path := path_of(url):
        return str(path)
    address = parsed_address(url)
    return f"postgresql://{address.host or ''}/{address.database or ''}"


def parsed_address(url: str) -> sa.URL:
    """Return the URL as SQLAlchemy parses it, with psycopg as its driver; raises StoreError.

    `postgres://` means the same as `postgresql://`.
    """
    try:
        return sa.make_url(url).set(drivername="postgresql+psycopg")
    except (SQLAlchemyError, ValueError) as error:  # whose text may contain the password
        raise StoreError(
            "the store's URL cannot be read; it is postgresql://USER:PASSWORD@HOST/DATABASE, "
            "with other characters than letters and digits written as %XX in USER and PASSWORD"
        ) from error


TABLES_IN: Final = (
    "proxy.store.database.chain",
    "proxy.store.database.client_keys",
    "proxy.store.verdicts.drift",
    "proxy.store.verdicts.feedback",
    "proxy.store.database.verdicts",
    "proxy.store.reviews.held_replies",
    "proxy.store.reviews.outbox",
    "proxy.store.reviews.standing",
    "proxy.store.database.owned_ids",
    "proxy.store.reviews.polls",
    "proxy.store.record.writer",
    "proxy.store.reviews.events",
    "proxy.store.reviews.used_links",
)


def all_tables() -> sa.MetaData:
    """Import every module that defines tables; return the metadata with all of them."""
    for name in TABLES_IN:
        import_module(name)
    return metadata
