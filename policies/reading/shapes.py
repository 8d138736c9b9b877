"""The shapes of values in a document: each is declared once and gives reader and JSON Schema.

    NOTICE = mapping(make(Deliver), {"notice": TEXT})
    NOTICE.read(node)        # Deliver(notice="..."); problems are reported at the node
    NOTICE.schema            # {"type": "object", "properties": {"notice": ..}, ..}

The schema follows the reader as far as a schema can: every document that the reader accepts is
valid. The reader also refuses contradictions, unreachable rules and repeated names.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar

from policies.reading.reading import Node, abbreviate, either, suggestion

Schema: TypeAlias = dict[str, Any]
Read = TypeVar("Read", covariant=True)
Other = TypeVar("Other")

DURATION: Final = re.compile(r"(?P<count>[0-9]{1,9})(?P<unit>[smhd])")
_UNITS_S: Final[Mapping[str, float]] = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


@dataclass(frozen=True, slots=True)
class Shape(Generic[Read]):
    """The values that a place in a document may hold.

    `read` returns what the node's value means. It reports anything else and returns a stand-in.
    """

    read: Callable[[Node], Read]
    schema: Schema


def _text(node: Node) -> str:
    """Return the node's text; report blank text or another type and return ""."""
    if isinstance(node.value, str) and node.value.strip():
        return node.value
    node.report(f"{node} must be text, not {abbreviate(node.value)}")
    return ""


def _texts(node: Node) -> tuple[str, ...]:
    """Read one text, or a list of texts, as a tuple; report an empty list and what is no text."""
    return several(node, _text)


def several(node: Node, read: Callable[[Node], Other]) -> tuple[Other, ...]:
    """Read one value, or each item of a list, by `read`; return a tuple. Report an empty list."""
    if not isinstance(node.value, list):
        return (read(node),)
    if not node.value:
        node.report(f"{node} is empty, so it could never hold")
    return tuple(map(read, node.items()))


def _model(node: Node) -> str:
    """Read a model's name; report anything but text and return "".

    Also add it to the node's `models` with the problem to report where no route serves the name.
    """
    if name := _text(node):
        message = f"{node} names {name!r}, a model that no route of the configuration serves"
        node.models.append((name, node.problem(message)))
    return name


def _flag(node: Node) -> bool:
    """Return whether the value is true; report anything but true or false and return False."""
    if not isinstance(node.value, bool):
        node.report(f"{node} must be true or false, not {abbreviate(node.value)}")
    return node.value is True


def one_or_list(schema: Schema) -> Schema:
    """Return the JSON Schema of one value of a schema, or a list of at least one such value."""
    return {"anyOf": [schema, {"type": "array", "items": schema, "minItems": 1}]}


TEXT: Final = Shape(_text, {"type": "string", "pattern": r"\S"})
"""Text that is not blank."""
TEXTS: Final = Shape(_texts, one_or_list(TEXT.schema))
"""One text or a list of them, read as a tuple."""
TEXT_SET: Final = Shape(lambda node: frozenset(_texts(node)), TEXTS.schema)
MODEL: Final = Shape(_model, TEXT.schema)
"""The name of a model to ask."""
MODELS: Final = Shape(lambda node: several(node, _model), TEXTS.schema)
FLAG: Final = Shape(_flag, {"type": "boolean"})


def number(low: float = -math.inf, high: float = math.inf) -> Shape[float]:
    """Return the shape of a number from `low` to `high`, both included, read as a float.

    Anything else, booleans included, is reported and read as 0.0.
    """
    finite = {"minimum": low, "maximum": high}
    bounds = {name: bound for name, bound in finite.items() if math.isfinite(bound)}
    scope = f" from {low:g}" if "minimum" in bounds else ""
    scope += f" to {high:g}" if "maximum" in bounds else ""

    def read(node: Node) -> float:
        """Return the number as a float; report anything else and return 0.0."""
        value = node.value
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and low <= value <= high:  # type: ignore[operator]  # a number, as just checked
            return float(value)  # type: ignore[arg-type]
        node.report(f"{node} must be a number{scope}, not {abbreviate(value)}")
        return 0.0

    return Shape(read, {"type": "number", **bounds})


def whole(low: int, high: int = sys.maxsize - 1) -> Shape[int]:
    """Return the shape of a whole number from `low` to `high`, both included.

    By default `high` is as high as possible. Anything else is reported and read as `low`.
    """
    is_bounded = high < sys.maxsize - 1
    scope = f"from {low} to {high}" if is_bounded else f"from {low}"

    def read(node: Node) -> int:
        """Return the whole number; report anything else and return `low`."""
        value = node.value
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        node.report(f"{node} must be a whole number {scope}, not {abbreviate(value)}")
        return low

    bounds = {"minimum": low, "maximum": high} if is_bounded else {"minimum": low}
    return Shape(read, {"type": "integer", **bounds})


def word(valid: Sequence[str]) -> Shape[Any]:
    """Return the shape of a text that is one of the `valid` words.

    Anything else is reported, with the nearest word, and read as the first of them.
    """

    def read(node: Node) -> str:
        """Return the word; report anything else, with the nearest word, and return the first."""
        if isinstance(node.value, str) and node.value in valid:
            return node.value
        hint = suggestion(node.value, valid) if isinstance(node.value, str) else ""
        node.report(f"{node} must be {either(valid)}, not {abbreviate(node.value)}{hint}")
        return valid[0]

    return Shape(read, {"enum": list(valid)})


def words(valid: Sequence[str]) -> Shape[frozenset[str]]:
    """Return the shape of one of the `valid` words, or a list of them, read as a set."""
    one = word(valid)
    return Shape(lambda node: frozenset(several(node, one.read)), one_or_list(one.schema))


