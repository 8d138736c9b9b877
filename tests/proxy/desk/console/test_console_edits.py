"""Values that the form for editing a reply sends back."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from proxy.desk.console.display import content_of, form_of
from proxy.errors import UnusableEditError
from proxy.formats.base.edits import Editable, EditableCall, EditableText

Kind = Literal["string", "object", "text"]


def text(value: str) -> EditableText:
    return EditableText(value, lambda _: {})


def call(arguments: str, kind: Kind = "string") -> EditableCall:
    return EditableCall("pay", arguments, kind, (), ())


@pytest.mark.parametrize("value", ["a\nb", "a\r\nb", "a\rb", "\n\na", "half \ud800", "x\t"])
def test_what_was_not_touched_is_no_edit(value: str) -> None:
    """Line ends that forms change, and characters that no page can hold, are no edit."""
    sent = value.replace("\r\n", "\n").replace("\r", "\n").replace("\ud800", "?")
    with pytest.raises(UnusableEditError, match="nothing was changed"):
        content_of(Editable([text(value)]), {"text.0": sent.replace("\n", "\r\n")})


def test_only_the_changed_call_is_sent() -> None:
    """Only the changed call is sent back; the other keeps its bytes, spaces and number."""
    found = Editable([text("so")], [call('{"n" : 1.50}'), call('{"to":"ada", "n": 2}')])
    content = content_of(found, {"call.1.0": "ben", "call.1.1": "2", "text.0": "so"})
    assert content == {
        "tool_calls": [
            {"name": "pay", "arguments": '{"n" : 1.50}'},
            {"name": "pay", "arguments": '{"to": "ben", "n": 2}'},
        ]
    }


@pytest.mark.parametrize(
    ("arguments", "kind", "written", "expected"),
    [
        ("not json", "text", "other", "other"),
        ("[1]", "string", "[2]", "[2]"),
        ('{"html":"<b>"}', "text", "x", "x"),
    ],
)
def test_what_has_no_fields_is_edited_whole(
    arguments: str, kind: Kind, written: str, expected: Any
) -> None:
    """Texts of custom tools, and arguments that are no object, are edited as one text."""
    found = Editable([], [call(arguments, kind)])
    assert content_of(found, {"call.0": written})["tool_calls"][0]["arguments"] == expected


def test_a_broken_value_is_named() -> None:
    """An invalid value is reported with its tool and argument, and stays in the form."""
    found, values = Editable([], [call('{"n": 1}')]), {"call.0.0": "one"}
    with pytest.raises(UnusableEditError, match="pay: n is no JSON"):
        content_of(found, values)
    form = form_of(found, values)
    assert form is not None
    assert form.calls[0].fields[0].value == "one"


def test_a_field_says_what_it_asks_for() -> None:
    """A field says in a reviewer's words what it needs; only lists and objects are JSON."""
    arguments = '{"to": "ada", "n": 12.5, "at": -1e3, "is_paid": true, "lines": [1], "ref": null}'
    form = form_of(Editable([], [call(arguments)]))
    assert form is not None
    assert {field.name: field.value_kind for field in form.calls[0].fields} == {
        "to": "",
        "n": "number",
        "at": "number",
        "is_paid": "true or false",
        "lines": "JSON",
        "ref": "JSON",
    }


def test_what_cannot_be_edited_has_no_form() -> None:
    """A reply that cannot be edited has no form, and an edit of it is refused."""
    assert form_of(None) is None
    assert form_of(Editable()) is None
    with pytest.raises(UnusableEditError, match="cannot be edited"):
        content_of(None, {"text.0": "x"})
