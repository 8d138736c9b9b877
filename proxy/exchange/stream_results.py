"""The outcomes of live streams, for clients that ask for them afterwards.

In memory and bounded: the oldest go first. Only the key that asked may read.
"""

from __future__ import annotations

import hmac
from collections import OrderedDict
from typing import Any

from proxy.errors import NotFoundError
from proxy.wire.json_splice import compact, json_object


class Results:
    def __init__(self, max_results: int = 10_000) -> None:
        self._max_results = max_results
        self._kept: OrderedDict[str, tuple[str, bytes]] = OrderedDict()

    def keep(self, request_id: str, key_hash: str, member: dict[str, Any]) -> None:
        told = compact(member)  # one object: no work for the collector
        self._kept[request_id] = key_hash, told
        while len(self._kept) > self._max_results:
            self._kept.popitem(last=False)

    def get(self, request_id: str, key_hash: str) -> dict[str, Any]:
        """The `pinocchio` object of one request; raises NotFoundError, for a foreign key too."""
        owner, member = self._kept.get(request_id, ("", b"{}"))
        if not hmac.compare_digest(owner, key_hash):
            raise NotFoundError(
                f"there is no result for request {request_id!r}", code="result_not_found"
            )
        return json_object(member) or {}
