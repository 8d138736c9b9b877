"""Verify parts of an answer by rule, as numbers for the side tower.

Examples are an option that differs from the reasoning's result, and a call that lacks a required
argument. Rules need no model to see these, and mean the same for models and benchmarks that were
never trained on. (Wrong sums were tried too: with these models they are too rare to be useful.)
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from calibrator.text.looking_for import at_lines, reading_of

MAX_CALLS = 20
CHECKS = 20  # numbers that `checks_of` returns
MAX_CALL_CHARACTERS = 6_000
CLOSE = 400  # characters before the final letter that are read as its reason

_OPTION = re.compile(r"(?m)^[ \t]*\(?([A-J])[).:][ \t]*(.+)$")
_CHOICE = re.compile(r"(?:answer is|answer:|answer\"\s*:|\\boxed\{)\s*[\"'(*\s]*([A-J])\b", re.I)
_WORD = re.compile(r"[a-z]{3,}")
_PLAIN_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_CALL = re.compile(r"([A-Za-z_][\w.]{0,80})\(")
_PYTHON_WORD = re.compile(r"\b(?:True|False|None)\b")
_AS_JSON = {"True": "true", "False": "false", "None": "null"}
_OFFER = re.compile(r'\[\s*\{\s*"(?:name|type)"\s*:')


def checks_of(question: str, answer: str) -> list[float]:
    """Return all `CHECKS` numbers by rule for one answered question, 0 where one does not apply.

    The first 8 are those of `choice`, the other 12 those of `calls`. All are 0 where arguments are
    nested too deeply.
    """
    try:
        return [*choice(question, answer), *calls(question, answer)]
    except RecursionError:  # arguments nested a thousand deep
        return [0.0] * CHECKS


def choice(question: str, answer: str) -> list[float]:
    """Check a multiple-choice answer: 8 numbers, zeros for a question without options.

    In order: 1 for options; 1 if no option is chosen; the share of the chosen option's words in the
    reasoning before it; whether that is the largest share; its distance from the largest; whether
    the option's first number is among the last three of the reasoning, and whether it is absent
    from it; the option's rank by length, as a share.
    """
    text_of_question = question[-4_000:]
    found = (
        at_lines(_OPTION, text_of_question) if reading_of(text_of_question).may_list_options else ()
    )
    options = {each[1]: each[2].strip() for each in found}
    if len(options) < 2:
        return [0.0] * 8
    bare = answer.strip()
    letters = _CHOICE.findall(answer)
    letter = (
        letters[-1] if letters else bare[:1] if len(bare) < 3 or bare[1:2] in ".):" else ""
    ).upper()
    if letter not in options:
        return [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    chosen = options[letter]
    at = max(answer.rfind("answer is"), answer.rfind("boxed"), answer.rfind("nswer:"))
    reason = answer[max(0, at - CLOSE) : at].lower() if at > 0 else ""
    supports = {name: _support(text, reason) for name, text in options.items()}
    best = max(supports.values())
    lengths = sorted(len(text) for text in options.values())
    own_numbers = _PLAIN_NUMBER.findall(chosen)
    last_numbers = _PLAIN_NUMBER.findall(reason.replace(",", ""))[-3:]
    return [
        1.0,
        0.0,
        supports[letter],
        float(best > 0 and supports[letter] == best),
        best - supports[letter],
        float(bool(own_numbers and last_numbers) and own_numbers[0] in last_numbers),
        float(bool(own_numbers and last_numbers) and own_numbers[0] not in reason),
        (lengths.index(len(chosen)) + 1) / len(lengths),
    ]


def _support(option: str, reason: str) -> float:
    """Return the share, 0 to 1, of an option's words and numbers that occur in the reasoning.

    `reason` is in lower case; 0 for an option without words.
    """
    parts = set(_WORD.findall(option.lower())) | set(_PLAIN_NUMBER.findall(option))
    return sum(part in reason for part in parts) / len(parts) if parts else 0.0


def calls(question: str, answer: str) -> list[float]:
    """Check tool calls against the tools offered: 12 numbers, zeros if no tools are offered.

    In order: 1 for tools; log of their number; whether a call names none of them; log(1 + calls);
    the worst of each number of `_call_facts`; whether two calls have the same arguments; the match
    of the called tools with the request.
    """
    offered = offered_tools(question)
    if not offered:
        return [0.0] * 12
    request = question.partition("Available functions")[0].lower()
    written = made_calls(answer)
    known = [(offered[name], arguments) for name, arguments in written if name in offered]
    if not known:
        return [
            1.0,
            math.log(len(offered)),
            float(bool(written)),
            *[0.0] * 8,
            _topic(offered, request),
        ]
    facts = [_call_facts(tool, arguments, request) for tool, arguments in known]
    worst = [max(column) for column in zip(*facts, strict=True)]
    return [
        1.0,
        math.log(len(offered)),
        float(len(known) < len(written)),
        math.log1p(len(known)),
        *worst,
        float(len({json.dumps(a, sort_keys=True, default=str) for _, a in known}) < len(known)),
        _topic({str(n): tool for n, (tool, _) in enumerate(known)}, request),
    ]


def _call_facts(tool: Mapping[str, Any], arguments: Mapping[str, Any], request: str) -> list[float]:
    """Return six numbers on the faults of one call, each 0 (none) to 1.

    These are the shares of required arguments that are missing, and of given ones that are unknown
    and of the wrong type; whether one is outside its enumeration; and the shares that are empty and
    that the request does not mention.
    """
    schema = tool.get("parameters") if isinstance(tool.get("parameters"), Mapping) else {}
    properties = schema.get("properties") if isinstance(schema, Mapping) else {}
    properties = properties if isinstance(properties, Mapping) else {}
    listed = schema.get("required") if isinstance(schema, Mapping) else None
    required = (
        [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
    )
    count = max(1, len(arguments))
    pairs = [(properties.get(name), value) for name, value in arguments.items()]
    typed = [(p, value) for p, value in pairs if isinstance(p, Mapping)]
    return [
        sum(name not in arguments for name in required) / max(1, len(required)),
        sum(p is None for p, _ in pairs) / count,
        sum(not _fits(p, value) for p, value in typed) / count,
        float(
            any(isinstance(p.get("enum"), list) and value not in p["enum"] for p, value in typed)
        ),
        sum(value in ("", 0, None, [], {}) and value is not False for value in arguments.values())
        / count,
        sum(not _is_mentioned(value, request) for value in arguments.values()) / count,
    ]


def _fits(schema: Mapping[str, Any], value: Any) -> bool:
    """Return whether a value has the type that its JSON schema names; True for an unknown type.

    True and False fit `boolean` alone, and whole numbers fit `number` and `float` too.
    """
    kinds: dict[str, tuple[type, ...]] = {
        "string": (str,), "integer": (int,), "float": (float, int), "number": (float, int),
        "boolean": (bool,), "array": (list,), "tuple": (list,),
        "object": (dict,), "dict": (dict,),
    }  # fmt: skip
    wanted = kinds.get(str(schema.get("type")).lower())
    is_confused = isinstance(value, bool) and wanted is not None and bool not in wanted
    return wanted is None or (isinstance(value, wanted) and not is_confused)


def _is_mentioned(value: Any, request: str) -> bool:
    """Return whether the request, in lower case, contains a value's text.

    A list or object needs all its parts there; True, False and None count as mentioned.
    """
    if isinstance(value, bool) or value is None:
        return True
    if isinstance(value, list):
        return all(_is_mentioned(part, request) for part in value)
    if isinstance(value, dict):
        return all(_is_mentioned(part, request) for part in value.values())
    text = str(value).lower()
    return text.removesuffix(".0") in request or text.replace("_", " ") in request


def _topic(offered: Mapping[str, Mapping[str, Any]], request: str) -> float:
    """Return the largest share of a tool's words that are in the request, 0 to 1.

    The words come from name and description; their first six letters count.
    """
    best = 0.0
    for tool in offered.values():
        text = f"{tool.get('name')} {tool.get('description')}".lower().replace("_", " ")
        words = set(_WORD.findall(text))
        best = max(best, sum(word[:6] in request for word in words) / max(1, len(words)))
    return best


def offered_tools(question: str) -> dict[str, Mapping[str, Any]]:
    """Return the tools that a question's text lists as JSON, by name; empty if there are none.

    Dots in names become underscores. A tool is its `function` if it has one, else the whole object.
    """
    start = _OFFER.search(question)
    if start is None:
        return {}
    try:
        found, _ = json.JSONDecoder().raw_decode(question, start.start())
    except (ValueError, RecursionError):
        return {}
    tools = [tool.get("function", tool) for tool in found if isinstance(tool, Mapping)]
    return {
        str(tool["name"]).replace(".", "_"): tool
        for tool in tools
        if isinstance(tool, Mapping) and "name" in tool
    }


def made_calls(answer: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the name and arguments of each call in an answer, at most `MAX_CALLS`, in order.

    Calls are written `name(a=1)` or as JSON, `{"name": {"a": 1}}`. Dots in names become
    underscores.
    """
    text = answer.strip().strip("`").strip()
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return _python_calls(text)
    entries = parsed if isinstance(parsed, list) else [parsed]
    return [
        (str(name).replace(".", "_"), _as_mapping(arguments))
        for entry in entries[:MAX_CALLS]
        if isinstance(entry, Mapping)
        for name, arguments in entry.items()
    ]


