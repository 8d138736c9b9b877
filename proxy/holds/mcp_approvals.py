"""Tool calls of remote MCP servers for which an upstream has asked approval (`/v1/responses`).

Upstream asks with an item of the reply (`mcp_approval_request`), on which a policy decides as on
any call. The client answers in its next request, and the reply to that holds the call again
(`mcp_call`), which has been made by then. It is one call and is decided on once. So requests for
approval are remembered by id and key, in memory, up to a limit; the oldest go first.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

from proxy.formats import Json
from proxy.http.wire.json_splice import canonical
from proxy.http.workers.peers import Peers

REQUEST, RESPONSE, CALL = "mcp_approval_request", "mcp_approval_response", "mcp_call"
_SAME = ("name", "server_label", "arguments")  # equal in a call and its request for approval
_Key = tuple[str, str]  # the request's id, and the hash of the key that was asked


class McpApprovals:
    """The last `most` requests for approval that passed through this process."""

    def __init__(self, most: int = 10_000, peers: Peers | None = None) -> None:
        self._most = most
        self._peers = peers
        self._requests: OrderedDict[_Key, bytes] = OrderedDict()

    def note(self, response: Mapping[str, Any], key_hash: str) -> None:
        """Remember the MCP calls for which a response requests approval, under the client's key."""
        for item in _of_type(response.get("output"), REQUEST):
            self._put((item["id"], key_hash), _call_of(item))

    def find_call(self, key: _Key) -> bytes | None:
        """Return the call of a request for approval as JSON, `[name, server_label, arguments]`.

        None if this process does not know the request. Safe on any thread.
        """
        return self._requests.get(key)

    async def look_for(self, payload: Json, key_hash: str) -> None:
        """Copy what other workers know of the approval requests that a client answers.

        Does nothing without other workers, and for requests that this process knows.
        """
        if self._peers is None:
            return
        for answer in _of_type(payload.get("input"), RESPONSE, id="approval_request_id"):
            key = (answer["approval_request_id"], key_hash)
            if key not in self._requests and (call := await self._peers.find("approval", key)):
                self._put(key, call)

    def approved_ids(self, response: Mapping[str, Any], key_hash: str) -> frozenset[str]:
        """Return the ids of MCP calls in a response that this key approved beforehand, unchanged.

        An id that occurs twice does not count, because another call could pass under it.
        """
        calls = _of_type(output := response.get("output"), CALL)
        ids = Counter(str(item.get(key)) for item in _objects(output) for key in ("id", "call_id"))
        return frozenset(
            item["id"]
            for item in calls
            if isinstance(approval_id := item.get("approval_request_id"), str)
            and self._requests.get((approval_id, key_hash)) == _call_of(item)
            and ids[item["id"]] == 1  # otherwise another call could pass under its id
        )

    def _put(self, key: _Key, call: bytes) -> None:
        """Keep a call, as the newest, and forget the oldest ones beyond the limit."""
        self._requests[key] = call
        self._requests.move_to_end(key)
        while len(self._requests) > self._most:
            self._requests.popitem(last=False)


def approving_items(completion: Mapping[str, Any]) -> list[Json]:
    """Return the input items with which a client approves all MCP calls that a response asks for.

    For example `{"type": "mcp_approval_response", "approve": true, ..}`; [] for other formats than
    `/v1/responses`.
    """
    return [
        {"type": RESPONSE, "approve": True, "approval_request_id": item["id"]}
        for item in _of_type(completion.get("output"), REQUEST)
    ]


def _of_type(items: Any, kind: str, id: str = "id") -> Iterator[Json]:
    """Yield the objects of a list with the type `kind` and text in their member `id`.

    `items` may be no list at all. The parameter `id` is the name of that member.
    """
    for item in _objects(items):
        if item.get("type") == kind and isinstance(item.get(id), str):
            yield item


def _objects(items: Any) -> list[Json]:
    return [each for each in items if isinstance(each, dict)] if isinstance(items, list) else []


def _call_of(item: Mapping[str, Any]) -> bytes:
    return canonical([item.get(key) for key in _SAME])
