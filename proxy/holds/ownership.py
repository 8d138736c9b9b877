"""Ownership of upstream's ids: each belongs to the key whose request made it.

It is checked where client keys are required, since upstream then gets one key for all clients. It
is also checked where a policy is enforced: what the policy withheld is in upstream's own store, and
must not be read there. With keys, an id of unknown origin is refused unless the configuration
shares it (`shared_ids`). Without keys upstream decides, except about stored completions.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from typing import Any, Final

from proxy.config.sections import Config
from proxy.errors import BadRequestError, NotFoundError, UpstreamBrokenError
from proxy.exchange.request import CompletionRequest
from proxy.formats import CHAT, RESPONSES
from proxy.gate.key_hash import hash_key
from proxy.holds.held import held_format
from proxy.holds.named_ids import RequestTarget, ids_in_body, ids_in_form, ids_in_query, place_in
from proxy.http.wire.encoding import can_decode, decode_body
from proxy.http.wire.http import Request
from proxy.http.wire.json_splice import json_object
from proxy.http.wire.spelling import is_listed, names_in, shows_answers
from proxy.http.wire.sse import data_of
from proxy.store.database.owned_ids import WITHHELD, OwnedIds, Owner
from proxy.store.reviews.held_replies import RELEASED, Store

_UNDECIDED_READS: Final = ((("conversations",), "items"), (("responses",), "input_items"))
_BATCHES: Final = (("batches",), ("messages", "batches"))
_IN_PLACE_OF_PATH: Final = (b"x-original-url", b"x-rewrite-url")
_READS: Final = ("GET", "HEAD", "OPTIONS")
_MADE_WITH: Final = ("id", "output_file_id", "error_file_id", "thread_id")
_END_OF_EVENT: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LONGEST_EVENT: Final = 2**20
_FORM: Final = "application/x-www-form-urlencoded"
NOWHERE: Final = RequestTarget(None)


def is_stored(request: CompletionRequest) -> bool:
    """Return whether upstream keeps the answer, as far as the request says.

    A response of `/v1/responses` is kept unless `store` is false, a chat completion only if `store`
    is set and not false. False for other formats.
    """
    stores = request.payload.get("store")
    if request.format is RESPONSES:
        return stores is not False
    return request.format is CHAT and stores is not None and stores is not False


@dataclass(frozen=True, slots=True)
class Ownership:
    """The checks for callers under one policy; `ids` and `store` belong to the whole proxy."""

    ids: OwnedIds
    store: Store
    needs_keys: bool = False
    is_enforced: bool = False
    shared: tuple[re.Pattern[str], ...] = field(default=())
    is_active: bool = field(init=False)  # computed once, since every request reads it

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_active", self.needs_keys or self.is_enforced)

    # --- requests ---------------------------------------------------------------------------------

    async def enter(self, request: Request) -> RequestTarget:
        """Check a request that is not scored, and return the target of its path.

        Returns `NOWHERE` if ids are not checked. Raises NotFoundError for an id that is not this
        key's, BadRequestError for a read that could show what a policy withheld, and StoreError.
        """
        if not self.is_active:
            return NOWHERE
        names = names_in(request.path)
        target = place_in(names)
        if self.is_enforced:
            _refuse_undecided(request.method, target)
            _refuse_answers(request, names)
        is_lasting = names[:2] == ("v1", "models") and request.method not in _READS
        required = {target.id} if target.id is not None else set()
        if is_lasting:  # for example, deleting a fine-tuned model
            required |= {*names[2:]}
        required |= await self._in_body(request)
        others = {*names[1:], *ids_in_query(request.query)} - required
        await self._check(hash_key(request), required, others, is_stored=_has_answers(target))
        return target

    async def check_body(self, request: Request) -> None:
        """Check the ids in a request whose answer is scored, where `is_active`.

        Raises as `enter` does.
        """
        if named := await self._in_body(request):
            await self._check(hash_key(request), named, ())

    async def check_fetch(self, request: Request, id: str, *, is_stored: bool) -> str | None:
        """Return the review id under which the answer with this id is held, or None if it is not.

        Raises NotFoundError where it is not this key's or is withheld for good; with `is_stored`,
        also where the decision on it is unknown.
        """
        if not self.is_active:
            return None
        key_hash = hash_key(request)
        owner = (await self.ids.owners([id])).get(id)
        if owner is not None and owner.key_hash == key_hash and owner.withheld != WITHHELD:
            return owner.withheld
        await self._check(key_hash, {id}, (), is_stored=is_stored)
        return None

    async def _in_body(self, request: Request) -> set[str]:
        """Return the ids that a request's body names, as a form or JSON, decompressed if needed.

        Empty for other bodies. Raises BadRequestError for an unknown or invalid content encoding,
        and for too many ids.
        """
        if not request.body:
            return set()
        encoding = request.header(b"content-encoding")
        kind = (request.header(b"content-type") or "").partition(";")[0].strip().lower()
        if kind == _FORM:
            return ids_in_form(request.body)
        is_json = self.needs_keys and (kind == "application/json" or kind.endswith("+json"))
        if encoding is None:
            return await ids_in_body(request.body, is_json=is_json)
        if not can_decode(encoding):
            message = f"a body with content-encoding {encoding!r} is not read; send it plain"
            raise BadRequestError(message, code="unsupported_encoding")
        try:
            body = await decode_body(request.body, encoding)
        except UpstreamBrokenError as error:
            message = f"the body is no valid {encoding}, or too large"
            raise BadRequestError(message, code="invalid_encoding") from error
        return await ids_in_body(body, is_json=is_json)

    async def _check(
        self,
        key_hash: str,
        required: Collection[str],
        others: Collection[str],
        *,
        is_stored: bool = False,
    ) -> None:
        """Raise NotFoundError for ids that belong to other keys or are withheld.

        `required` ids of unknown origin are refused too, if client keys exist or with `is_stored`.
        Shared ids and our ids of held replies pass.
        """
        own = {id for id in required if held_format(id) is not None}  # their handlers check them
        owners = await self.ids.owners([*required, *others])
        for id in (*required, *others):
            owner = owners.get(id)
            if owner is None:
                is_refused = id in required and id not in own and not self._is_shared(id)
                if is_refused and (self.needs_keys or is_stored):
                    raise _not_found(id)
            elif not await self._may_read(owner, key_hash) and not self._is_shared(id):
                raise _not_found(id)

    async def _may_read(self, owner: Owner, key_hash: str) -> bool:
        """Return whether a key may read an object: it owns it, and no policy withholds it.

        A held one may be read once it is released unchanged. Raises StoreError.
        """
        if owner.key_hash != key_hash or owner.withheld == WITHHELD:
            return False
        if owner.withheld is None or not self.is_active:
            return True
        held = await self.store.get(owner.withheld)
        return held is not None and held.state == RELEASED and held.revised is None

    def _is_shared(self, id: str) -> bool:
        return any(pattern.match(id) for pattern in self.shared)

    # --- replies ----------------------------------------------------------------------------------

    def note_made(self, request: Request, reply: Mapping[str, Any]) -> None:
        """Note the request's key as owner of the objects that upstream made, by their ids.

        `reply` is upstream's JSON reply. Ids that are missing or no text are ignored.
        """
        key_hash = hash_key(request)
        for name in _MADE_WITH:
            self.ids.note(reply.get(name), key_hash)
        for id in _as_list(reply.get("result_files")):
            self.ids.note(id, key_hash)

    def note_answer(
        self,
        request: CompletionRequest,
        http: Request,
        completion: Mapping[str, Any],
        withheld: str | None = None,
    ) -> None:
        """Note the request's key as owner of a stored answer and of the items in it.

        Does nothing where ids are not checked or upstream does not store the answer. `withheld` is
        the id of its held reply, or WITHHELD if nobody may read it; None if it was delivered.
        """
        if not (self.is_active and is_stored(request)):
            return
        key_hash = hash_key(http)
        self.ids.note(completion.get("id"), key_hash, withheld)
        for item in _as_list(completion.get("output")):
            if isinstance(item, dict):
                self.ids.note(item.get("id"), key_hash, withheld)
                self.ids.note(item.get("container_id"), key_hash, withheld)

    def note_owner(
        self, chunks: AsyncIterator[bytes], request: CompletionRequest, http: Request
    ) -> AsyncIterator[bytes]:
        """Return the chunks of a stream, and note the owner of the response in its first event.

        That happens before the event is passed on, because a client may leave a background response
        after it and fetch it later. The chunks are returned as given if ids are not checked, and
        for answers that are not stored or of another format than `/v1/responses`.
        """
        is_noted = self.is_active and request.format is RESPONSES and is_stored(request)
        return self._note_owner(chunks, http) if is_noted else chunks

    async def _note_owner(
        self, chunks: AsyncIterator[bytes], request: Request
    ) -> AsyncIterator[bytes]:
        """Yield the chunks of an event stream, and note the key that owns its response.

        The response's id is in the first event; an event that is too long is not looked at.
        """
        first: bytearray | None = bytearray()
        async for chunk in chunks:
            if first is not None:
                seen = max(0, len(first) - 3)
                first += chunk
                if (ends := _END_OF_EVENT.search(first, seen)) is not None:
                    self._note_opened(bytes(first[: ends.end()]), request)
                    first = None
                elif len(first) > _LONGEST_EVENT:
                    first = None
            yield chunk

    def _note_opened(self, event: bytes, request: Request) -> None:
        """Note the requesting key as owner of the response whose id an event has, if it has one."""
        opening = json_object((data_of(event) or "").encode(errors="replace")) or {}
        response = opening.get("response")
        if isinstance(response, dict):
            self.ids.note(response.get("id"), hash_key(request))

    async def readable(
        self, request: Request, target: RequestTarget, items: list[Any]
    ) -> list[Any]:
        """Return the entries of a list from upstream that the request's key may see, in order.

        Entries without a known owner are kept if there are no client keys and `target` has no
        answers.
        """
        key_hash, kept = hash_key(request), []
        ids = [each.get("id") if isinstance(each, dict) else None for each in items]
        owners = await self.ids.owners([id for id in ids if isinstance(id, str)])
        for id, each in zip(ids, items, strict=True):
            owner = owners.get(id) if isinstance(id, str) else None
            if owner is not None:
                is_readable = await self._may_read(owner, key_hash)
            else:
                is_readable = not (self.needs_keys or _has_answers(target))
            if is_readable or (isinstance(id, str) and self._is_shared(id)):
                kept.append(each)
        return kept


def ownership_of(ids: OwnedIds, store: Store, config: Config, is_enforced: bool) -> Ownership:
    """Return the checks of ids that a configuration requires.

    `is_enforced` says whether a policy is; `ids` and `store` know the owners.
    """
    patterns = tuple(re.compile(translate(glob)) for glob in config.shared_ids)
    return Ownership(ids, store, config.needs_keys, is_enforced, patterns)


def _has_answers(target: RequestTarget) -> bool:
    """Return whether a place holds models' answers, on which a policy decides."""
    return target.collection == ("chat", "completions")


