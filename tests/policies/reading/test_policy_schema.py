"""The JSON Schema of policies agrees with the parser, as far as a schema can."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from policies import InvalidDocumentError, json_schema, load_document, load_policy, pack_names
from tests.builders.policy_strategies import Values, documents, parsed

SCHEMA = json_schema()
VALIDATOR = Draft202012Validator(SCHEMA)


def test_the_schema_is_one() -> None:
    """The schema is valid and survives JSON."""
    Draft202012Validator.check_schema(SCHEMA)
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA


@given(documents())
def test_what_the_reader_accepts_is_valid(document: Values) -> None:
    """Every policy that the parser accepts is valid."""
    parsed(document)
    VALIDATOR.validate(document)


@pytest.mark.parametrize("name", pack_names())
def test_the_packs_are_valid(name: str) -> None:
    """The shipped packs are valid."""
    VALIDATOR.validate(load_document(load_policy(name).source).value)


def places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path to every value within a value."""
    found = [place] if place else []
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return found + [each for key, inner in items for each in places(inner, (*place, key))]


@pytest.mark.parametrize("key", ["rules", "costs"])
def test_a_key_with_nothing_in_it_is_valid(key: str) -> None:
    """A key without a value is valid and read as empty."""
    document = {"version": 1, "name": "p", "default": "hold", key: None}
    parsed(document)
    VALIDATOR.validate(document)


@given(st.data())
def test_what_the_schema_refuses_the_reader_refuses(data: st.DataObject) -> None:
    """A policy with one replaced value that the schema refuses is refused by the parser too."""
    document = deepcopy(data.draw(documents(rules_at_most=2)))
    *way, last = data.draw(st.sampled_from(places(document)))
    parent = document
    for key in way:
        parent = parent[key]
    parent[last] = data.draw(
        st.sampled_from([None, True, 0, 1, -3, 0.5, 7.5, "", " ", "x", "deliver", [], {}, ["a"]])
    )
    if VALIDATOR.is_valid(document):
        return
    with pytest.raises(InvalidDocumentError):
        parsed(document)


@pytest.mark.parametrize(
    "document",
    [
        {"version": 1, "name": "p"},
        {"version": 1, "name": "p", "default": "hodl"},
        {"version": 1, "name": "p", "default": {"hold": {"que": "x"}}},
        {"version": 1, "name": "p", "default": "hold", "rules": [{"name": "r"}]},
        {"version": 1, "name": "p", "default": "hold", "mod": "shadow"},
        {
            "version": 1,
            "name": "p",
            "default": "hold",
            "rules": [{"name": "r", "when": {"confidence": {"below": 70}}, "then": "hold"}],
        },
        {
            "version": 1,
            "name": "p",
            "default": "hold",
            "rules": [{"name": "r", "when": {"tools": [{"arguments": {"a": 1}}]}, "then": "hold"}],
        },
    ],
)
def test_common_mistakes_are_marked(document: Values) -> None:
    """Missing, misspelt and impossible values are invalid."""
    assert not VALIDATOR.is_valid(document)
