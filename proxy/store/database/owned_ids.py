"""The owners of upstream's ids: the hash of the key whose request created the object.

Behind one upstream key all clients share all objects, as far as upstream knows. A thread writes
rows in batches. Rows not yet written, and those used last, are in memory. An id stays with the
first key that it was noted for.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple, TypeGuard

import sqlalchemy as sa
import structlog
from sqlalchemy.exc import SQLAlchemyError

from proxy.errors import StoreError
from proxy.http.wire.worker_threads import Worker
from proxy.store.database.database import LazyEngine, cause, insert_into
from proxy.store.database.tables import metadata
from proxy.store.database.verdicts import reading

log = structlog.get_logger(__name__)

owned_ids = sa.Table(
    "owned_ids",
    metadata,
    sa.Column("id", sa.String, primary_key=True),  # upstream's
    sa.Column("key_hash", sa.String, nullable=False),  # as in `exchanges`
    sa.Column("withheld", sa.String),  # of a reply not delivered: its review id, or WITHHELD
    sa.Column("made_at", sa.Float, nullable=False),  # seconds since the epoch
)
WITHHELD: Final = "-"  # never to be delivered
LONGEST: Final = 256  # characters of an id
MOST_KNOWN: Final = 20_000  # ids in memory
AT_ONCE: Final = 500  # ids in one statement
EVERY_S: Final = 0.2


class Owner(NamedTuple):
    """The key hash of an id's owner, and whether its reply was withheld.

    `withheld` is None for a delivered reply, the review id of a held one, or WITHHELD.
    """

    key_hash: str
    withheld: str | None = None


AskOthers = Callable[[list[str]], Awaitable[dict[str, Owner] | None]]


class OwnedIds:
    """The owners of ids, in the store at `url`; `note` never waits."""

    def __init__(self, url: str | None, ask_others: AskOthers | None = None) -> None:
        """Keep owners in the store at `url`, or only in memory where it is None.

        `ask_others` asks the other workers, by their `cached_owners`, for owners not yet written.
        """
        self._ask_others = ask_others
        self._known: OrderedDict[str, Owner] = OrderedDict()
        self._unwritten: dict[str, Owner] = {}
        self._lock = threading.Lock()
        # ids noted within `EVERY_S` share a transaction
        self._worker = Worker("owned-ids", self._write_all, gather_s=EVERY_S)
        self._engine = LazyEngine(url, is_durable=False) if url is not None else None

    def note(self, id: object, key_hash: str, withheld: str | None = None) -> None:
        """Note that a request with the key of this hash created upstream's object `id`.

        `withheld` is None for a delivered reply, else the review id or WITHHELD. An id that belongs
        to another key stays with that key. Values that are no ids are ignored. A thread writes the
        row later.
        """
        if not is_id(id):
            return
        with self._lock:
            before = self._unwritten.get(id) or self._known.get(id)
            owner = Owner(key_hash, withheld)
            if before == owner or (before is not None and before.key_hash != key_hash):
                return
            self._remember(id, owner)
            self._unwritten[id] = owner
            if self._engine is not None:
                self._worker.start()
        self._worker.wake()

    async def owners(self, ids: Iterable[str]) -> dict[str, Owner]:
        """Return the known owners by id: from memory, the store, or other workers.

        Unknown ids are left out. Raises StoreError.
        """
        found, unknown = {}, []
        with self._lock:
            for id in ids:
                if (owner := self._unwritten.get(id) or self._known.get(id)) is not None:
                    found[id] = owner
                elif is_id(id):
                    unknown.append(id)
        if unknown and self._engine is not None:
            found |= await asyncio.to_thread(self._read, unknown)
        while self._ask_others and (missing := [id for id in unknown if id not in found]):
            answers = await self._ask_others(missing)
            if not answers:
                break
            found |= answers
        return found

    def cached_owners(self, ids: Iterable[str]) -> dict[str, Owner] | None:
        """Return the owners of those ids that this process has in memory, or None for none.

        May be called from any thread.
        """
        with self._lock:
            every = ((id, self._unwritten.get(id) or self._known.get(id)) for id in ids)
            return {id: owner for id, owner in every if owner is not None} or None

    def close(self) -> None:
        """Write the ids that are still waiting, and close the engine."""
        self._worker.close()
        if self._engine is not None:
            self._engine.close()

    def _remember(self, id: str, owner: Owner) -> None:
        """Put an owner into memory as the last used; drop the oldest beyond `MOST_KNOWN`."""
        self._known.pop(id, None)
        self._known[id] = owner
        while len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)

    def _open_engine(self) -> sa.Engine:
        """Return the engine of the store, which the first call opens; raises StoreError."""
        assert self._engine is not None
        return self._engine.get()

    def _read(self, ids: list[str]) -> dict[str, Owner]:
        """Return the owners that the store has, by id; raises StoreError. Runs on a worker thread.

        The result is not cached, since another process may change what is withheld.
        """
        columns = owned_ids.c.id, owned_ids.c.key_hash, owned_ids.c.withheld
        found: dict[str, Owner] = {}
        with reading(self._open_engine()) as connection:
            for start in range(0, len(ids), AT_ONCE):
                batch = ids[start : start + AT_ONCE]
                for id, *owner in connection.execute(
                    sa.select(*columns).where(owned_ids.c.id.in_(batch))
                ):
                    found[id] = Owner(*owner)
        return found

    def _write_all(self) -> None:
        """Write all waiting rows in one transaction; log a failure and retry after a second."""
        with self._lock:
            batch = dict(self._unwritten)
        if not batch:
            return
        try:
            self._write(batch)
        except (SQLAlchemyError, StoreError) as error:
            log.error("owned_ids_not_written", reason=cause(error), count=len(batch))
            if not self._worker.pause(1.0):
                self._worker.wake()
            return
        with self._lock:
            for id, owner in batch.items():
                if self._unwritten.get(id) == owner:
                    del self._unwritten[id]

    def _write(self, batch: dict[str, Owner]) -> None:
        """Insert the owners; of ids that exist, update `withheld` if the key is the same.

        Raises SQLAlchemyError or StoreError.
        """
        now = time.time()
        rows = [
            {"id": id, "key_hash": owner.key_hash, "withheld": owner.withheld, "made_at": now}
            for id, owner in sorted(batch.items())  # sorted, or two processes could deadlock
        ]
        with self._open_engine().begin() as connection:
            insert = insert_into(owned_ids, connection)
            is_theirs = owned_ids.c.key_hash == insert.excluded.key_hash
            changed = {"withheld": insert.excluded.withheld}
            connection.execute(
                insert.on_conflict_do_update(index_elements=["id"], set_=changed, where=is_theirs),
                rows,
            )


def is_id(value: object) -> TypeGuard[str]:
    """Return whether a value can be an id: a short printable string that a database can store."""
    return (
        isinstance(value, str)
        and 0 < len(value) <= LONGEST
        and value.isprintable()  # lone surrogates are not printable
    )