def _refuse_undecided(method: str, target: RequestTarget) -> None:
    """Raise BadRequestError for a request that would show answers past the enforced policy.

    That is a new batch, and a list of a conversation's or response's items.
    """
    if method == "POST" and target.collection in _BATCHES and target.id is None:
        raise BadRequestError(
            "a policy decides on these answers, which it cannot in a batch; ask one by one",
            code="batch_undecided",
        )
    read = target.collection, (target.rest[0] if target.rest else "")
    is_read = method != "DELETE" and not (method == "POST" and read[1] == "items")
    if is_read and read in _UNDECIDED_READS:
        raise BadRequestError(
            "a policy decides on these answers, which it cannot in a list of items; "
            "fetch an answer by its own id",
            code="read_undecided",
        )


def _refuse_answers(request: Request, names: Sequence[str]) -> None:
    """Raise BadRequestError for a path with models' answers that is not scored.

    The path counts, header fields that some servers use instead of it, and whether the body asks
    for an answer in a conversation. DELETE, HEAD and OPTIONS pass.
    """
    if request.method in ("DELETE", "HEAD", "OPTIONS"):
        return
    places = [names, *(("", *names_in(request.header(name) or "")) for name in _IN_PLACE_OF_PATH)]
    is_other = not is_listed(names) or any(map(shows_answers, places))
    if is_other or _has_inputs(request.body, names):
        text = "a policy decides on answers of models, which it cannot at this path; "
        text += _path_hint(names) or "ask at one that is scored"
        raise BadRequestError(text, code="surface_undecided")


def _path_hint(names: Sequence[str]) -> str | None:
    """Return a hint about a path with /v1 twice, which a wrong base_url causes, or None."""
    if list(names[:2]) != ["v1", "v1"]:
        return None
    return f"did you mean /{'/'.join(names[1:])[:100]}? The client's base_url has /v1 twice"


def _has_inputs(body: bytes, names: Sequence[str]) -> bool:
    """Return whether a request to `/v1/conversations` has `inputs`, so asks a model to answer."""
    if names[1:2] == () or names[1].casefold() != "conversations" or not body:
        return False
    return any(name.casefold() == "inputs" for name in json_object(body) or {})


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _not_found(id: str) -> NotFoundError:
    return NotFoundError(f"there is no {id[:80]!r} for this key", code="unknown_id")
