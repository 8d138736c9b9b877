"""The outcomes of live streams, for clients that ask for them afterwards.

They are in memory, up to a limit; the oldest go first. Only the key that made a request can read
its outcome. Of several workers the one that served the request has it, and the others ask it.
"""

from __future__ import annotations

import hmac
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from proxy.errors import NotFoundError
from proxy.http.wire.json_splice import compact, json_object
from proxy.http.workers.peers import Peers

Member = Callable[[], dict[str, Any]]
"""A function that makes the `pinocchio` object of a request."""


class Results:
    """The outcomes of the last `max_results` streams, by request id."""

    def __init__(self, max_results: int = 10_000, peers: Peers | None = None) -> None:
        self._max_results = max_results
        self._peers = peers
        self._kept: OrderedDict[str, tuple[str, bytes | Member]] = OrderedDict()

    def expect(self, request_id: str, key_hash: str, member: Member) -> None:
        """Keep a function that makes the result of a running stream; few clients ask so early."""
        self._keep(request_id, key_hash, member)

    def keep(self, request_id: str, key_hash: str, member: dict[str, Any]) -> None:
        """Keep the `pinocchio` object of a stream that has ended."""
        # bytes give the garbage collector no work
        self._keep(request_id, key_hash, compact(member))

    def _keep(self, request_id: str, key_hash: str, result: bytes | Member) -> None:
        """Keep a result under its request id, and forget the oldest beyond `max_results`."""
        self._kept[request_id] = key_hash, result
        while len(self._kept) > self._max_results:
            self._kept.popitem(last=False)

    async def get(self, request_id: str, key_hash: str) -> dict[str, Any]:
        """Return the `pinocchio` object of a request.

        Other workers are asked for it too. Raises NotFoundError, also for another key's request.
        """
        member = self.find_result(request_id, key_hash)
        if member is None and self._peers is not None:
            member = await self._peers.find("result", (request_id, key_hash))
        if member is None:
            raise NotFoundError(
                f"there is no result for request {request_id!r}", code="result_not_found"
            )
        return json_object(member) or {}

    def find_result(self, request_id: str, key_hash: str) -> bytes | None:
        """Return this process's `pinocchio` object of a request as JSON; safe on any thread.

        None if it keeps none, or if another key made the request.
        """
        owner, member = self._kept.get(request_id, ("", None))
        if member is None or not hmac.compare_digest(owner, key_hash):
            return None
        return member if isinstance(member, bytes) else compact(member())
