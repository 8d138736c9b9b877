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
from policies.reading.strict_yaml import Document
from policies.reading.yaml_builder import Value

FACTS: Final = tuple(each.name for each in fields(Facts))


def facts_as_values(facts: Facts) -> dict[str, Any]:
    """Return the facts as values for JSON, without those at their default."""
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
    values: dict[str, Any] = {"name": call.name, "arguments": call.arguments}
    if call.marks is not None:
        values["marks"] = marks_as_values(call.marks)
    if call.risk is not None:
        values["risk"] = call.risk
    return values


def marks_as_values(marks: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return marks by the arguments that they are about; marks of the call itself are under ""."""
    found: dict[str, list[str]] = {}
    for mark, argument in marks:
        found.setdefault(argument, []).append(mark)
    return found


def facts_from_values(values: Mapping[str, Any], source: str) -> Facts:
    """Return the facts in such values. Raises InvalidDocumentError where they are invalid."""
    root = Node.root(Document(cast(Value, dict(values)), source, {}), called="the facts")
    facts = read_facts(root)
    if root.problems:
        raise InvalidDocumentError(root.problems)
    return facts


def read_facts(node: Node) -> Facts:
    """Read facts; problems are reported, see `policies.reading.reading`."""
    node.check_keys(FACTS, required=("model",))
    return Facts(
        confidence=_share(node["confidence"]),
        model=node["model"].text(""),
        tools=_tools(node["tools"]),
        n=_whole(node["n"], 1),
        tags=frozenset(node["tags"].texts()) if node["tags"].value else frozenset(),
        length=_whole(node["length"], 0),
        share_below=_share(node["share_below"]),
        stream=node["stream"].flag(default=False),
        refusal=node["refusal"].flag(default=False),
        finish_reason=_text(node["finish_reason"]),
        domain=_text(node["domain"]),
        team=_text(node["team"]),
        key=_text(node["key"]),
        calibrator=_text(node["calibrator"]),
        conversation=_text(node["conversation"]),
        alone=_share(node["alone"]),
        alone_calibrator=_text(node["alone_calibrator"]),
        alone_score=_share(node["alone_score"]),
        opinions=node["opinions"].texts() if node["opinions"].value else (),
        judged=_share(node["judged"]),
        judge=_text(node["judge"]),
        logprobs=tuple(
            each.number(0.0, low=-math.inf, high=0.0) for each in node["logprobs"].items()
        ),
        unaided=_share(node["unaided"]),
        unaided_calibrator=_text(node["unaided_calibrator"]),
        unaided_score=_share(node["unaided_score"]),
        support=_share(node["support"]),
        basis=_basis(node["basis"]),
        act=node["act"].choice(ACTS, None) if node["act"].value is not None else None,
        needs_facts=_flag(node["needs_facts"]),
        familiar=_flag(node["familiar"]),
    )


def _basis(node: Node) -> tuple[str, ...]:
    """Read one name or several, without repetitions."""
    if node.value is None:
        return ()
    items = node.items() if isinstance(node.value, list) else [node]
    return tuple(dict.fromkeys(item.choice(BASES, BASES[0]) for item in items))


def _flag(node: Node) -> bool | None:
    return node.flag(default=False) if node.value is not None else None


def _text(node: Node) -> str | None:
    return node.text("") if node.value is not None else None


def _share(node: Node) -> float | None:
    return node.number(0.0, low=0.0, high=1.0) if node.value is not None else None


def _whole(node: Node, default: int) -> int:
    number = node.number(default, low=0)
    if number != int(number):
        node.report(f"{node} must be a whole number, not {number:g}")
    return int(number)


def _tools(node: Node) -> tuple[ToolCall, ...]:
    calls = []
    for item in node.items():
        if isinstance(item.value, str):
            calls.append(ToolCall(item.value))
            continue
        item.check_keys(("name", "arguments", "marks", "risk"), required=("name",))
        arguments = item["arguments"].value if item["arguments"].is_present else {}
        if not isinstance(arguments, str | dict):
            problem = (
                f"{item['arguments']} must be an object or its JSON, not {abbreviate(arguments)}"
            )
            item["arguments"].report(problem)
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        marks = _marks(item["marks"]) if item["marks"].is_present else None
        risk = item["risk"].choice(RISKS, RISKS[0]) if item["risk"].is_present else None
        calls.append(ToolCall(item["name"].text(""), text, marks=marks, risk=risk))
    return tuple(calls)


def _marks(node: Node) -> tuple[tuple[str, str], ...]:
    """Read a call's marks, as names or by arguments, and return them with the strongest first."""
    if not isinstance(node.value, dict):
        pairs = [(mark, "") for mark in _mark_names(node)]
    else:
        pairs = [(mark, name) for name in node.value for mark in _mark_names(node[name])]
    return tuple(sorted(pairs, key=lambda pair: MARKS.index(pair[0])))


def _mark_names(node: Node) -> list[str]:
    items = node.items() if isinstance(node.value, list) else [node]
    return [item.choice(MARKS, MARKS[0]) for item in items]
