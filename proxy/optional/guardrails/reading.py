"""Strict readers of what gateways send: a member of another type is refused by its name."""

from __future__ import annotations

import re
from typing import Any

from proxy.errors import BadRequestError
from proxy.formats import Json
from proxy.http.wire.json_splice import TooManyValuesError, parse_json_object
from proxy.http.wire.large_json import has_many, large_object

NAME = re.compile(r"[\w .:@/+-]{1,64}")  # names of teams and keys that a record may hold


async def read_object(body: bytes) -> Json:
    """Parse a body that must be a JSON object; raises BadRequestError."""
    if not has_many(body):
        return parse_json_object(body, is_counted=True)
    try:
        found = await large_object(body)
    except TooManyValuesError as error:
        raise BadRequestError(f"the body has {error}", code="too_many_values") from error
    if found is None:
        raise BadRequestError("the body must be a JSON object", code="invalid_json")
    return found


def text_in(payload: Json, name: str) -> str | None:
    """Return a member's text, or None where it is missing or null; raises BadRequestError."""
    value = payload.get(name)
    if value is None or isinstance(value, str):
        return value
    raise BadRequestError(f"{name!r} must be a string", param=name, code="invalid_type")


def object_in(payload: Json, name: str) -> Json | None:
    """Return a member's object, or None where it is missing or null; raises BadRequestError."""
    value = payload.get(name)
    if value is None or isinstance(value, dict):
        return value
    raise BadRequestError(f"{name!r} must be an object", param=name, code="invalid_type")


def objects_in(payload: Json, name: str) -> list[Json]:
    """Return a member's list of objects, empty where it is missing or null.

    Raises BadRequestError.
    """
    return _read_list(payload, name, dict, "objects")


def texts_in(payload: Json, name: str) -> list[str]:
    """Return a member's list of strings, empty where it is missing or null.

    Raises BadRequestError.
    """
    return _read_list(payload, name, str, "strings")


def name_in(payload: Json, name: str) -> str | None:
    """Return a member that is a name of plain characters, as rules accept, else None."""
    value = payload.get(name)
    return value if isinstance(value, str) and NAME.fullmatch(value) else None


def _read_list(payload: Json, name: str, kind: type, what: str) -> list[Any]:
    """Return a member's list, empty where it is missing or null.

    Raises BadRequestError where an item is not of `kind`; `what` names the items in its sentence.
    """
    values = payload.get(name)
    if values is None:
        return []
    if isinstance(values, list) and all(isinstance(each, kind) for each in values):
        return values
    raise BadRequestError(f"{name!r} must be a list of {what}", param=name, code="invalid_type")
