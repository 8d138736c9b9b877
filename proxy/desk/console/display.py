"""Messages as a page shows them, formatted and cut, and the form in which a reply is edited.

Of an edit only changes are passed on: the rest of the reply stays byte for byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from markupsafe import Markup

from proxy.desk.console import text
from proxy.desk.decisions.unseen import one_line
from proxy.desk.decisions.waiting_calls import AMBIGUOUS, WaitingCall, plain_arguments
from proxy.errors import UnusableEditError
from proxy.formats.base.edits import Editable, EditableCall
from proxy.formats.conversation import Part, Turn

MOST_SHOWN: Final = 20_000
"""Characters of one part that a page shows at first; the rest is a click away."""

MOST_AT_ALL: Final = 4_000_000  # characters of one part on a page that shows all
MOST_FORMATTED: Final = 60_000  # characters of all parts of a page, the last ones first
MOST_UNFOLDED: Final = 600
"""Characters of instructions, and 4 times as many of earlier turns, that are shown unfolded."""

_NUMBER: Final = re.compile(r"-?[0-9.]+([eE][-+]?[0-9]+)?")
_INSTRUCTIONS: Final = ("system", "developer")
MOST_TURNS: Final = 30  # the last turns of a conversation
NO_HTML: Final = Markup()
MOST_FIELDS: Final = 40  # arguments of a call; more are shown as JSON


@dataclass(frozen=True, slots=True)
class Field:
    """An argument of a call.

    `value` is the text in its field: a text as it is, and any other value as JSON.
    """

    name: str
    kind: str  # "text" or "json"
    value: str
    mark: str = ""  # what is unusual about it

    @property
    def preview(self) -> str:
        """The beginning of the value that a page shows."""
        return self.value[:MOST_SHOWN]

    @property
    def value_kind(self) -> str:
        """The kind of value that a form asks for, such as "number"; empty for a text."""
        if self.kind == "text":
            return ""
        if self.value in ("true", "false"):
            return "true or false"
        return "number" if _NUMBER.fullmatch(self.value) else "JSON"

    @property
    def rows(self) -> int:
        """The number of lines of the field in which it is edited."""
        return min(12, max(1, self.value.count("\n") + 1, len(self.value) // 44 + 1))


@dataclass(frozen=True, slots=True)
class ShownPart:
    """A part of a message as a page shows it: a text as `html`, or a call with its `fields`.

    `kind` is that of a `Part`. `text` is an image's address, a note, or a call's arguments where it
    has no fields. `cut` is its number of characters where not all are shown.
    """

    kind: str
    text: str
    name: str = ""
    html: Markup = NO_HTML
    fields: tuple[Field, ...] = ()
    cut: int | None = None
    risk: str | None = None  # the pattern of the rule that a call matches
    warning: str = ""  # a call's high risk, and its marks as a whole

    @property
    def is_shown(self) -> bool:
        """Whether an image is in the page itself."""
        return text.is_picture(self.text)


@dataclass(frozen=True, slots=True)
class ShownTurn:
    """A message as a page shows it.

    `folded` is its number of characters where a click shows them, else None.
    """

    role: str
    parts: tuple[ShownPart, ...]
    folded: int | None = None


def before_the_request(turns: Sequence[Turn]) -> int:
    """Return how many messages a page folds: those before the user's last turn, if they are long.

    Returns 0 if they are short. Instructions do not count as long.
    """
    last = max((at for at, turn in enumerate(turns) if turn.role == "user"), default=0)
    earlier = sum(map(_size, (turn for turn in turns[:last] if turn.role not in _INSTRUCTIONS)))
    return last if earlier > 4 * MOST_UNFOLDED else 0


def _size(turn: Turn) -> int:
    """Return the characters of all parts of a message."""
    return sum(len(part.text) for part in turn.parts)


def show_turns(
    turns: Sequence[Turn], *, is_all: bool = False, calls: Sequence[WaitingCall] = ()
) -> list[ShownTurn]:
    """Return the messages in order, as a page shows them.

    `calls` are the calls in them, in order, whose marks are added, the last to the last. Parts are
    cut at `MOST_SHOWN` characters, or at `MOST_AT_ALL` if `is_all`. From the last on, texts and
    thoughts that fit into what is left of `MOST_FORMATTED` characters are formatted; other parts
    are plain. Instructions longer than `MOST_UNFOLDED` are folded.
    """
    characters_left, calls_left = MOST_FORMATTED, list(calls)
    shown_turns = []
    for turn in reversed(turns):
        parts = []
        for part in reversed(turn.parts):
            size = len(part.text)
            is_formatted = part.kind in ("text", "thought") and size <= min(
                characters_left, text.MOST_FORMATTED
            )
            characters_left -= size if is_formatted else 0
            piece = _show_part(part, MOST_AT_ALL if is_all else MOST_SHOWN, is_formatted)
            parts.append(
                _add_marks(piece, calls_left.pop())
                if piece.kind == "call" and calls_left
                else piece
            )
        size = _size(turn) if turn.role in _INSTRUCTIONS else 0
        folded_size = size if size > MOST_UNFOLDED else None
        shown_turns.append(ShownTurn(one_line(turn.role, 40), tuple(parts[::-1]), folded_size))
    return shown_turns[::-1]


def _add_marks(part: ShownPart, call: WaitingCall) -> ShownPart:
    """Return the part with the call's marks on its fields, its rule's pattern and a warning."""
    fields = tuple(replace(each, mark=call.marks.get(each.name, "")) for each in part.fields)
    risk = f"{AMBIGUOUS}: it is shown as its text" if call.is_ambiguous else call.risk
    return replace(part, fields=fields, risk=risk, warning=call.warning)


def _show_part(part: Part, limit: int, is_formatted: bool) -> ShownPart:
    """Return a part cut at `limit` characters; a call's arguments become fields if possible.

    Images are never cut.
    """
    head = part.text[:limit]
    cut = len(part.text) if len(part.text) > limit else None
    if part.kind in ("text", "thought"):
        html = text.render_markdown(head) if is_formatted else text.plain(head)
        return ShownPart(part.kind, "", html=html, cut=cut)
    if part.kind == "call":
        fields = fields_of(part.text)
        is_plain = plain_arguments(part.text) is not None
        full_text = text.indented_json(part.text) if is_plain else part.text
        preview = "" if fields else full_text[:limit]
        return ShownPart("call", preview, one_line(part.name, 80), fields=fields, cut=cut)
    if part.kind == "image":
        return ShownPart("image", part.text)  # half an image is of no use
    return ShownPart(part.kind, head, cut=cut)


def fields_of(arguments: str) -> tuple[Field, ...]:
    """Return a call's arguments as fields; none where they cannot be shown as such.

    These are no JSON object, one with a repeated name, one with more than `MOST_FIELDS`, or long
    text.
    """
    values = _object(arguments)
    if len(values) > MOST_FIELDS or len(arguments) > MOST_SHOWN:
        return ()
    return tuple(_fields(values))


def _object(arguments: str) -> dict[str, Any]:
    """Return a call's arguments by name, as every tool reads them; an empty dict if they cannot."""
    return (plain_arguments(arguments) if arguments else None) or {}


