"""Changes of one member of a JSON object that leave all other bytes unchanged.

Parsing and dumping would change number lexemes, escapes, white space and duplicate keys, which a
transparent proxy may not do. Only the top level is changed, or one object directly below it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

import jiter
import orjson

from proxy.errors import BadRequestError

Pieces = tuple[bytes | memoryview, ...]  # one text in consecutive parts
COPIED_AT_ONCE = 2**14  # bytes; larger texts are not copied
MOST_VALUES = 250_000  # values of a text that is parsed at once, in about 100 ms
BYTES_A_QUOTE = 4_096  # bytes of a text per quote that is examined
LONGEST_ESCAPE = 64  # backslashes in a row
_BACKSLASH = ord("\\")
_NO_SEPARATORS = bytes(set(range(256)) - set(b",[{"))
_WHITESPACE = " \t\r\n"
_WHITESPACE_BYTES = _WHITESPACE.encode()
_OPENING = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*\{")  # a byte order mark may come first
_CLOSINGS = (b'"}', b"}}", b"]}", b"l}", b"e}", *(b"%d}" % digit for digit in range(10)))
_BLANKS = re.compile(f"[{_WHITESPACE}]*+")
DECODER: Final = json.JSONDecoder()
CLOSING: Final = {"{": "}", "[": "]"}


class TooManyValuesError(ValueError):
    """A JSON text has more values than are parsed."""

    def __init__(self, most: int) -> None:
        super().__init__(f"more than {most:,} JSON values")


def loads(data: bytes, *, is_counted: bool = False) -> Any:
    """Parse JSON as the standard library does, including NaN and long integers.

    This parser is five times as fast for a megabyte of text. Raises ValueError where the text is
    not JSON, is nested more than 200 levels deep or has half a surrogate pair. Raises
    TooManyValuesError, before it parses, where parsing might block the event loop for too long;
    `is_counted` says that the values are known to be few.
    """
    if not is_counted and may_have_more_values(data, MOST_VALUES):
        raise TooManyValuesError(MOST_VALUES)
    return jiter.from_json(data, cache_mode="keys")


def may_have_more_values(data: bytes, most: int) -> bool:
    """Return whether a JSON text may have more than `most` values; False is certain.

    If most of the text is in a few long strings, the rest is too short for many values. A megabyte
    takes 0.05 ms that way, and 0.5 ms if its separators have to be counted.
    """
    return len(data) > most and _outside_strings(data) > most and separators(data) > most


def _outside_strings(data: bytes) -> int:
    """Return an upper bound of the bytes of a JSON text that are in no string.

    Only the first quotes are examined; everything after them counts as outside.
    """
    outside, at, is_string = 0, 0, False
    for _ in range(len(data) // BYTES_A_QUOTE):
        quote = data.find(b'"', at)
        if quote < 0:
            break
        if not is_string:
            outside += quote - at
            is_string = True
        elif data[quote - 1] != _BACKSLASH:
            is_string = False
        else:
            end = data[max(at, quote - LONGEST_ESCAPE) : quote]
            backslashes = len(end) - len(end.rstrip(b"\\"))
            if backslashes == LONGEST_ESCAPE:  # counting on could take too long
                return len(data)
            is_string = backslashes % 2 == 1
        at = quote + 1
    return outside + len(data) - at


def separators(data: bytes) -> int:
    """Return the number of commas and opening brackets; a text has at most one value more."""
    return len(data.translate(None, _NO_SEPARATORS))


def dumps(value: Any) -> bytes:
    """Serialize a value as compact JSON in UTF-8, also long integers and half surrogates."""
    try:
        return orjson.dumps(value)
    except TypeError:  # an integer over 64 bits, or half a surrogate pair, which has no UTF-8
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return text.encode(errors="backslashreplace")  # JSON has the same escape


def compact(value: Any) -> bytes:
    """Return JSON like `dumps`, for values that are kept.

    A result of orjson takes 4 KB of memory however short it is; this copies it.
    """
    return memoryview(dumps(value)).tobytes()


def canonical(value: Any) -> bytes:
    """Return JSON that is the same for objects that differ only in the order of their members."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # as in `dumps`
        return json.dumps(value, sort_keys=True).encode()


def json_object(data: bytes | str, *, is_counted: bool = False) -> dict[str, Any] | None:
    """Return the JSON object in `data`, or None if it is anything else, such as UTF-16.

    Also returns None for a text with too many values.
    """
    try:
        value = loads(data if isinstance(data, bytes) else data.encode(), is_counted=is_counted)
    except TooManyValuesError:
        return None
    except ValueError:
        value = _lenient(data)
    return value if isinstance(value, dict) else None


def object_without_repeats(data: bytes) -> dict[str, Any] | None:
    """Return the JSON object in `data` if no member is repeated, else None.

    Also returns None for a text with many values, and for one that only other parsers accept.
    """
    if may_have_more_values(data, MOST_VALUES):
        return None
    try:
        value = jiter.from_json(data, cache_mode="keys", catch_duplicate_keys=True)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