def _as_mapping(arguments: Any) -> Mapping[str, Any]:
    """Return a call's arguments, an object or JSON in a string; empty for anything else."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return {}
    return arguments if isinstance(arguments, Mapping) else {}


def _python_calls(text: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Return names and arguments of calls such as `name(a=1, b="x")` in a text.

    It is parsed by hand, because nothing in an answer may be evaluated; positional arguments are
    left out.
    """
    found: list[tuple[str, Mapping[str, Any]]] = []
    at, text = 0, text[:MAX_CALL_CHARACTERS]
    while len(found) < MAX_CALLS and (start := _CALL.search(text, at)):
        parts, at = _split(text, start.end())
        pairs = (part.partition("=") for part in parts)
        arguments = {name.strip(): _value(value.strip()) for name, sign, value in pairs if sign}
        found.append((start[1].replace(".", "_"), arguments))
    return found


def _split(text: str, at: int) -> tuple[list[str], int]:
    """Return the parts between commas from `at` to the closing bracket, and that bracket's place.

    Commas inside quotes and inner brackets do not count. Without the bracket, the text's length.
    """
    depth, quote, begin, parts = 0, "", at, []
    for end in range(at, len(text)):
        character = text[end]
        if quote:
            quote = "" if character == quote and text[end - 1] != "\\" else quote
        elif character in "\"'":
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}" and depth:
            depth -= 1
        elif character == ")" or (character == "," and not depth):
            parts.append(text[begin:end])
            begin = end + 1
            if character == ")":
                return parts, end
    return [*parts, text[begin:]], len(text)


def _value(written: str) -> Any:
    """Parse a literal such as `True`, `'x'` or `[1]`; return any other text unchanged."""
    if len(written) > 1 and written[0] == written[-1] == "'":
        return written[1:-1]
    plain = _PYTHON_WORD.sub(lambda word: _AS_JSON[word[0]], written)
    for candidate in (written, plain, plain.replace("'", '"')):
        try:
            return json.loads(candidate)
        except (ValueError, RecursionError):
            continue
    return written
