"""Which conversation a request belongs to: a digest of how the conversation was opened.

    openings = Openings()
    openings.conversation_of(asked)     # "9f86d081884c7d65", the same for every turn of a chat

The opening is what the user said first, with the end user's id where the client tells one (`user`,
`safety_identifier`, `metadata.user_id`). All turns of a chat, all steps of an agent, retries,
regenerations and a question that is asked again have the same. What the system message says does
not count: many clients put the time or search results into it.

Some applications open every request alike: with examples, or with an instruction to which the
system message adds the text. Where `SHARED_BY` different requests have the same opening, and it was
not simply asked again, what tells them apart counts too. It depends on what this process has
seen; the first few of such requests count as one conversation.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from proxy.exchange.request import CompletionRequest
from proxy.wire.json_splice import dumps

SHARED_BY: Final = 5
MOST_OPENINGS: Final = 10_000
_BYTES: Final = 8
_MOST_TEXT: Final = 4_096  # bytes at either end of a text; its length tells the rest apart
_SHORT: Final = _MOST_TEXT // 2  # characters, which have both ends in them
_DIGITS: Final = bytes(range(0x30, 0x3A))  # a time in the system message makes no other one


_END_USERS: Final = frozenset({"safety_identifier", "user", "metadata"})  # members that name one


@dataclass(slots=True)
class _Opening:
    """The requests with an opening that have the fewest turns, told apart by hashes."""

    digest: str  # in hex
    turns: int
    hashes: tuple[int, ...] = ()  # a few: a set takes four times the memory


def conversation_under(id: str) -> str:
    """The conversation that upstream knows under an id, or a response that is fetched by one."""
    return _digest(b"id", _framed(id))


class Openings:
    """One for a proxy; of too many openings the one not seen for longest is forgotten."""

    def __init__(self, most: int = MOST_OPENINGS) -> None:
        self._most = most
        self._known: OrderedDict[int | str, _Opening] = OrderedDict()

    def conversation_of(self, asked: CompletionRequest) -> str:
        """The same for all requests of a conversation, and hardly for any other."""
        payload = asked.payload
        if "conversation" in payload and (id := _upstreams_id(payload)) is not None:
            return conversation_under(id)
        turns = asked.format.user_turns(payload) or [payload.get("messages")]
        who = b"" if _END_USERS.isdisjoint(payload) else _end_user(payload)
        known = self._noted(who, turns)
        if len(known.hashes) < SHARED_BY:
            if known.turns == len(turns):
                request = _hash(who, turns, payload)
                if request not in known.hashes:
                    known.hashes = (*known.hashes, request)
            if len(known.hashes) < SHARED_BY:
                return known.digest
        if known.turns == len(turns):
            return _digest(*_whole(who, turns, payload))
        return _digest(who, b"".join(map(_framed, turns[: known.turns])))

    def _noted(self, who: bytes, turns: Sequence[Any]) -> _Opening:
        """What is known of an opening; a short one is found by a hash of this process alone."""
        first = turns[0]
        is_short = type(first) is str and len(first) <= _SHORT
        key = hash((who, first.strip())) if is_short else _digest(who, _framed(first))
        known = self._known.get(key)
        if known is None or len(turns) < known.turns:
            digest = _digest(who, _framed(first)) if known is None else known.digest
            known = self._known[key] = _Opening(digest, len(turns))
        self._known.move_to_end(key)
        if len(self._known) > self._most:
            self._known.popitem(last=False)
        return known


def _upstreams_id(payload: dict[str, Any]) -> str | None:
    """Of a conversation that upstream keeps (`/v1/responses`)."""
    named = payload.get("conversation")
    id = named.get("id") if isinstance(named, dict) else named
    return id if isinstance(id, str) else None


def _hash(who: bytes, turns: Sequence[Any], payload: dict[str, Any]) -> int:
    """Of the same as `_whole`, in this process alone and quicker."""
    if len(turns) > 1:
        try:
            return hash((who, *turns))
        except TypeError:  # parts in place of a text
            pass
    return hash(_whole(who, turns, payload))


def _whole(who: bytes, turns: Sequence[Any], payload: dict[str, Any]) -> tuple[bytes, bytes]:
    """All that the user said; of one turn alone, with the system message but for its digits."""
    if len(turns) == 1:
        who += dumps(_instructions(payload)).translate(None, _DIGITS)
    return who, b"".join(map(_framed, turns))


def _digest(who: bytes, said: bytes) -> str:
    return hashlib.blake2b(who + said, digest_size=_BYTES).hexdigest()


def _framed(turn: Any) -> bytes:
    """A turn behind its length, both ends of it where it is long."""
    text = turn.strip().encode("utf-8", "backslashreplace") if type(turn) is str else dumps(turn)
    if len(text) > 2 * _MOST_TEXT:
        return b"\0%d\0%b%b" % (len(text), text[:_MOST_TEXT], text[-_MOST_TEXT:])
    return b"\0%d\0%b" % (len(text), text)


def _instructions(payload: dict[str, Any]) -> Any:
    """What the application itself says, wherever the format has it."""
    messages = payload.get("messages")
    listed = messages if isinstance(messages, list) else []
    told = [each.get("content") for each in listed if _is_by_application(each)]
    return [payload.get("instructions"), payload.get("system"), *told]


def _is_by_application(message: Any) -> bool:
    return isinstance(message, dict) and message.get("role") in ("system", "developer")


def _end_user(payload: dict[str, Any]) -> bytes:
    """Whom the client says that it asks for."""
    for name in ("safety_identifier", "user"):
        if isinstance(id := payload.get(name), str):
            return id.encode("utf-8", "backslashreplace")
    metadata = payload.get("metadata")
    id = metadata.get("user_id") if isinstance(metadata, dict) else None
    return id.encode("utf-8", "backslashreplace") if isinstance(id, str) else b""