class RepeatedMemberError(ValueError):
    """A member is repeated in an object of a JSON text."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the member {name[:80]!r} twice in one object")


def check_repeated(data: bytes, decisive: Collection[str]) -> None:
    """Check that no object repeats a member that is `decisive` or has an object or a list as value.

    Some readers take the first occurrence, others the last. Raises RepeatedMemberError where one is
    found; a text that is not JSON passes.
    """
    try:
        jiter.from_json(data, cache_mode="keys", catch_duplicate_keys=True)
    except ValueError:  # a member is repeated, or only the standard library reads the text
        with suppress(json.JSONDecodeError, UnicodeDecodeError, RecursionError):
            hook = partial(each_once, decisive)
            json.loads(data.decode("utf-8-sig"), object_pairs_hook=hook, parse_int=str)


def each_once(decisive: Collection[str], members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of its members; raises RepeatedMemberError as `check_repeated` does."""
    found = dict(members)
    if len(found) < len(members):
        for name, values in _values_by_name(members).items():
            holds_others = any(isinstance(each, dict | list) for each in values)
            if len(values) > 1 and (name in decisive or holds_others):
                raise RepeatedMemberError(name)
    return found


def _values_by_name(members: list[tuple[str, Any]]) -> dict[str, list[Any]]:
    """Return the values of each member name, in the order of the members."""
    values: dict[str, list[Any]] = {}
    for name, value in members:
        values.setdefault(name, []).append(value)
    return values


def beginning_of(data: bytes) -> dict[str, Any] | None:
    """Return the JSON object at the beginning of a large body, read from its first 16 KiB only.

    Members that begin later are missing. Returns None if the body does not begin with an object.
    """
    try:
        value = jiter.from_json(data[:COPIED_AT_ONCE], partial_mode=True)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def may_be_object(data: str) -> bool:
    """Return whether another reader might find an object in a text that we cannot read as one.

    Such a text is nested too deeply, has too long a number, or is a list that holds objects or
    lists. A truncated text is no object for any reader.
    """
    if not data.lstrip(_WHITESPACE + "\ufeff").startswith(("{", "[")):
        return False
    try:
        value = loads(data.encode())
    except ValueError as error:
        return not str(error).startswith("EOF")
    return isinstance(value, list) and any(isinstance(each, dict | list) for each in value)


def _lenient(data: bytes | str) -> Any:
    """Parse JSON that only the standard library accepts; returns None for a text that is not JSON.

    Such texts have a byte order mark, half a surrogate pair or deep nesting.
    """
    try:
        return json.loads(data.decode("utf-8-sig") if isinstance(data, bytes) else data)
    except (ValueError, RecursionError):
        return None


def add_member(body: bytes, name: str, value: Any) -> bytes:
    """Add a member before the last brace of an object; the object itself is not parsed.

    Raises ValueError where the body does not begin and end with a brace.
    """
    return b"".join(with_member(body, name, dumps(value)))


def with_member(body: bytes, name: str, value: bytes) -> Pieces:
    """Add a member whose value is JSON, and return the pieces; a large body is not copied.

    Raises ValueError as `add_member` does.
    """
    if len(body) < COPIED_AT_ONCE and body.startswith(b"{") and body.endswith(_CLOSINGS):
        parts = (body[:-1], b',"', name.encode(), b'":', value, b"}")  # nearly all bodies
        return (b"".join(parts),)
    opening = _OPENING.match(body)
    end = _end_of_text(body, len(body))
    if not opening or not body.endswith(b"}", 0, end):
        raise ValueError("not a JSON object")
    is_empty = _end_of_text(body, end - 1) == opening.end()
    member = b'%b"%b":%b' % (b"" if is_empty else b",", name.encode(), value)
    if len(body) < COPIED_AT_ONCE:
        return (body[: end - 1] + member + body[end - 1 :],)
    return memoryview(body)[: end - 1], member, memoryview(body)[end - 1 :]


def member_bytes(name: str, value: Any, is_first: bool) -> bytes:
    """Return a member as JSON, such as `,"name":1`; without the comma if `is_first`."""
    return b"".join((b'"' if is_first else b',"', name.encode(), b'":', dumps(value)))


def _end_of_text(body: bytes, end: int) -> int:
    """Return where the white space before `end` begins, without a copy of a large body."""
    while end:
        piece = body[max(0, end - COPIED_AT_ONCE) : end]
        if text := piece.rstrip(_WHITESPACE_BYTES):
            return end - len(piece) + len(text)
        end -= len(piece)
    return end


def replace_member(body: bytes, name: str, value: Any) -> bytes:
    """Replace the value of each top-level member `name`, or add one.

    Raises ValueError where the body is not a JSON object or is nested too deeply.
    """
    text = body.decode()
    try:
        spans = _value_spans(text, name)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not spans:
        return add_member(body, name, value)
    new, at = dumps(value).decode(), 0
    parts = []
    for start, end in spans:
        parts += [text[at:start], new]
        at = end
    return "".join([*parts, text[at:]]).encode()


