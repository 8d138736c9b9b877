"""The HTTP clients that litellm creates itself and shares within the process.

They are changed to follow no redirect, because upstreams come from the configuration alone, to let
upstream's responses be watched, and to be closed with the last user of their event loop. All of
them pass through litellm's `in_memory_llm_clients_cache`, which is intercepted here.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

import httpx

_Loop = asyncio.AbstractEventLoop

_watched: ContextVar[list[httpx.Response]] = ContextVar("watched")


@contextmanager
def collect_responses() -> Iterator[list[httpx.Response]]:
    """Collect upstream's responses to litellm's calls inside, in the list that it yields.

    Their bodies may not have arrived yet.
    """
    responses: list[httpx.Response] = []
    token = _watched.set(responses)
    try:
        yield responses
    finally:
        _watched.reset(token)


async def _watch(response: httpx.Response) -> None:
    """Add a response to those that `collect_responses` collects, if it does."""
    if (responses := _watched.get(None)) is not None:
        responses.append(response)


class SharedClients:
    """All HTTP clients that litellm creates from now on, by their event loop, and their users."""

    def __init__(self, litellm: Any) -> None:
        self._litellm = litellm
        self._store = litellm.in_memory_llm_clients_cache
        self._put = self._store.set_cache
        self._store.set_cache = self._seize
        self._users: WeakKeyDictionary[_Loop, WeakSet[object]] = WeakKeyDictionary()
        self._made: WeakKeyDictionary[_Loop, WeakValueDictionary[str, Any]] = WeakKeyDictionary()

    def join(self, user: object) -> None:
        """Keep the running loop's clients open until this user leaves."""
        loop = asyncio.get_running_loop()
        if loop not in self._users:
            self._forget_namesake()
            self._users[loop] = WeakSet()
        self._users[loop].add(user)

    def _forget_namesake(self) -> None:
        """Drop the clients of a closed loop that had the same id as this one.

        litellm finds clients by the id of their loop.
        """
        ending = self._store.update_cache_key_with_event_loop("")
        for key in [each for each in self._store.cache_dict if str(each).endswith(ending)]:
            self._store.delete_cache(key)

    async def leave(self, user: object) -> None:
        """Forget a user of the running loop's clients, and close these if it was the last one.

        litellm's client of all loops is closed with the last user of all.
        """
        loop = asyncio.get_running_loop()
        users = self._users.setdefault(loop, WeakSet())
        users.discard(user)
        if users:
            return
        for key, client in list(self._made.pop(loop, {}).items()):
            self._store.delete_cache(key)  # or the next user would get a closed one
            await client.close()
        of_all_loops = vars(self._litellm).get("module_level_aclient")
        if of_all_loops is not None and not any(self._users.values()):
            await of_all_loops.close()  # it reopens itself

    def _seize(self, key: str, value: Any, *args: Any, **kwargs: Any) -> None:
        """Change a client that litellm stores, remember it for its loop, and store it.

        It follows no redirects, and its responses are watched. Called in place of the cache's own
        method.
        """
        if (client := _http_client(value)) is not None:
            for owner in (client, value):  # handlers make other clients with their own values
                if hasattr(owner, "event_hooks"):
                    owner.event_hooks = {"request": [], "response": [_watch]}
                    owner.follow_redirects = False
            with suppress(RuntimeError):  # a client made outside of any loop serves all of them
                clients = self._made.setdefault(asyncio.get_running_loop(), WeakValueDictionary())
                clients[self._store.update_cache_key_with_event_loop(key)] = value
        self._put(key, value, *args, **kwargs)


def _http_client(value: Any) -> httpx.AsyncClient | None:
    """Return the client of litellm's handler (`client`) or OpenAI's SDK (`_client`), or None."""
    found = (getattr(value, name, None) for name in ("client", "_client"))
    return next((client for client in found if isinstance(client, httpx.AsyncClient)), None)


@cache
def shared_clients() -> SharedClients:
    """Return the clients of this process; the first call imports litellm and changes its cache."""
    return SharedClients(importlib.import_module("litellm"))
