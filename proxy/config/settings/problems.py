"""Sentences about mistakes in `proxy.yaml`: what is wrong, where, and the name probably meant."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

from policies import Document, InvalidDocumentError, Problem, load_document, nearest
from proxy.config.settings.engines import ENGINES

Location = tuple[str | int, ...]

_KINDS: Final = {  # used because pydantic's own messages name our classes
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
    "dict_type": "must be a mapping",
    "tuple_type": "must be a list",
    "missing": "is missing",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "greater_than": "must be more than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than": "must be less than {lt:g}",
    "less_than_equal": "must be at most {le:g}",
    "literal_error": "must be {expected}",
}
_SECRET_NAMES: Final = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH", re.IGNORECASE)
_SHORTEST_SECRET: Final = 4  # characters; a shorter text occurs in too many words
_SWITCHES: Final = {("admin",), ("calibrator", "images", "fetch")}  # a section, true or false


def hint(name: str, known: Collection[str]) -> str:
    """Return the end of a sentence about an unknown name: the nearest known name, or all.

    It is `; did you mean 'NAME'?`, or `; known here: A, B` where no name is near.
    """
    suggestion = nearest(name, known)
    return f"; did you mean {suggestion!r}?" if suggestion else f"; known here: {', '.join(known)}"


def problem_of(document: Document, error: Any, known: Collection[str]) -> Problem:
    """Return a finding of pydantic, one of `ValidationError.errors()`, as a problem with its line.

    `known` are the keys that are valid where the finding is; an unknown key's problem names them.
    """
    loc = tuple(error["loc"])
    if loc[:2] == ("calibrator", "engine"):
        loc = loc[:2] + loc[3:]  # without the kind, which is no key of the file
    if error["type"] == "extra_forbidden":
        message = f"unknown key {loc[-1]!r}{hint(str(loc[-1]), known)}"
        return sentence(document, loc[:-1], message, at=loc)
    if error["type"] == "union_tag_not_found":
        return sentence(document, loc, f"say which kind: {', '.join(ENGINES)}")
    if error["type"] == "union_tag_invalid":
        tag = error["ctx"]["tag"]
        message = f"there is no engine {tag!r}{hint(tag, ENGINES)}"
        return sentence(document, (*loc, "kind"), message)
    if error["type"] in _KINDS:
        switch = ", true or false" if loc in _SWITCHES else ""
        text = _KINDS[error["type"]].format(**error.get("ctx", {}))
        return sentence(document, loc, text + switch)
    return sentence(document, loc, error["msg"].removeprefix("Value error, "))


def sentence(document: Document, loc: Location, message: str, at: Location = ()) -> Problem:
    """Return a problem that begins with its key's path, such as `upstreams.openai.base_url: `.

    `loc` is the path as keys and indexes. The line is that of the key `at`, or of `loc` where `at`
    is empty. Values of secret variables are replaced by `${NAME}`.
    """
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    text = f"{path.lstrip('.')}: {message}" if path else message
    return Problem(document.source, document.line(at or loc), _without_secrets(document, text))


def _without_secrets(document: Document, text: str) -> str:
    """Replace the values of secret variables in a sentence by `${NAME}`, except short values.

    Sentences quote misplaced values and go to terminals and logs.
    """
    for name, value in document.substituted.items():
        if _SECRET_NAMES.search(name) and len(value) >= _SHORTEST_SECRET:
            text = text.replace(value, f"${{{name}}}")
    return text


def add_location(path: Path | None, key: Location, message: str) -> str:
    """Return a message with the file, line and path of its key, such as `("admin", "port")`.

    Return it unchanged without a path or key, for a file that does not have the key or can no
    longer be parsed. The file is read again, so that only mistakes cost that time.
    """
    if path is None or not key:
        return message
    try:
        document = load_document(path, env=os.environ)
    except InvalidDocumentError:  # it has changed meanwhile
        return message
    return str(sentence(document, key, message)) if document.has(key) else message
