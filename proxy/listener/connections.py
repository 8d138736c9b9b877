"""All connections of one server: how many there may be, and how long each may take.

Whoever has not shown yet that they may come in is a stranger. Strangers have a share of the room;
where it is full, the one that came first leaves, so that a flood of them drives out itself, and
whoever comes with a key has the time to show it. The rest of the room is for those who did.

A request begins at once where the one before it on its connection went well, or came with a good
key. Others begin a few in each turn of the event loop: whoever sends thousands at a time waits
behind those, and everybody else's next step comes after a few of theirs and not after all.

Bodies that are still on their way, and came without a key, have a bound of bytes, all together:
beyond it, of several, the one that has taken longest is refused. Whoever fills that room with few
bytes a second has one that takes long.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from typing import Protocol
from weakref import WeakKeyDictionary

from uvicorn.server import ServerState

from proxy.wire.outlet import Bursts

SWEEP_S = 1.0  # how much later than promised a connection may be closed
SHARE_OF_STRANGERS = 0.75
BEGUN_IN_A_TURN = 4  # requests of those who are not trusted yet
MOST_BODY_BYTES = 48 * 2**20  # of bodies on their way, unless it is a single one


class Connection(Protocol):
    """What is looked at now and then."""

    def look(self, now: float) -> None:
        """Ends the connection where it is over its time, by the loop's clock."""

    def is_idle(self) -> bool:
        """Whether it could be closed without anybody's missing a reply."""

    def close_now(self) -> None: ...

    def refuse_body(self) -> None:
        """Ends the request whose body is on its way."""


class Connections:
    """Those of one server. `every` has WebSockets too, which are neither looked at nor closed."""

    def __init__(self, every: Collection[object], most: int | None) -> None:
        self.is_draining = False  # then each connection is closed after its next reply
        self.bursts = Bursts()  # of what is written to them
        self._every = every
        self._most = most
        self._most_strangers = None if most is None else max(1, int(most * SHARE_OF_STRANGERS))
        self._strangers: dict[Connection, None] = {}  # the first one came first
        self._known: dict[Connection, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._bodies: dict[Connection, int] = {}  # bytes; the first one has taken longest
        self._body_bytes = 0
        self._queue: deque[Callable[[], object]] = deque()  # what begins requests
        self._begun = 0  # in this turn of the event loop
        self._has_turn = False

    def begin(self, begin: Callable[[], object], loop: asyncio.AbstractEventLoop) -> None:
        """Calls `begin` now, or in its turn."""
        if not self._has_turn:
            self._has_turn = True
            loop.call_soon(self._next_turn, loop)
        if self._begun < BEGUN_IN_A_TURN and not self._queue:
            self._begun += 1
            begin()
        else:
            self._queue.append(begin)

    def _next_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        self._begun = min(BEGUN_IN_A_TURN, len(self._queue))
        self._has_turn = self._begun > 0
        if self._has_turn:
            loop.call_soon(self._next_turn, loop)
        for _ in range(self._begun):
            self._queue.popleft()()

    def note_body(self, connection: Connection, size: int) -> None:
        """So many more bytes of a body have come, which is not whole."""
        self._bodies[connection] = self._bodies.get(connection, 0) + size
        self._body_bytes += size
        if self._body_bytes > MOST_BODY_BYTES and len(self._bodies) > 1:
            longest = next(iter(self._bodies))
            self.end_body(longest)
            longest.refuse_body()

    def end_body(self, connection: Connection) -> None:
        """A body is whole, or nobody waits for its rest."""
        self._body_bytes -= self._bodies.pop(connection, 0)

    def add(self, connection: Connection, loop: asyncio.AbstractEventLoop) -> bool:
        """Lets a connection in, for which another may have to leave; False where none can."""
        self._strangers[connection] = None
        self._go_on(loop)
        if self._most is None or self._most_strangers is None:
            return True
        if len(self._strangers) > self._most_strangers:
            self._drop(self._oldest_stranger())
            return True
        return len(self._every) <= self._most or self._make_room(connection)

    def note_known(self, connection: Connection) -> None:
        """Whoever is at the other end may come in."""
        if connection in self._strangers:
            del self._strangers[connection]
            self._known[connection] = None

    def remove(self, connection: Connection) -> None:
        self._strangers.pop(connection, None)
        self._known.pop(connection, None)
        self.end_body(connection)

    def _make_room(self, newest: Connection) -> bool:
        oldest = self._oldest_stranger()
        if oldest is newest:
            idle = next((each for each in self._known if each.is_idle()), None)
            if idle is None:
                return False
            oldest = idle
        self._drop(oldest)
        return True

    def _oldest_stranger(self) -> Connection:
        """Not one whose request is being answered, as long as there are others."""
        idle = (each for each in self._strangers if each.is_idle())
        return next(idle, next(iter(self._strangers)))

    def _drop(self, connection: Connection) -> None:
        self.remove(connection)
        connection.close_now()

    def _go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is None and (self._strangers or self._known):
            self._timer = loop.call_later(SWEEP_S, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        for connection in [*self._strangers, *self._known]:
            connection.look(now)
        self._go_on(loop)


_of_servers: WeakKeyDictionary[ServerState, Connections] = WeakKeyDictionary()


def connections_of(server: ServerState, most: int | None) -> Connections:
    """All connections of a server, at most `most`; None: as many as come."""
    found = _of_servers.get(server)
    if found is None:
        found = _of_servers[server] = Connections(server.connections, most)
    return found