def duration_s(text: str) -> float | None:
    """Return the seconds of `30s`, `30m`, `2h` or `7d`, or None for any other text."""
    match = DURATION.fullmatch(text)
    return int(match["count"]) * _UNITS_S[match["unit"]] if match else None


def duration(longest: str) -> Shape[float]:
    """Return the shape of a duration such as `30m`, read in seconds, up to `longest` (`7d`).

    Zero, a longer duration and anything else are reported.
    """
    longest_s = duration_s(longest) or 0.0

    def read(node: Node) -> float:
        """Return the seconds, also of a time that is too long, which is reported.

        Zero and anything else are reported and give 1.0.
        """
        seconds = duration_s(node.value) if isinstance(node.value, str) else None
        text = abbreviate(node.value)
        if seconds is None:
            node.report(f"{node} must be a duration such as 30s, 30m, 2h or 7d, not {text}")
        elif not 0 < seconds <= longest_s:
            node.report(f"{node} must be more than 0s and at most {longest}, not {node.value}")
        return seconds or 1.0

    pattern = re.sub(r"\?P<\w+>", "", DURATION.pattern)
    return Shape(read, {"type": "string", "pattern": f"^{pattern}$"})


def make(kind: Callable[..., Other]) -> Callable[..., Other]:
    """Return a builder for `mapping` that calls `kind` with the keys' values, without the node."""
    return lambda node, **values: kind(**values)


def nullable(schema: Schema) -> Schema:
    """Return a schema that also allows null, as no value (`when:`) is an empty mapping or list."""
    return {"anyOf": [{"type": "null"}, schema]}


def mapping(
    build: Callable[..., Other],
    keys: Mapping[str, Shape[Any]],
    *,
    required: Collection[str] = (),
    example: str = "",
    needs: Collection[str] = (),
    alone: Collection[str] = (),
    null_is_absent: bool = False,
) -> Shape[Other]:
    """Return the shape of a mapping with these keys, read as `build(node, **values)`.

    The values are those of the keys that the mapping has, and of all `required` ones, each read by
    its shape. Unknown and missing keys are reported; `example` is the end of the sentence about a
    missing one ("a model, as in .."). At least one of `needs` has to be there, and none beside a
    key of `alone`. What `build` reports has no effect where a value is already reported. No value
    counts as an empty mapping, and with `null_is_absent` a key without a value as absent.
    """

    def read(node: Node) -> Other:
        """Check the keys, read their values and return what `build` makes of them.

        Report problems.
        """
        before = len(node.problems)
        present = _check_keys(node, keys)
        if null_is_absent:
            present = {key for key in present if node[key].value is not None}
        is_mapping = node.value is None or isinstance(node.value, dict)
        missing = [key for key in required if key not in present]
        if missing and example and is_mapping:
            node.report(f"{node} needs {example}")
        for key in missing if is_mapping and not example else ():
            node.report(f"missing key {key!r} in {node}")
        if needs and present.isdisjoint(needs) and len(node.problems) == before:
            node.report(f"{node} needs {either(needs)}")
        for key in [key for key in alone if key in present and len(present) > 1][:1]:
            others = " and ".join(other for other in keys if other in present and other != key)
            node[key].report(f"{node[key]} stands alone, without {others}")
        values = {key: shape.read(node[key]) for key, shape in keys.items() if key in present}
        values |= {key: keys[key].read(node[key].without_problems()) for key in missing}
        return build(node if len(node.problems) == before else node.without_problems(), **values)

    schema: Schema = {
        "type": "object",
        "properties": {key: shape.schema for key, shape in keys.items()},
        "additionalProperties": False,
    }
    if required:
        schema["required"] = list(required)
    if alone:
        schema["dependentSchemas"] = {key: {"maxProperties": 1} for key in alone}
    if set(needs) == set(keys):
        schema["minProperties"] = 1
    elif needs:
        schema["anyOf"] = [{"required": [key]} for key in needs]
    return Shape(read, schema if required or needs else nullable(schema))


def _check_keys(node: Node, keys: Collection[str]) -> set[str]:
    """Return those of a mapping's keys that are in `keys`; report each other one.

    No value has no keys; report any other value that is no mapping.
    """
    all_keys = f"; valid keys: {', '.join(keys)}"
    found = {} if node.value is None else node.value
    if not isinstance(found, dict):
        node.report(f"{node} must be a mapping, not {abbreviate(found)}{all_keys}")
        return set()
    for key in found:
        if key not in keys:
            hint = suggestion(key, keys) or all_keys
            node[key].report(f"unknown key {key!r} in {node}{hint}")
    return set(found).intersection(keys)


def by_name(shape: Shape[Other], least: int = 0) -> Shape[dict[str, Other]]:
    """Return the shape of a mapping from any names to values of one shape, read as a dict.

    Fewer than `least` entries are reported, and so is anything but a mapping, which is read as {}.
    """

    def read(node: Node) -> dict[str, Other]:
        """Return the values by name; report too few, or what is no mapping."""
        members = node.value if isinstance(node.value, dict) else {}
        if not isinstance(node.value, dict):
            node.report(f"{node} must be a mapping, not {abbreviate(node.value)}")
        elif len(members) < least:
            node.report(f"{node} is empty, so it could never hold")
        return {name: shape.read(node[name]) for name in members}

    schema = {"type": "object", "additionalProperties": shape.schema}
    return Shape(read, schema | ({"minProperties": least} if least else {}))


def or_mapping(plain: Shape[Other], whole: Shape[Other]) -> Shape[Other]:
    """Return the shape of either a mapping, which `whole` reads, or another value (`plain`)."""

    def read(node: Node) -> Other:
        return (whole if isinstance(node.value, dict) else plain).read(node)

    return Shape(read, {"anyOf": [plain.schema, whole.schema]})
