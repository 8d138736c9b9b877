"""Finds the editable parts of a reply, and applies a reviewer's edit to them.

Texts and the arguments of the client's tools can be edited; ids, usage and all the rest stay byte
for byte. What would contradict a new text is removed with the old one: its log probabilities, its
citations, and an ending that says it was cut. The result is still an answer of its format, its
arguments fit the schemas of the request's tools, and its text fits the schema that the client asked
for.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from proxy.desk.decisions.schema_check import SchemaChecks
from proxy.errors import UnusableEditError
from proxy.formats import Format, Json
from proxy.formats.base.edits import Editable, EditableCall, tool_schemas
from proxy.formats.conversation import format_of
from proxy.http.wire.json_rewrite import Place, rewrite_json
from proxy.http.wire.json_splice import dumps, json_object
from proxy.store.reviews.held_replies import HeldReply

_BOTH = {"text", "tool_calls"}
_CALL = {"name", "arguments", "id"}


def editable(held: HeldReply) -> Editable | None:
    """Return the editable parts of a reply: the text of each choice, and its calls.

    None where it is no answer of a known format.
    """
    completion, format = json_object(held.reply), format_of(held.path)
    if completion is None or format is None:
        return None
    try:
        return format.editable(completion)
    except (KeyError, TypeError, AttributeError):  # upstream deviates from the format
        return None


def edit_reply(held: HeldReply, content: Any) -> bytes:
    """Return the reply's bytes with `content` in place of its text, its calls, or both.

    `content` is a string; a list of strings, one for each choice; a call `{"name"?, "arguments"}`
    or a list of calls, one for each call of the reply; or `{"text", "tool_calls"}`. Raises
    UnusableEditError where it does not fit the reply, or what the client asked for.
    """
    parts, format = editable(held), format_of(held.path)
    if parts is None or format is None:
        raise UnusableEditError("this reply cannot be edited: release or reject it as it is")
    texts, calls = _split_content(content)
    payload = json_object(held.request) if held.request is not None else None
    changes: dict[Place, Any] = {}
    checks = SchemaChecks()
    if texts is not None:
        changes |= _with_texts(parts, texts, format, payload or {}, checks)
    if calls is not None:
        changes |= _with_calls(parts, calls, payload or {}, checks)
    checks.run()
    try:
        return rewrite_json(held.reply.decode(), changes).encode(errors="surrogatepass")
    except ValueError as error:
        raise UnusableEditError(f"the reply cannot be edited: {error}") from error


def _split_content(content: Any) -> tuple[list[str] | None, list[Json] | None]:
    """Return (texts, calls) of an edit's content, None for those that stay.

    Raises UnusableEditError for content of another form.
    """
    if isinstance(content, dict) and content and set(content) <= _BOTH:
        texts, other_calls = _split_content(content["text"]) if "text" in content else (None, None)
        other_texts, calls = (
            _split_content(content["tool_calls"]) if "tool_calls" in content else (None, None)
        )
        if other_calls is None and other_texts is None:
            return texts, calls
    if isinstance(content, str):
        return [content], None
    if isinstance(content, dict):
        content = [content]
    if isinstance(content, list) and content:
        if all(isinstance(each, str) for each in content):
            return content, None
        if all(isinstance(each, dict) and "arguments" in each for each in content):
            return None, content
    raise UnusableEditError(
        "content is a text, a list of texts (one for each choice), a call "
        '{"name", "arguments"} or a list of calls, or {"text", "tool_calls"}',
        param="content",
    )


def _with_texts(
    parts: Editable, texts: Sequence[str], format: Format, payload: Json, checks: SchemaChecks
) -> dict[Place, Any]:
    """Return the changes that new texts make, by their places in the JSON.

    Texts for which the client gave a schema are added to `checks`. Raises UnusableEditError.
    """
    if not parts.texts:
        raise UnusableEditError("the reply has no text, but calls of tools", param="content")
    if len(texts) != len(parts.texts):
        message = f"the reply has {len(parts.texts)} texts, not {len(texts)}"
        raise UnusableEditError(message, param="content")
    changes: dict[Place, Any] = {}
    for index, (new, text) in enumerate(zip(texts, parts.texts, strict=True)):
        where = "content" if len(texts) == 1 else f"content[{index}]"
        if not new.strip():
            raise UnusableEditError("an empty text is no reply; reject it instead", param=where)
        if new != text.text:
            _check_text(new, format, payload, where, checks)
            changes |= text.changes(new)
    return changes


def _check_text(text: str, format: Format, payload: Json, where: str, checks: SchemaChecks) -> None:
    """Refuse a text that is no JSON where the client asked for that; raises UnusableEditError.

    A value for which the client gave a schema is added to `checks`.
    """
    wanted_json = format.wanted_json(payload)
    if wanted_json is None:
        return
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        message = f"the client asked for JSON, which this is not: {error}"
        raise UnusableEditError(message, param=where) from error
    if wanted_json.schema is not None:
        checks.add(value, wanted_json.schema, partial(_unwanted_error, where))
    elif not isinstance(value, dict):
        raise _unwanted_error(where, "the client asked for a JSON object")


def _unwanted_error(where: str, mistake: str) -> UnusableEditError:
    """Return the error for a text, at `where` in the content, that the client did not ask for."""
    return UnusableEditError(f"not what the client asked for: {mistake}", param=where)


def _arguments_error(where: str, name: str, mistake: str) -> UnusableEditError:
    """Return the error for arguments, at `where` in the content, that do not fit a schema."""
    return UnusableEditError(f"the arguments do not fit {name}: {mistake}", param=where)


def _with_calls(
    parts: Editable, calls: Sequence[Json], payload: Json, checks: SchemaChecks
) -> dict[Place, Any]:
    """Return the changes that new calls make, by their places in the JSON.

    Arguments of a tool with a schema are added to `checks`. Raises UnusableEditError.
    """
    if len(calls) != len(parts.calls):
        raise UnusableEditError(
            f"the reply has {len(parts.calls)} calls that can be edited, not {len(calls)}",
            param="content",
        )
    schemas = tool_schemas(payload)
    changes: dict[Place, Any] = {}
    for index, (new, call) in enumerate(zip(calls, parts.calls, strict=True)):
        where = f"content[{index}]"
        if unknown := set(new) - _CALL:
            raise UnusableEditError(f"a call has no {min(unknown)!r}", param=where)
        name = new.get("name", call.name)
        if name != call.name and not (isinstance(name, str) and name in schemas):
            message = f"the request offers no tool {str(name)[:100]!r}"
            raise UnusableEditError(message, param=f"{where}.name")
        at, schema = f"{where}.arguments", schemas.get(name)
        arguments = _arguments(new["arguments"], call, schema, at, checks)
        changes |= {call.name_at: name} if name != call.name else {}
        changes |= {call.arguments_at: arguments}
    return changes


def _arguments(
    value: Any, call: EditableCall, schema: Any, where: str, checks: SchemaChecks
) -> Any:
    """Return a call's new arguments as the reply has them: a text, an object, or JSON as text.

    Those of a tool with a schema are added to `checks`. Raises UnusableEditError.
    """
    if call.kind == "text":
        if not isinstance(value, str):
            raise UnusableEditError(f"{call.name} takes a text", param=where)
        return value
    arguments = value
    if isinstance(value, str):
        try:
            arguments = json.loads(value)
        except (ValueError, RecursionError) as error:
            message = f"the arguments are no JSON: {error}"
            raise UnusableEditError(message, param=where) from error
    if not isinstance(arguments, dict):
        raise UnusableEditError("the arguments of a call are a JSON object", param=where)
    if isinstance(schema, dict):
        checks.add(arguments, schema, partial(_arguments_error, where, call.name))
    if call.kind == "object":
        return arguments
    return value if isinstance(value, str) else dumps(arguments).decode()