def _fields(values: dict[str, Any]) -> Iterator[Field]:
    """Yield a field for each argument: texts as they are, other values as JSON."""
    for name, value in values.items():
        if isinstance(value, str):
            yield Field(name, "text", value)
        else:
            is_flat = not isinstance(value, dict | list) or not value
            json_text = json.dumps(value, ensure_ascii=False, indent=None if is_flat else 2)
            yield Field(name, "json", json_text)


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


def form_of(editable: Editable | None, fields: Mapping[str, str] | None = None) -> EditForm | None:
    """Return the form of a reply, filled in with what a person wrote before, if anything.

    `fields` has the fields of that form: `text.0` for a choice's text, `call.0` for a call's
    arguments, `call.0.1` for one argument. None where nothing can be edited.
    """
    if editable is None or not (editable.texts or editable.calls):
        return None
    values = fields or {}
    texts = [values.get(f"text.{at}", each.text) for at, each in enumerate(editable.texts)]
    calls = [_call_form(call, at, values) for at, call in enumerate(editable.calls)]
    return EditForm(tuple(texts), tuple(calls))


def _call_form(call: EditableCall, at: int, values: Mapping[str, str]) -> CallForm:
    """Return the form of the call with number `at`, with what a person wrote before."""
    is_json = call.kind != "text"
    fields = [
        Field(field.name, field.kind, values.get(f"call.{at}.{number}", field.value))
        for number, field in enumerate(fields_of(call.arguments) if is_json else ())
    ]
    arguments = values.get(f"call.{at}", call.arguments)
    return CallForm(call.name, arguments, tuple(fields), is_json)


def content_of(editable: Editable | None, fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the content of an edit from a form: `text` and `tool_calls`, each if changed.

    Raises UnusableEditError where nothing was changed or cannot be.
    """
    if editable is None:
        raise UnusableEditError("this reply cannot be edited: approve or reject it as it is")
    texts = [_text(each.text, fields.get(f"text.{at}")) for at, each in enumerate(editable.texts)]
    calls = [_arguments(call, at, fields) for at, call in enumerate(editable.calls)]
    content: dict[str, Any] = {}
    if texts != [each.text for each in editable.texts]:
        content["text"] = texts
    if calls != [call.arguments for call in editable.calls]:
        content["tool_calls"] = [
            {"name": call.name, "arguments": arguments}
            for call, arguments in zip(editable.calls, calls, strict=True)
        ]
    if not content:
        raise UnusableEditError("nothing was changed; approve the reply instead")
    return content


def _text(before: str, after: str | None) -> str:
    """Return a field's new text, or the old one if it is absent or only its encoding differs.

    Forms send line ends as CRLF, whatever the text had, and lose what no page can hold. A new text
    has LF.
    """
    if after is None:
        return before
    after = after.replace("\r\n", "\n")
    is_same = _as_sent(before) == after
    return before if is_same else after


def _as_sent(value: str) -> str:
    """Convert CRLF and CR to newlines, and replace characters that UTF-8 cannot encode."""
    return value.replace("\r\n", "\n").replace("\r", "\n").encode("utf-8", "replace").decode()


def _arguments(call: EditableCall, at: int, fields: Mapping[str, str]) -> str:
    """Return a call's arguments from a form as JSON text; the same text if nothing was edited.

    Raises UnusableEditError where a field has no JSON.
    """
    arguments = fields_of(call.arguments) if call.kind != "text" else ()
    if not arguments:
        return _text(call.arguments, fields.get(f"call.{at}"))
    values, is_changed = {}, False
    for number, field in enumerate(arguments):
        written = _text(field.value, fields.get(f"call.{at}.{number}"))
        is_changed |= written != field.value
        values[field.name] = written if field.kind == "text" else _value(written, call, field)
    return json.dumps(values, ensure_ascii=False) if is_changed else call.arguments


def _value(written: str, call: EditableCall, field: Field) -> Any:
    """Parse what a person wrote into an argument's field as JSON; raises UnusableEditError."""
    try:
        return json.loads(written)
    except (ValueError, RecursionError) as error:
        raise UnusableEditError(f"{call.name}: {field.name} is no JSON: {error}") from error
