"""Notifications of changes in the store, by PostgreSQL's LISTEN and NOTIFY.

    notify(connection, DECIDED, id)      # in the transaction of the change itself

The proxy on every machine receives a verdict, or a key that was made or revoked, within
milliseconds. A notification can be lost with its connection, but nothing depends on it: whoever
waits also polls the store, less often while notifications arrive. SQLite has none: its proxies run
on one machine and poll four times a second.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

import sqlalchemy as sa
import structlog

from proxy.store.database.database import CONNECT_TIMEOUT_S, cause
from proxy.store.database.tables import parsed_address, path_of

log = structlog.get_logger(__name__)

DECIDED, KEYS = "decided", "keys"
CHANNEL: Final = "pinocchio"
LOOK_EVERY_S: Final = 0.5  # seconds between checks whether to end
FIRST_AFTER_S: Final = 1.0  # seconds, so that the first requests are not delayed
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 10.0  # seconds between attempts to connect
ALIVE: Final = {  # options for a connection that may be silent for a long time
    "connect_timeout": str(CONNECT_TIMEOUT_S),
    "keepalives_idle": "20",
    "keepalives_interval": "5",
    "keepalives_count": "3",
}


def notify(connection: sa.Connection, kind: str, id: str) -> None:
    """Notify all proxies, once the transaction is committed, of a change: `DECIDED` or `KEYS`.

    `id` names the held reply or the key. Does nothing on SQLite.
    """
    if connection.dialect.name == "postgresql":
        call = sa.func.pg_notify(CHANNEL, f"{kind} {id}")
        connection.execute(sa.select(call))


class Notifications:
    """A thread that receives the store's notifications from other proxies and commands.

    `on_notification` is called with the kind and the id. `on_change` is called with True when the
    connection is made and with False when it is lost. Both are called on this thread.
    """

    def __init__(
        self,
        url: str,
        on_notification: Callable[[str, str], None],
        on_change: Callable[[bool], None],
    ) -> None:
        self._url = url
        self._on_notification = on_notification
        self._on_change = on_change
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="notifications", daemon=True)

    def start(self) -> None:
        """Start the thread; does nothing on SQLite, which has no notifications."""
        if path_of(self._url) is None:
            self._thread.start()

    def close(self) -> None:
        """Stop listening and wait up to `CONNECT_TIMEOUT_S` seconds for the thread to end."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(CONNECT_TIMEOUT_S)

    def _run(self) -> None:
        """Connect and listen until `close`, and connect again when the connection is lost.

        The pauses between attempts grow. Calls `on_change` and logs each time that the connection
        is lost or comes back.
        """
        import psycopg

        url = parsed_address(self._url).set(drivername="postgresql").update_query_dict(ALIVE)
        address = url.render_as_string(hide_password=False)
        pause_s, is_first = FIRST_PAUSE_S, True
        self._closing.wait(FIRST_AFTER_S)
        while not self._closing.is_set():
            try:
                with psycopg.connect(address, autocommit=True) as connection:
                    connection.execute(f"LISTEN {CHANNEL}")
                    pause_s = FIRST_PAUSE_S
                    if not is_first:
                        log.info("store_notifications_heard")
                    self._on_change(True)
                    self._listen(connection)
            except psycopg.Error as error:
                self._on_change(False)
                log.warning("store_notifications_lost", reason=cause(error), hint="polls go on")
                is_first = False
            self._closing.wait(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _listen(self, connection: Any) -> None:
        """Call `on_notification` with the kind and id of each notification until `close` is called.

        Raises psycopg.Error where the connection is lost.
        """
        while not self._closing.is_set():
            for notification in connection.notifies(timeout=LOOK_EVERY_S):
                kind, _, id = notification.payload.partition(" ")
                self._on_notification(kind, id)
