"""The ids of upstream's objects that a request names, in its path, its query and its body.

Upstream distinguishes their owners by the key of a request, which may be one for all clients of the
proxy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl

from proxy.errors import BadRequestError
from proxy.http.wire.json_splice import TooManyValuesError
from proxy.http.wire.large_json import has_many, loads_large
from proxy.http.wire.worker_threads import apart

COLLECTIONS: Final = (
    *(("chat", "completions"), ("responses",), ("conversations",), ("messages", "batches")),
    *(("files",), ("uploads",), ("batches",), ("vector_stores",), ("containers",), ("skills",)),
    *(("assistants",), ("threads",), ("evals",), ("videos",), ("organization",)),
    *(("fine_tuning", "jobs"), ("fine_tuning", "checkpoints")),
)
"""Places under `/v1/` whose next path segment is an id."""
NO_IDS: Final = frozenset({"compact", "input_tokens", "runs"})  # names of operations
MOST_IDS: Final = 1_000  # ids in one request

_MEMBERS: Final = frozenset(
    {
        *("previous_response_id", "response_id", "conversation", "conversation_id"),
        *("file_id", "file_ids", "input_file_id", "output_file_id", "error_file_id"),
        *("training_file", "validation_file", "vector_store_id", "vector_store_ids"),
        *("container", "container_id", "assistant_id", "thread_id", "batch_id", "skill_id"),
        *("upload_id", "part_ids", "video_id", "eval_id", "audio"),
    }
)
_FOLDED: Final = frozenset(name.replace("_", "") for name in _MEMBERS)
_MAY_NAME: Final = re.compile(
    rb'ids?"|conversation"|container"|file"|"input"|"items"|"audio"|\\u', re.IGNORECASE
)
_OF_REFERENCE: Final = {"type", "id", "status"}  # an item with other members has its own content
_REFERENCES: Final = "item_reference"


@dataclass(frozen=True, slots=True)
class RequestTarget:
    """The target of a request: a collection, an id in it, and the rest of the path.

    `collection` is None for any other place.
    """

    collection: tuple[str, ...] | None
    id: str | None = None
    rest: tuple[str, ...] = ()


def place_in(names: Sequence[str]) -> RequestTarget:
    """Return the target of a path: collection, id and rest, from the segments of `names_in`.

    For example `/v1/files/file-1/content` is (`files`, `file-1`, (`content`,)); an unknown path has
    the collection None.
    """
    folded = tuple(name.casefold() for name in names)
    for collection in COLLECTIONS:
        end = 1 + len(collection)
        if folded[:end] == ("v1", *collection):
            if len(names) == end or folded[end] in NO_IDS:
                return RequestTarget(collection, None, folded[end:])
            return RequestTarget(collection, names[end], folded[end + 1 :])
    return RequestTarget(None)


def ids_in_query(query: str) -> set[str]:
    """Return every value of a query, since some of them are ids."""
    return {value for _, value in parse_qsl(query)}


async def ids_in_body(body: bytes, *, is_json: bool = False) -> set[str]:
    """Return the ids that a JSON body names, in every way that a reader may understand it.

    Raises BadRequestError for a body that is nested too deeply, that has too many ids or values, or
    that claims to be JSON (`is_json`) but is not JSON to every reader. Other bodies name no ids.
    """
    body = _in_utf8(body)
    if is_json and not _is_read(body):
        text = "the body is no JSON that every reader reads, and might name an id"
        raise BadRequestError(text, code="invalid_json")
    if not _MAY_NAME.search(body):
        return set()
    return await apart(_ids_in_large, body) if has_many(body) else _ids_of(body, _loads)


def ids_in_form(body: bytes) -> set[str]:
    """Return the values of a form, since some of them are ids."""
    return {value for _, value in parse_qsl(body.decode("latin-1"))}


def _in_utf8(body: bytes) -> bytes:
    """Convert a JSON body in UTF-16 or UTF-32 to UTF-8; others and invalid ones are returned as is.

    `json.loads`, and servers that use it, read these encodings too.
    """
    encoding = json.detect_encoding(body[:8])
    if encoding.startswith("utf-8"):
        return body
    try:
        return body.decode(encoding, "surrogatepass").encode("utf-8", "surrogatepass")
    except ValueError:
        return body


def _is_read(body: bytes) -> bool:
    """Return whether every JSON reader accepts a body; True for a large one, checked later.

    True also for one that is nested too deeply, which `_ids_of` refuses.
    """
    if has_many(body):
        return True
    try:
        _loads(body)
    except RecursionError:
        return True  # `_ids_of` refuses it
    except ValueError:
        return False
    return True


def _ids_in_large(body: bytes) -> set[str]:
    return _ids_of(body, loads_large)


def _loads(body: bytes, **options: Any) -> Any:
    return json.loads(body.decode("utf-8-sig", "surrogatepass"), **options)


def _ids_of(body: bytes, loads: Callable[..., Any]) -> set[str]:
    """Return the ids that a JSON body names; empty if it is no JSON.

    `loads` parses it. Raises BadRequestError for more than `MOST_IDS` ids, too many values, or a
    body that is nested too deeply.
    """
    try:
        value = loads(body, object_pairs_hook=_Pairs, parse_int=str, parse_float=str)
    except TooManyValuesError as error:
        raise BadRequestError(f"the body has {error}", code="too_many_values") from error
    except RecursionError as error:
        raise BadRequestError("the body is nested too deeply", code="invalid_json") from error
    except ValueError:
        return set()
    found: set[str] = set()
    for id in _ids_in(value):
        found.add(id)
        if len(found) > MOST_IDS:
            message = f"the body names more than {MOST_IDS} ids"
            raise BadRequestError(message, code="too_many_ids")
    return found


class _Pairs(list[tuple[str, Any]]):
    """The members of a JSON object, including repeated ones."""


_EMPTY: Final[tuple[Any, ...]] = (None, "", [])


def _ids_in(value: Any) -> Iterator[str]:
    """Yield the ids in members such as `previous_response_id`, and references in `input`.

    Members are compared without case, `_` and `-`; lists are searched too, except in `metadata`.
    """
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if not isinstance(each, _Pairs):
            waiting += each if isinstance(each, list) else []
            continue
        for name, member in each:
            folded = name.casefold()
            if folded.replace("_", "").replace("-", "") in _FOLDED:  # `previousResponseId` too
                yield from _texts_in(member)
            elif folded in ("input", "items"):
                yield from _references_in(member)
            if folded != "metadata" and isinstance(member, list):
                waiting.append(member)


def _texts_in(member: Any) -> Iterator[str]:
    """Yield the value if it is a text, the texts of a list, or the `id` of an object, if any."""
    if isinstance(member, str):
        yield member
    elif isinstance(member, _Pairs):
        yield from (id for name, id in member if name.casefold() == "id" and isinstance(id, str))
    elif isinstance(member, list):
        yield from (each for each in member if isinstance(each, str))


def _references_in(items: Any) -> Iterator[str]:
    """Yield the ids of input items that refer to what upstream stores, also in nested lists.

    An item is a reference if its type is `item_reference` or it has nothing but an id.
    """
    waiting = [items]
    while waiting:
        item = waiting.pop()
        if not isinstance(item, _Pairs):
            waiting += item if isinstance(item, list) else []
            continue
        filled = {name.casefold(): each for name, each in item if each not in _EMPTY}
        is_named = any(each == _REFERENCES for name, each in item if name.casefold() == "type")
        if is_named or filled.keys() <= _OF_REFERENCE:
            yield from _texts_in(item)
