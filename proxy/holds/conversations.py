"""Earlier requests, for the responses that are fetched or continued later.

`/v1/responses` keeps conversations upstream: a request may name the previous response instead of
repeating its text, and a background response is fetched by its id. To score these, the proxy keeps
what it needs of earlier requests in memory, up to a limit; the oldest go first. Each of several
workers keeps its own requests, and asks the others for the rest. A response that no worker knows
has no confidence, and says so. Only the key that made a request can use it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from proxy.exchange.polls import Polls
from proxy.exchange.request import NO_TAGS, CompletionRequest
from proxy.formats import RESPONSES, Json
from proxy.formats.responses.responses import ELSEWHERE
from proxy.formats.responses.responses_items import as_items, latest, recent
from proxy.holds.mcp_approvals import McpApprovals
from proxy.holds.openings import Openings
from proxy.http.wire.json_splice import compact, json_object, replace_member
from proxy.http.workers.peers import Peers
from proxy.store.database.owned_ids import OwnedIds

_OF_PAYLOAD = ("instructions", "tools", "text", *ELSEWHERE)
_Key = tuple[str, str]  # the response's id, and the hash of the key that made it


@dataclass(frozen=True, slots=True)
class RememberedResponse:
    """A response: its upstream, its request, and its output if that was there."""

    upstream: str
    model: str
    domain: str | None
    tags: frozenset[str]
    payload: bytes  # the members of the request that make up the question
    output: bytes
    conversation: str | None = None

    def request(self, body: bytes = b"", *, is_stream: bool = False) -> CompletionRequest:
        """Return the kept request, with `body` as its bytes, for scoring and policies."""
        payload = json_object(self.payload) or {}
        tags = self.tags or NO_TAGS
        return CompletionRequest(
            *(RESPONSES, body, payload, self.model, is_stream, self.domain, tags),
            conversation=self.conversation,
        )

    @property
    def size(self) -> int:
        """The size in bytes of JSON."""
        return len(self.payload) + len(self.output)


class Conversations:
    """Earlier responses: at most `max_responses`, with `max_bytes` of JSON in all."""

    def __init__(
        self,
        max_responses: int = 10_000,
        max_bytes: int = 32 * 2**20,
        owned: OwnedIds | None = None,
        peers: Peers | None = None,
    ) -> None:
        self._peers = peers
        self._max_responses = max_responses
        self._max_bytes = max_bytes
        self._bytes = 0
        self._kept: OrderedDict[_Key, RememberedResponse] = OrderedDict()
        self._held: OrderedDict[_Key, str] = OrderedDict()
        self._openings = Openings()
        self.polls = Polls()
        self.approvals = McpApprovals(max_responses, peers)
        self.owned = owned or OwnedIds(None)

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, request: CompletionRequest) -> str:
        """Return the digest of a request's conversation, the same for all its requests.

        It has 16 hexadecimal digits.
        """
        return request.conversation or self._openings.conversation_of(request)

    def get(self, id: str, key_hash: str) -> RememberedResponse | None:
        """Return what this process remembers of a response, or None."""
        return self._kept.get((id, key_hash))

    async def look_for(self, id: str, key_hash: str) -> None:
        """Copy what another worker process knows of a response, if this one knows nothing.

        Does nothing without other workers, or if none knows it.
        """
        if self._peers is None or self.recall(id, key_hash) != (None, None):
            return
        answer = await self._peers.find("response", (id, key_hash))
        if answer is None:
            return
        remembered, held_id = answer
        if remembered is not None:
            self._put((id, key_hash), remembered)
        if held_id is not None:
            self.note_held(id, key_hash, held_id)

    def recall(self, id: str, key_hash: str) -> tuple[RememberedResponse | None, str | None]:
        """Return what this process knows of a response: its request and the id of its held reply.

        Each is None if it is unknown.
        """
        return self._kept.get((id, key_hash)), self._held.get((id, key_hash))

    def answer_for(
        self, id: str, key_hash: str
    ) -> tuple[RememberedResponse | None, str | None] | None:
        """Return `recall` for another worker, or None for nothing; safe on any thread."""
        remembered = self.recall(id, key_hash)
        return None if remembered == (None, None) else remembered

    def keep(
        self, request: CompletionRequest, response: Mapping[str, Any], key_hash: str, upstream: str
    ) -> None:
        """Remember a response that upstream stores, with its request, for `previous_response_id`.

        Not if the request says `"store": false`. Its requests for MCP approval are remembered in
        any case.
        """
        self.approvals.note(response, key_hash)
        id = response.get("id")
        if not isinstance(id, str) or request.payload.get("store") is False:
            return
        remembered = RememberedResponse(
            upstream,
            request.model,
            request.domain,
            request.tags,
            compact(_payload(request.payload)),
            compact(latest(_list(response.get("output")))),
            request.conversation,
        )
        self._put((id, key_hash), remembered)

    def _put(self, key: _Key, remembered: RememberedResponse) -> None:
        """Keep a response in place of an older one, and forget the oldest beyond the limits."""
        self._drop(key)
        self._kept[key] = remembered
        self._bytes += remembered.size
        while len(self._kept) > self._max_responses or self._bytes > self._max_bytes:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: _Key) -> None:
        if (dropped := self._kept.pop(key, None)) is not None:
            self._bytes -= dropped.size

    def add_earlier_text(self, request: CompletionRequest, key_hash: str) -> CompletionRequest:
        """Return the request with the conversation that it continues before its own input.

        Unchanged if it has no `previous_response_id`, the response is not known to this key, or its
        input cannot be read.
        """
        id = request.payload.get("previous_response_id")
        before = self.get(id, key_hash) if isinstance(id, str) else None
        if before is None:
            return request
        earlier = json_object(before.payload) or {}
        try:
            own = as_items(request.payload.get("input"))
        except ValueError:
            return request
        fields = {k: v for k, v in request.payload.items() if k != "previous_response_id"}
        earlier_fields = {name: earlier[name] for name in ELSEWHERE if earlier.get(name)}
        items = [*_list(earlier.get("input")), *(_items(before.output)), *own]
        payload = {**fields, **earlier_fields, "input": items}
        return replace(request, payload=payload, conversation=before.conversation)

    def note_held(self, id: Any, key_hash: str, held_id: str) -> None:
        """Remember the id under which a response is held; does nothing if `id` is no text.

        A client may fetch the response by `id`, which is upstream's. The oldest beyond the limit is
        forgotten.
        """
        if isinstance(id, str):
            self._held[id, key_hash] = held_id
            while len(self._held) > self._max_responses:
                self._held.popitem(last=False)

    def held_id(self, id: str, key_hash: str) -> str | None:
        """Return the id of the held reply for a response of this key, or None if none is known.

        `id` is upstream's id of the response.
        """
        return self._held.get((id, key_hash))


def with_previous_response(request: CompletionRequest, id: str) -> CompletionRequest:
    """Return a copy of the request with `id` as its `previous_response_id`.

    A body that cannot be edited, such as a compressed one, leaves the request unchanged.
    """
    try:
        body = replace_member(request.body, "previous_response_id", id)
    except ValueError:
        return request
    return replace(request, body=body, payload={**request.payload, "previous_response_id": id})


def _payload(payload: Json) -> Json:
    """Return the members of a request that are kept in memory, without files.

    Of a long `input` only the last items are kept; an unreadable one is left out. Members that are
    null are left out, too.
    """
    fields = {name: payload[name] for name in _OF_PAYLOAD if payload.get(name) is not None}
    try:
        return {**fields, "input": recent(as_items(payload.get("input")))}
    except ValueError:
        return fields


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _items(output: bytes) -> list[Any]:
    return _list((json_object(b'{"items":%b}' % output) or {}).get("items"))
