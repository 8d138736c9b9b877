"""The form in which a reply is edited, and how it is read back.

Only changes are passed on: the rest of the reply stays byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proxy.desk.console.shown import Field, fields_of
from proxy.errors import UnusableEditError
from proxy.formats.base.edits import Editable, EditableCall


@dataclass(frozen=True, slots=True)
class CallForm:
    """A call to be edited: argument by argument, or as a whole where it has no `fields`."""

    name: str
    arguments: str
    fields: tuple[Field, ...]
    is_json: bool


@dataclass(frozen=True, slots=True)
class EditForm:
    """The editable parts of a reply: the text of each choice, and the calls."""

    texts: tuple[str, ...]
    calls: tuple[CallForm, ...]


def form_of(found: Editable | None, given: Mapping[str, str] | None = None) -> EditForm | None:
    """Return the form of a reply, filled in with what a person wrote before, if anything.

    `given` has the fields of that form: `text.0` for a choice's text, `call.0` for a call's
    arguments, `call.0.1` for one argument. None where nothing can be edited.
    """
    if found is None or not (found.texts or found.calls):
        return None
    written = given or {}
    texts = [written.get(f"text.{at}", each.text) for at, each in enumerate(found.texts)]
    calls = [_call_form(call, at, written) for at, call in enumerate(found.calls)]
    return EditForm(tuple(texts), tuple(calls))


def _call_form(call: EditableCall, at: int, written: Mapping[str, str]) -> CallForm:
    """Return the form of the call with number `at`, with what a person wrote before."""
    is_json = call.kind != "text"
    fields = [
        Field(field.name, field.kind, written.get(f"call.{at}.{number}", field.value))
        for number, field in enumerate(fields_of(call.arguments) if is_json else ())
    ]
    arguments = written.get(f"call.{at}", call.arguments)
    return CallForm(call.name, arguments, tuple(fields), is_json)


def content_of(found: Editable | None, given: Mapping[str, str]) -> dict[str, Any]:
    """Return the content of an edit from a form: `text` and `tool_calls`, each if changed.

    Raises UnusableEditError where nothing was changed or cannot be.
    """
    if found is None:
        raise UnusableEditError("this reply cannot be edited: approve or reject it as it is")
    texts = [_text(each.text, given.get(f"text.{at}")) for at, each in enumerate(found.texts)]
    calls = [_arguments(call, at, given) for at, call in enumerate(found.calls)]
    content: dict[str, Any] = {}
    if texts != [each.text for each in found.texts]:
        content["text"] = texts
    if calls != [call.arguments for call in found.calls]:
        content["tool_calls"] = [
            {"name": call.name, "arguments": arguments}
            for call, arguments in zip(found.calls, calls, strict=True)
        ]
    if not content:
        raise UnusableEditError("nothing was changed; approve the reply instead")
    return content


def _text(before: str, after: str | None) -> str:
    """Return a field's new text, or the old one if it is absent or only its encoding differs.

    Forms send line ends as CRLF, whatever the text had, and lose what no page can hold.
    """
    if after is None:
        return before
    after = after.replace("\r\n", "\n")
    is_same = _as_sent(before) == after
    return before if is_same else after


def _as_sent(value: str) -> str:
    """Convert CRLF and CR to newlines, and replace characters that UTF-8 cannot encode."""
    return value.replace("\r\n", "\n").replace("\r", "\n").encode("utf-8", "replace").decode()


def _arguments(call: EditableCall, at: int, given: Mapping[str, str]) -> str:
    """Return a call's arguments from a form as JSON text; the same text if nothing was edited.

    Raises UnusableEditError where a field has no JSON.
    """
    fields = fields_of(call.arguments) if call.kind != "text" else ()
    if not fields:
        return _text(call.arguments, given.get(f"call.{at}"))
    values, is_changed = {}, False
    for number, field in enumerate(fields):
        written = _text(field.value, given.get(f"call.{at}.{number}"))
        is_changed |= written != field.value
        values[field.name] = written if field.kind == "text" else _value(written, call, field)
    return json.dumps(values, ensure_ascii=False) if is_changed else call.arguments


def _value(written: str, call: EditableCall, field: Field) -> Any:
    """Parse what a person wrote into an argument's field as JSON; raises UnusableEditError."""
    try:
        return json.loads(written)
    except (ValueError, RecursionError) as error:
        raise UnusableEditError(f"{call.name}: {field.name} is no JSON: {error}") from error
