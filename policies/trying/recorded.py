"""Facts as plain values and back, for records, fixtures and replays.

    {"confidence": 0.41, "model": "gpt-5.6", "tools": [{"name": "search", "arguments": {"q": "x"}}]}

A call can have `marks: {q: [not_in_conversation], "": [repeated]}`, by the arguments that they are
about, and a `risk`; without these keys they are unknown. Facts at their default are left out.
Arguments are an object, or the JSON text as it arrived.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any, Final, cast

from policies.conditions.call_notes import MARKS, RISKS
from policies.conditions.facts import Facts, ToolCall
from policies.conditions.findings import ACTS, BASES
from policies.errors import InvalidDocumentError
from policies.reading.reading import Node, abbreviate
from policies.reading.shapes import FLAG, TEXT, Shape, make, mapping, number, whole, word
from policies.reading.strict_yaml import Document
from policies.reading.yaml_builder import Value


def facts_as_values(facts: Facts) -> dict[str, Any]:
    """Return the facts by name as values for JSON, without those at their default.

    `confidence` and `model` are always there; tags are sorted, and calls are mappings.
    """
    values = {
        each.name: getattr(facts, each.name)
        for each in fields(Facts)
        if each.default is MISSING or getattr(facts, each.name) != each.default
    }
    if "tags" in values:
        values["tags"] = sorted(facts.tags)
    if "tools" in values:
        values["tools"] = [_call_as_values(call) for call in facts.tools]
    if "opinions" in values:
        values["opinions"] = list(facts.opinions)
    if "logprobs" in values:
        values["logprobs"] = list(facts.logprobs)
    if "basis" in values:
        values["basis"] = list(facts.basis)
    return values


def _call_as_values(call: ToolCall) -> dict[str, Any]:
    """Return a call's name and arguments (JSON text), and its marks and risk if they are known."""
    values: dict[str, Any] = {"name": call.name, "arguments": call.arguments}
    if call.marks is not None:
        values["marks"] = marks_as_values(call.marks)
    if call.risk is not None:
        values["risk"] = call.risk
    return values


def marks_as_values(marks: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return (mark, argument) pairs as lists of marks by argument: `{"q": ["repeated"]}`.

    Marks of the call itself are under "".
    """
    found: dict[str, list[str]] = {}
    for mark, argument in marks:
        found.setdefault(argument, []).append(mark)
    return found


def facts_from_values(values: Mapping[str, Any], source: str) -> Facts:
    """Return the `Facts` in values as `facts_as_values` returns; `source` names them in problems.

    Missing ones get their defaults. Raises InvalidDocumentError where values are invalid.
    """
    root = Node.root(Document(cast(Value, dict(values)), source, {}), called="the facts")
    facts = FACTS.read(root)
    if root.problems:
        raise InvalidDocumentError(root.problems)
    return facts


def _items(node: Node) -> list[Node]:
    """Return the nodes of a list's items, or the node of a value that is no list."""
    return node.items() if isinstance(node.value, list) else [node]


def _tools(node: Node) -> tuple[ToolCall, ...]:
    """Read a list of tool calls; a plain name is a call without arguments."""
    return tuple(
        ToolCall(each.value) if isinstance(each.value, str) else _CALL.read(each)
        for each in node.items()
    )


def _arguments(node: Node) -> str:
    """Return arguments as JSON text; text is returned as it is, and an object is encoded.

    Anything else is reported and encoded.
    """
    if isinstance(node.value, str):
        return node.value
    if not isinstance(node.value, dict):
        node.report(f"{node} must be an object or its JSON, not {abbreviate(node.value)}")
    return json.dumps(node.value)


def _marks(node: Node) -> tuple[tuple[str, str], ...]:
    """Read a call's marks as (mark, argument) pairs, the strongest first.

    They are given by argument, `{q: [repeated]}`, or as names, which are paired with "".
    """
    by_name = node.value if isinstance(node.value, dict) else {}
    places = {name: node[name] for name in by_name} or {"": node}
    pairs = [(_MARK.read(each), name) for name, at in places.items() for each in _items(at)]
    return tuple(sorted(pairs, key=lambda pair: MARKS.index(pair[0])))


def _list(shape: Shape[Any]) -> Shape[tuple[Any, ...]]:
    """Return the shape of one value or a list of them, also an empty one, read as a tuple."""
    return Shape(lambda node: tuple(map(shape.read, _items(node))), {})


_MARK: Final = word(MARKS)
_SHARE: Final = number(0.0, 1.0)
_BASES: Final = _list(word(BASES))
_CALL: Final = mapping(
    make(ToolCall),
    {
        "name": TEXT,
        "arguments": Shape(_arguments, {}),
        "marks": Shape(_marks, {}),
        "risk": word(RISKS),
    },
    required=("name",),
)
_SPECIAL: Final[Mapping[str, Shape[Any]]] = {
    "tools": Shape(_tools, {}),
    "n": whole(0),
    "tags": Shape(lambda node: frozenset(_list(TEXT).read(node)), {}),
    "length": whole(0),
    "opinions": _list(TEXT),
    "logprobs": _list(number(-math.inf, 0.0)),
    "basis": Shape(lambda node: tuple(dict.fromkeys(_BASES.read(node))), {}),
    "act": word(ACTS),
    **dict.fromkeys(("stream", "refusal", "needs_facts", "familiar"), FLAG),
    **dict.fromkeys(("confidence", "share_below", "alone", "alone_score", "judged"), _SHARE),
    **dict.fromkeys(("unaided", "unaided_score", "support"), _SHARE),
}
FACTS: Final = mapping(
    lambda node, confidence=None, **values: Facts(confidence, **values),
    {each.name: _SPECIAL.get(each.name, TEXT) for each in fields(Facts) if each.init},
    required=("model",),
    null_is_absent=True,
)
"""The shape of facts; those without a value are at their default."""