def add_inner_member(body: bytes, outer: str, name: str, value: Any) -> bytes:
    """Add a member at the end of the object that is the value of the top-level member `outer`.

    Raises ValueError where there is no such object.
    """
    text = body.decode()
    try:
        spans = _value_spans(text, outer)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not spans:
        raise ValueError(f"there is no member {outer!r}")
    start, end = spans[-1]  # readers take the last of repeated members
    inner = add_member(text[start:end].encode(), name, value)
    return b"".join((text[:start].encode(), inner, text[end:].encode()))


def _value_spans(text: str, name: str) -> list[tuple[int, int]]:
    """Return the start and end of the value of each top-level member `name`.

    Raises ValueError where the text is not a JSON object.
    """
    start = without_blanks(text, int(text.startswith("\ufeff")))
    if not text.startswith("{", start):
        raise ValueError("not a JSON object")
    spans, closed = [], without_blanks(text, start + 1)
    for item in items_of(text, start):
        closed = item.end
        if item.key == name:
            spans.append((item.value, item.value_end))
    if without_blanks(text, closed + 1) != len(text):
        raise ValueError("something follows the JSON object")
    return spans


class Item(NamedTuple):
    """A member or an element, with the white space around it but without the commas."""

    key: str | int
    start: int
    value: int  # the start of its value
    value_end: int
    end: int


def items_of(text: str, start: int) -> Iterator[Item]:
    """Yield the members or elements of the object or array that begins at `start`.

    Raises ValueError where the text is not JSON.
    """
    is_object, closing = text[start] == "{", CLOSING[text[start]]
    begun = start + 1
    if text.startswith(closing, without_blanks(text, begun)):
        return
    key: str | int = -1
    while True:
        at = without_blanks(text, begun)
        if is_object:
            if not text.startswith('"', at):
                raise ValueError(f"not a JSON object: no name at character {at}")
            key, at = DECODER.raw_decode(text, at)
            at = without_blanks(text, _after(":", text, at))
        else:
            key = int(key) + 1
        _, value_end = DECODER.raw_decode(text, at)
        end = without_blanks(text, value_end)
        yield Item(key, begun, at, value_end, end)
        if text.startswith(closing, end):
            return
        begun = _after(",", text, end)


def _after(sign: str, text: str, at: int) -> int:
    """Return the position after a sign, with white space before it skipped.

    Raises ValueError where the sign is missing.
    """
    at = without_blanks(text, at)
    if not text.startswith(sign, at):
        raise ValueError(f"not JSON: no {sign!r} at character {at}")
    return at + 1


def without_blanks(text: str, at: int) -> int:
    """Return the position of the first character from `at` on that is not white space."""
    match = _BLANKS.match(text, at)
    return match.end() if match else at


def parse_json_object(body: bytes, *, is_counted: bool = False) -> dict[str, Any]:
    """Parse the JSON object of a request's body; `is_counted` as in `loads`.

    Raises BadRequestError, with the place of the error, where the body is anything else.
    """
    try:
        payload = loads(body, is_counted=is_counted)
    except TooManyValuesError as error:
        raise _too_many(error) from error
    except ValueError:
        payload = _parse_leniently(body, json_of)
    return _object(payload)


def _too_many(error: TooManyValuesError) -> BadRequestError:
    """Return the 400 error `too_many_values` for a request's body with too many JSON values."""
    return BadRequestError(f"the body has {error}", code="too_many_values")


def json_of(body: bytes) -> Any:
    """Parse JSON bytes as `json.loads` does, with a byte order mark allowed; raises ValueError."""
    return json.loads(body.decode("utf-8-sig"))


def _object(payload: Any) -> dict[str, Any]:
    """Return a parsed body if it is an object; raises BadRequestError for any other value."""
    if not isinstance(payload, dict):
        kind = type(payload).__name__
        raise BadRequestError(f"the body must be a JSON object, not a {kind}", code="invalid_type")
    return payload


def _parse_leniently(body: bytes, parse: Callable[[bytes], Any]) -> Any:
    """Return `parse(body)`; its errors become BadRequestError with the place of the mistake.

    Only TooManyValuesError is raised unchanged.
    """
    try:
        return parse(body)
    except TooManyValuesError:
        raise
    except UnicodeDecodeError as error:
        raise BadRequestError(
            f"the body is not UTF-8 (byte {error.start})", code="invalid_encoding"
        ) from error
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise BadRequestError(
            f"the body is not JSON: {error.msg} at {place}", code="invalid_json"
        ) from error
    except (RecursionError, ValueError) as error:
        raise BadRequestError(
            "the body is JSON nested too deeply or with too long a number", code="invalid_json"
        ) from error
