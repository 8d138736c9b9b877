"""The conversation that a request belongs to: a digest of how the conversation was opened.

    openings = Openings()
    openings.conversation_of(asked)     # "9f86d081884c7d65", the same for every turn of a chat

The opening is the user's first text, with the end user's id where the client sends one (`user`,
`safety_identifier`, `metadata.user_id`). All turns of a chat, all steps of an agent, retries,
regenerations and repeated questions share an opening. The system message does not count, because
many clients put the time or search results into it.

Some applications open every request alike: with examples, or with an instruction to which the
system message adds the text. Once `SHARED_BY` different requests have the same opening, what
distinguishes them counts too. That depends on what this process has seen, and the first few of such
requests count as one conversation.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from proxy.exchange.request import CompletionRequest
from proxy.http.wire.json_splice import dumps

SHARED_BY: Final = 5
MOST_OPENINGS: Final = 10_000
_BYTES: Final = 8
_MOST_TEXT: Final = 4_096  # bytes at each end of a text; its length stands for the rest
_SHORT: Final = _MOST_TEXT // 2  # characters of a text that needs no cut
_DIGITS: Final = bytes(range(0x30, 0x3A))  # left out, since a system message may hold the time


_END_USERS: Final = frozenset({"safety_identifier", "user", "metadata"})  # members with their id


@dataclass(slots=True)
class _Opening:
    """The requests with an opening that have the fewest turns, distinguished by hashes."""

    digest: str  # hexadecimal
    turns: int
    hashes: tuple[int, ...] = ()  # a tuple, since a set takes four times the memory


def conversation_under(id: str) -> str:
    """Return 16 hexadecimal digits for upstream's id of a conversation or response."""
    return _digest(b"id", _frame_turn(id))


class Openings:
    """The openings that a proxy has seen; beyond `most` the least recent one is forgotten."""

    def __init__(self, most: int = MOST_OPENINGS) -> None:
        self._most = most
        self._known: OrderedDict[int | str, _Opening] = OrderedDict()

    def conversation_of(self, request: CompletionRequest) -> str:
        """Return 16 hexadecimal digits that are the same for all requests of one conversation.

        They are computed from upstream's id of it, or from the end user and the first user turn. An
        opening that many conversations share is told apart by more of the text. Counts the request.
        """
        payload = request.payload
        if "conversation" in payload and (id := _upstreams_id(payload)) is not None:
            return conversation_under(id)
        turns = request.format.user_turns(payload) or [payload.get("messages")]
        user = b"" if _END_USERS.isdisjoint(payload) else _end_user(payload)
        opening = self._note_opening(user, turns)
        if len(opening.hashes) < SHARED_BY:
            if opening.turns == len(turns):
                request_hash = _hash(user, turns, payload)
                if request_hash not in opening.hashes:
                    opening.hashes = (*opening.hashes, request_hash)
            if len(opening.hashes) < SHARED_BY:
                return opening.digest
        if opening.turns == len(turns):
            return _digest(*_whole(user, turns, payload))
        return _digest(user, b"".join(map(_frame_turn, turns[: opening.turns])))

    def _note_opening(self, user: bytes, turns: Sequence[Any]) -> _Opening:
        """Return the entry for a conversation's first user turn, and mark it as the newest.

        `user` is the end user. A new entry is made for an unknown opening; the oldest is forgotten
        beyond the limit.
        """
        first = turns[0]
        is_short = type(first) is str and len(first) <= _SHORT
        key = hash((user, first.strip())) if is_short else _digest(user, _frame_turn(first))
        opening = self._known.get(key)
        if opening is None or len(turns) < opening.turns:
            digest = _digest(user, _frame_turn(first)) if opening is None else opening.digest
            opening = self._known[key] = _Opening(digest, len(turns))
        self._known.move_to_end(key)
        if len(self._known) > self._most:
            self._known.popitem(last=False)
        return opening


def _upstreams_id(payload: dict[str, Any]) -> str | None:
    """Return the id of a conversation that upstream keeps (`/v1/responses`).

    It is `conversation`, or its member `id`; None if that is no text.
    """
    conversation = payload.get("conversation")
    id = conversation.get("id") if isinstance(conversation, dict) else conversation
    return id if isinstance(id, str) else None


def _hash(user: bytes, turns: Sequence[Any], payload: dict[str, Any]) -> int:
    """Return a hash of the same content as `_whole`, faster and for this process only."""
    if len(turns) > 1:
        try:
            return hash((user, *turns))
        except TypeError:  # a turn is a list of parts
            pass
    return hash(_whole(user, turns, payload))


def _whole(user: bytes, turns: Sequence[Any], payload: dict[str, Any]) -> tuple[bytes, bytes]:
    """Return two byte strings for a conversation's hash: end user, and all user turns.

    For a single turn the first one also has the system message, without its digits.
    """
    if len(turns) == 1:
        user += dumps(_instructions(payload)).translate(None, _DIGITS)
    return user, b"".join(map(_frame_turn, turns))


def _digest(user: bytes, content: bytes) -> str:
    return hashlib.blake2b(user + content, digest_size=_BYTES).hexdigest()


def _frame_turn(turn: Any) -> bytes:
    """Return a user's turn as bytes after its length; of a long one only both ends are kept."""
    text = turn.strip().encode("utf-8", "backslashreplace") if type(turn) is str else dumps(turn)
    if len(text) > 2 * _MOST_TEXT:
        return b"\0%d\0%b%b" % (len(text), text[:_MOST_TEXT], text[-_MOST_TEXT:])
    return b"\0%d\0%b" % (len(text), text)


def _instructions(payload: dict[str, Any]) -> Any:
    """Return the instructions of a request as a list.

    The list has `instructions`, `system`, and the content of each system message; the first two are
    None if absent.
    """
    messages = payload.get("messages")
    items = messages if isinstance(messages, list) else []
    contents = [each.get("content") for each in items if _is_by_application(each)]
    return [payload.get("instructions"), payload.get("system"), *contents]


def _is_by_application(message: Any) -> bool:
    return isinstance(message, dict) and message.get("role") in ("system", "developer")


def _end_user(payload: dict[str, Any]) -> bytes:
    """Return the request's `safety_identifier`, `user` or `metadata.user_id` as bytes.

    The first that is a text counts; b"" if none is.
    """
    for name in ("safety_identifier", "user"):
        if isinstance(id := payload.get(name), str):
            return id.encode("utf-8", "backslashreplace")
    metadata = payload.get("metadata")
    id = metadata.get("user_id") if isinstance(metadata, dict) else None
    return id.encode("utf-8", "backslashreplace") if isinstance(id, str) else b""
