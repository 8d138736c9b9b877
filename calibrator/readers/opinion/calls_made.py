"""Calls of tools that a reply makes, in its message or in writing, in canonical form.

The order of calls and of arguments, quotes, capitals and numbers as text make no difference. Calls
in writing are parsed as literals and never run.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from calibrator.readers.opinion.numbers import number_of

MAX_DEPTH: Final = 12  # levels of nested arguments

_WORD = re.compile(r"[^\W_]+")
_FUNCTION = re.compile(r"\"name\"\s*:\s*\"[^\"]{1,200}\"\s*,\s*\"description\"\s*:")
_LIKE_A_CALL = re.compile(
    r"\w\(\s*(?:\w+\s*=|\{)|[\"'](?:name|func|function|parameters|arguments|params)[\"']\s*:"
    r"|^\W*\[\s*[\[{]|^\W*\[\s*[\"'][\w.]+[\"']\s*,"
)


@dataclass(frozen=True, slots=True, order=True)
class CanonicalCall:
    """A call with its name and arguments in canonical form; calls that do the same are equal.

    `arguments` are pairs of name and value, sorted. `str` gives `name(a=1,b=x)`.
    """

    name: str
    arguments: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        """Return `name(a=1,b=x)`."""
        return f"{self.name}({','.join(f'{name}={value}' for name, value in self.arguments)})"

    def parts(self) -> set[str]:
        """Return the set of its name and of each argument with its value: `name.a=1`."""
        return {self.name} | {f"{self.name}.{name}={value}" for name, value in self.arguments}


def calls_of_message(message: Mapping[str, Any]) -> list[CanonicalCall]:
    """Return the calls of an assistant's message in OpenAI's form, sorted; [] without any.

    Entries of unknown form are skipped.
    """
    found = []
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        own = call.get("function") or call.get("custom") if isinstance(call, Mapping) else None
        if isinstance(own, Mapping):
            found.append(_call(own.get("name"), own.get("arguments", own.get("input"))))
    legacy = message.get("function_call")
    if isinstance(legacy, Mapping):
        found.append(_call(legacy.get("name"), legacy.get("arguments")))
    return sorted(found)


def calls_in_text(text: str) -> list[CanonicalCall] | None:
    """Return the sorted calls of a reply that consists of calls, or None for another text.

    The forms are `[name(a=1)]`, `name(a=1)` and `[{"name": "f", "arguments": {..}}]`, in a
    fence or not.
    """
    bare = _plain_text(text).removeprefix("```json").removeprefix("```python").strip("`\n ")
    if bare.startswith(("[{", "{")):
        return _calls_of_json(bare)
    if bare.startswith("[") or re.match(r"^[\w.]+\(", bare):
        return _calls_of_python(bare)
    return None


def offers_functions(question: str) -> bool:
    """Return whether a question describes functions to call, in JSON with `"parameters"`."""
    return '"parameters"' in question and _FUNCTION.search(question) is not None


def is_like_a_call(text: str) -> bool:
    """Return whether a reply may be a call in an unreadable form, such as `f(a=`."""
    return _LIKE_A_CALL.search(_plain_text(text)) is not None


def _plain_text(text: str) -> str:
    r"""Return the text, stripped, without Markdown's backslashes in names: `find\_nearest`."""
    return text.replace("\\_", "_").strip()


def _calls_of_json(text: str) -> list[CanonicalCall] | None:
    """Return the sorted calls that a text writes as JSON; None if it has another content.

    A call is `{"name": .., "arguments": ..}` or `{"f": {..}}`.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    calls = []
    for entry in found if isinstance(found, list) else [found]:
        if not isinstance(entry, dict) or not entry:
            return None
        if "name" in entry and ({"arguments", "parameters"} & set(entry)):
            calls.append(_call(entry["name"], entry.get("arguments", entry.get("parameters"))))
        elif len(entry) == 1 and all(_are_arguments(each) for each in entry.values()):
            calls.append(_call(*next(iter(entry.items()))))
        else:
            return None
    return sorted(calls) or None


def _are_arguments(value: Any) -> bool:
    """Return whether a value is a dict, or the JSON text of one."""
    return isinstance(value, dict) or (isinstance(value, str) and value.lstrip().startswith("{"))


def _calls_of_python(text: str) -> list[CanonicalCall] | None:
    """Return the sorted calls that a text writes as Python; None if it is something else.

    Arguments must be literals. Positional ones are named `0`, `1` ..; a single dict is taken
    for the named arguments.
    """
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    calls = []
    for node in tree.elts if isinstance(tree, ast.List | ast.Tuple) else [tree]:
        if not isinstance(node, ast.Call):
            return None
        try:
            arguments = {word.arg or "**": ast.literal_eval(word.value) for word in node.keywords}
            arguments |= {str(at): ast.literal_eval(value) for at, value in enumerate(node.args)}
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            return None
        is_one_mapping = list(arguments) == ["0"] and isinstance(arguments["0"], dict)
        calls.append(_call(ast.unparse(node.func), arguments["0"] if is_one_mapping else arguments))
    return sorted(calls) or None


def _call(name: Any, arguments: Any) -> CanonicalCall:
    """Return a call with its name and arguments in canonical form.

    `arguments` may be a dict, its JSON text, or anything else, which becomes the argument "".
    """
    decoded = arguments
    if isinstance(arguments, str):
        try:
            decoded = json.loads(arguments)
        except (ValueError, RecursionError):
            decoded = arguments
    if not isinstance(decoded, Mapping):
        decoded = {"": decoded}
    own = sorted((str(key), _canonical(value, 1)) for key, value in decoded.items())
    return CanonicalCall(re.sub(r"\W+", "_", str(name)).strip("_").lower(), tuple(own))


def _canonical(value: Any, depth: int) -> str:
    """Return a value as text that is equal for equal values, whatever their order and spelling.

    `depth` counts nested values; beyond 12 the text is `...`.
    """
    if depth > MAX_DEPTH:
        return "..."
    if isinstance(value, Mapping):
        own = sorted((str(key), _canonical(each, depth + 1)) for key, each in value.items())
        return ",".join(f"{key}={each}" for key, each in own)
    if isinstance(value, list | tuple | set):
        return "[" + ",".join(_canonical(each, depth + 1) for each in value) + "]"
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, int | float):
        return f"{value:.10g}" if abs(value) < 1e300 else str(value)
    text = str(value).strip().lower()
    number = number_of(text) if len(text) <= 40 else None
    return f"{number:.10g}" if number is not None else " ".join(_WORD.findall(text))
