"""All connections of one server: how many there may be, and how long each may take.

A connection is a stranger's until its client has shown that it may come in. Strangers have a share
of the connections. When it is full, the oldest stranger is closed: a flood of them drives out
itself, and a client with a key has the time to show it. The rest is for known clients.

A request begins at once where the one before it on its connection went well, or had a good key.
Other requests begin a few in each turn of the event loop. A client that sends thousands at a time
waits behind its own, and everybody else's next step comes after a few of them and not after all.

Unfinished bodies of clients without a key have a bound of bytes, all together. Beyond it the oldest
of them is refused, if there are several. A client that fills that room slowly has the oldest one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from typing import Protocol
from weakref import WeakKeyDictionary

from uvicorn.server import ServerState

from proxy.http.wire.outlet import Bursts

SWEEP_S = 1.0  # between two checks: connections may be closed that much too late
SHARE_OF_STRANGERS = 0.75
BEGUN_IN_A_TURN = 4  # requests of clients that are not trusted yet
MOST_BODY_BYTES = 48 * 2**20  # of all unfinished bodies; a single one may have more


class CheckedConnection(Protocol):
    """A connection as its server checks it."""

    def look(self, now: float) -> None:
        """End the connection if its time is up; `now` is the loop's time."""

    def is_idle(self) -> bool:
        """Return whether it can be closed without losing a reply."""

    def close_now(self) -> None: ...

    def refuse_body(self) -> None:
        """End the request whose body is unfinished."""


class Connections:
    """The connections of one server, at most `most`; None: no bound.

    `every` also holds WebSockets, which count but are neither checked nor closed here.
    """

    def __init__(self, every: Collection[object], most: int | None) -> None:
        self.is_draining = False  # if True, each connection is closed after its next reply
        self.bursts = Bursts()  # of writes to the connections
        self._every = every
        self._most = most
        self._most_strangers = None if most is None else max(1, int(most * SHARE_OF_STRANGERS))
        self._strangers: dict[CheckedConnection, None] = {}  # the oldest first
        self._known: dict[CheckedConnection, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._bodies: dict[
            CheckedConnection, int
        ] = {}  # bytes of unfinished bodies, the oldest first
        self._body_bytes = 0
        self._queue: deque[Callable[[], object]] = deque()  # functions that begin requests
        self._begun = 0  # in this turn of the event loop
        self._has_turn = False

    def begin(self, begin: Callable[[], object], loop: asyncio.AbstractEventLoop) -> None:
        """Call `begin` now, or queue it if this turn of the loop has made 4 such calls.

        Queued calls follow in the next turns, the oldest first.
        """
        if not self._has_turn:
            self._has_turn = True
            loop.call_soon(self._next_turn, loop)
        if self._begun < BEGUN_IN_A_TURN and not self._queue:
            self._begun += 1
            begin()
        else:
            self._queue.append(begin)

    def _next_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        """Call up to 4 queued functions, and go on in the next turn as long as there were any."""
        self._begun = min(BEGUN_IN_A_TURN, len(self._queue))
        self._has_turn = self._begun > 0
        if self._has_turn:
            loop.call_soon(self._next_turn, loop)
        for _ in range(self._begun):
            self._queue.popleft()()

    def note_body(self, connection: CheckedConnection, size: int) -> None:
        """Count `size` more bytes of a connection's unfinished body.

        Where all bodies have too many bytes together, the oldest of several is refused.
        """
        self._bodies[connection] = self._bodies.get(connection, 0) + size
        self._body_bytes += size
        if self._body_bytes > MOST_BODY_BYTES and len(self._bodies) > 1:
            longest = next(iter(self._bodies))
            self.end_body(longest)
            longest.refuse_body()

    def end_body(self, connection: CheckedConnection) -> None:
        """Stop counting a connection's body: it is whole, or its rest is not awaited."""
        self._body_bytes -= self._bodies.pop(connection, 0)

    def add(self, connection: CheckedConnection, loop: asyncio.AbstractEventLoop) -> bool:
        """Add a new connection as a stranger's, closing another one if there is no room.

        The oldest stranger is closed if strangers have more than three quarters of all places.
        Returns False, with the connection added, if all places are taken and no other connection
        can be closed.
        """
        self._strangers[connection] = None
        self._go_on(loop)
        if self._most is None or self._most_strangers is None:
            return True
        if len(self._strangers) > self._most_strangers:
            self._drop(self._oldest_stranger())
            return True
        return len(self._every) <= self._most or self._make_room(connection)

    def note_known(self, connection: CheckedConnection) -> None:
        """Move a connection from the strangers to the known clients, if it was there."""
        if connection in self._strangers:
            del self._strangers[connection]
            self._known[connection] = None

    def remove(self, connection: CheckedConnection) -> None:
        """Forget a connection that has ended, and the bytes of its unfinished body."""
        self._strangers.pop(connection, None)
        self._known.pop(connection, None)
        self.end_body(connection)

    def _make_room(self, newest: CheckedConnection) -> bool:
        """Close one connection in favour of `newest`; return False if none can be closed.

        It is the oldest stranger or, if there is no other, an idle connection of a known client.
        """
        oldest = self._oldest_stranger()
        if oldest is newest:
            idle = next((each for each in self._known if each.is_idle()), None)
            if idle is None:
                return False
            oldest = idle
        self._drop(oldest)
        return True

    def _oldest_stranger(self) -> CheckedConnection:
        """Return the oldest idle stranger, or the oldest stranger where none is idle."""
        idle = (each for each in self._strangers if each.is_idle())
        return next(idle, next(iter(self._strangers)))

    def _drop(self, connection: CheckedConnection) -> None:
        """Forget a connection and close it at once."""
        self.remove(connection)
        connection.close_now()

    def _go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the timer of the next check, unless it runs or there are no connections."""
        if self._timer is None and (self._strangers or self._known):
            self._timer = loop.call_later(SWEEP_S, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let each connection check its deadline (`look`), then start the next timer."""
        self._timer = None
        now = loop.time()
        for connection in [*self._strangers, *self._known]:
            connection.look(now)
        self._go_on(loop)


_of_servers: WeakKeyDictionary[ServerState, Connections] = WeakKeyDictionary()


def connections_of(server: ServerState, most: int | None) -> Connections:
    """Return the connections of a server, made once, at most `most`; None: no bound."""
    connections = _of_servers.get(server)
    if connections is None:
        connections = _of_servers[server] = Connections(server.connections, most)
    return connections
