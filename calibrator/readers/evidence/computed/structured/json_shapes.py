"""The required shape of a JSON value, and the differences of a value from it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

MAX_DEPTH: Final = 12
MAX_ITEMS: Final = 200  # items of a list or an object that are checked
_NAMES: Final = {
    "string": "a string",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_LETTERS: Final = re.compile(r"YYYY|yyyy|YY|MM|DD|dd|HH|hh|mm|SS|ss|[^\w\s]|[TZ ]")
_FORMS: Final = {"date": "YYYY-MM-DD", "date-time": "YYYY-MM-DDTHH:MM", "time": "HH:MM"}
# A pattern without repeated groups and without references is matched in bounded time.
_SAFE_PATTERN: Final = re.compile(r"(?:[^()|*+\\]|\\[dDwWsS.\-/+()\[\]]|[*+](?![*+?])){1,100}")
_MAX_REPEATS: Final = 3
_MAX_MATCHED: Final = 64  # characters of a string that is matched with a pattern


def plain_key(key: str) -> str:
    """Return a key in lower case without separators: `phonenumber` for `Phone number`."""
    return re.sub(r"[\W_]+", "", key.casefold())


@dataclass(slots=True)
class JsonShape:
    """The required shape of a value; a part that is empty or None allows anything.

    `kinds` are types of JSON Schema, `choices` are in lower case, `form` is a date or time such as
    `YYYY-MM-DD`. `others` is the shape of values whose key is not in `fields`, and `names` are the
    choices for such keys. `limits` are keywords of JSON Schema such as `maxLength`.
    """

    kinds: frozenset[str] = frozenset()
    choices: tuple[str, ...] = ()
    fields: dict[str, JsonShape] = field(default_factory=dict)
    optional: set[str] = field(default_factory=set)
    others: JsonShape | None = None
    other_name: str = ""  # the placeholder of their keys
    names: tuple[str, ...] = ()
    items: JsonShape | None = None
    form: str = ""
    limits: Mapping[str, Any] = field(default_factory=dict)
    is_closed: bool = False  # no further keys
    is_literal: bool = True  # the keys must be written in this spelling
    is_prose: bool = False  # read from a sentence, which does not say how the keys are nested
    is_partial: bool = False  # there may be more keys than were read
    is_placed: bool = False  # a key elsewhere in the reply does not count
    is_schema: bool = False  # null only if the schema names it
    is_example: bool = False  # shown by an example value
    is_quote: bool = False  # must be copied word for word

    def fault(self, value: Any, prompt: str = "") -> str | None:
        """Describe how a value differs from the shape, or return None.

        `prompt` is the whole text of the prompt: a key that occurs in it is never superfluous.
        """
        reply = _Reply(keys_at_any_depth(value), frozenset(paths_of(value)), prompt)
        if self.is_prose and isinstance(value, Mapping) and "array" in self.kinds:
            inner = next(iter(value.values()), None)
            if len(value) != 1 or not isinstance(inner, list):
                return "the reply is no JSON array"
            value = inner
        if self.is_prose and isinstance(value, list) and self.fields and not self.kinds:
            return next(
                filter(None, (_fault(each, self, reply) for each in value[:MAX_ITEMS])), None
            )
        return _fault(value, self, reply)

    def shape_at(self, path: tuple[str, ...]) -> JsonShape | None:
        """Return the shape at a path of keys, through any lists; None if there is none."""
        shape: JsonShape | None = self
        for key in path:
            while shape is not None and shape.items is not None:
                shape = shape.items
            if shape is None:
                return None
            plain = plain_key(key)
            named = (part for name, part in shape.fields.items() if plain_key(name) == plain)
            shape = next(named, shape.others)
        while shape is not None and shape.items is not None:
            shape = shape.items
        return shape

    def parts(self, depth: int = 0) -> Iterator[tuple[str, JsonShape]]:
        """Yield (name, shape) of every part, nested ones included.

        List items and placeholders have "".
        """
        if depth > MAX_DEPTH:
            return
        for name, part in self.fields.items():
            yield name, part
            yield from part.parts(depth + 1)
        for inner in (self.others, self.items):
            if inner is not None:
                yield "", inner
                yield from inner.parts(depth + 1)


def is_of_kind(value: Any, kind: str) -> bool:
    """Return whether a value has a type of JSON Schema, such as `integer`.

    True for an unknown type.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return {
        "string": isinstance(value, str),
        "boolean": isinstance(value, bool),
        "number": is_number,
        "integer": is_number and float(value).is_integer(),
        "array": isinstance(value, list),
        "object": isinstance(value, Mapping),
        "null": value is None,
    }.get(kind, True)


@dataclass(frozen=True, slots=True)
class _Reply:
    """The plain keys of a whole reply at any depth, their paths, and the prompt before it."""

    keys: frozenset[str]
    paths: frozenset[str]
    prompt: str

    def names(self, key: str) -> bool:
        """Return whether the prompt has a key as a word."""
        return re.search(rf"(?<!\w){re.escape(key)}(?!\w)", self.prompt) is not None


def _fault(
    value: Any, shape: JsonShape, reply: _Reply, path: str = "", depth: int = 0
) -> str | None:
    """Describe how a value differs from its shape, or return None.

    `path` is where it is in the reply.
    """
    if depth > MAX_DEPTH or (value is None and not shape.is_schema):
        return None
    name = f'"{path}"' if path else "the reply"
    if shape.kinds and not any(is_of_kind(value, kind) for kind in shape.kinds):
        wanted = next(iter(sorted(shape.kinds - {"null"})), "null")
        if not path and wanted in ("array", "object"):
            return f"the reply is no JSON {wanted}"
        return f"{name} is not {_NAMES[wanted]}"
    if isinstance(value, Mapping):
        return _object_fault(value, shape, reply, path, depth)
    if isinstance(value, list):
        fault = _limit_fault(name, len(value), shape.limits, "Items")
        inner = shape.items or (JsonShape(choices=shape.choices) if shape.choices else None)
        if fault or inner is None:
            return fault
        found = (_fault(item, inner, reply, path, depth + 1) for item in value[:MAX_ITEMS])
        return next(filter(None, found), None)
    return _leaf_fault(value, shape, name)


def _object_fault(
    value: Mapping[str, Any], shape: JsonShape, reply: _Reply, path: str, depth: int
) -> str | None:
    """Describe how an object's keys or values differ from a shape, or return None.

    `reply` has the keys of the whole reply; a key found elsewhere in it is not missing.
    """
    own = {plain_key(key): key for key in list(value)[:MAX_ITEMS]}
    nested = frozenset() if shape.is_schema or shape.is_placed else reply.keys
    prefix = f"{path}." if path else ""
    for key, part in shape.fields.items():
        plain = plain_key(key)
        if plain in own:
            if own[plain] != key and shape.is_literal and not reply.names(own[plain]):
                return f'the key "{prefix}{key}" is written "{own[plain]}"'
            fault = _fault(value[own[plain]], part, reply, f"{prefix}{own[plain]}", depth + 1)
            if fault:
                return fault
        elif (
            key not in shape.optional
            and (plain not in nested or _plain_path(f"{prefix}{key}") in reply.paths)
            and (shape.is_literal or not any(plain in each or each in plain for each in nested))
        ):
            return f'the key "{prefix}{key}" is missing'
    known = {plain_key(key) for key in shape.fields}
    extra = [key for plain, key in own.items() if plain not in known]
    unknown = [key for key in extra if not reply.names(key)] if shape.is_closed else []
    if unknown and shape.others is None:
        return f'the key "{prefix}{unknown[0][:40]}" was not asked for'
    for key in extra:
        if shape.names and key.casefold() not in shape.names:
            return f'"{key[:40]}" is not one of {", ".join(shape.names[:8])}'
        if shape.others is not None:
            fault = _fault(value[key], shape.others, reply, f"{prefix}{key[:40]}", depth + 1)
            if fault:
                return fault
    return None


def _leaf_fault(value: Any, shape: JsonShape, name: str) -> str | None:
    """Describe how a string, number or truth value differs from a shape, or return None.

    `name` is its path in quotes, for the description.
    """
    if shape.choices and value != "" and not isinstance(value, bool):
        text = str(value).casefold()
        if text not in shape.choices and text.removesuffix(".0") not in shape.choices:
            return f"{name} is {str(value)[:40]!r}, which is not one of " + ", ".join(
                shape.choices[:8]
            )
    if isinstance(value, str):
        if shape.form and re.search(r"\d", value) and not _has_form(value, shape.form):
            return f"{name} is not written {shape.form}"
        pattern = shape.limits.get("pattern")
        if isinstance(pattern, str) and len(value) <= _MAX_MATCHED and not _fits(value, pattern):
            return f"{name} does not match {pattern}"
        return _limit_fault(name, len(value), shape.limits, "Length")
    if isinstance(value, int | float) and not isinstance(value, bool):
        low, high = shape.limits.get("minimum"), shape.limits.get("maximum")
        if (isinstance(low, int | float) and value < low) or (
            isinstance(high, int | float) and value > high
        ):
            return f"{name} is out of range"
    return None


def _limit_fault(name: str, size: int, limits: Mapping[str, Any], kind: str) -> str | None:
    """Describe how a size is outside `min..` and `max..` in `limits`, or return None.

    `kind` completes these names: `Length` or `Items`.
    """
    least, most = limits.get(f"min{kind}"), limits.get(f"max{kind}")
    if isinstance(least, int) and size < least:
        return f"{name} is shorter than {least}"
    return f"{name} is longer than {most}" if isinstance(most, int) and size > most else None


def _has_form(value: str, form: str) -> bool:
    """Return whether a date or time is written in a form such as `YYYY-MM-DD`."""
    parts = _LETTERS.findall(form)
    pattern = "".join(
        rf"\d{{{len(each)}}}" if each.isalpha() and len(each) > 1 else re.escape(each)
        for each in parts
    )
    clock = r"(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?" if re.search("[Hh]", form) else ""
    if form == _FORMS["date"]:
        clock = r"(?:[T ][\d:.]*Z?)?"
    return re.fullmatch(pattern + clock, value.strip()) is not None


def _fits(value: str, pattern: str) -> bool:
    """Return whether a value matches a pattern of JSON Schema.

    True also for patterns that are invalid or may be slow.
    """
    repeats = len(re.findall(r"[*+{]", pattern))
    if repeats > _MAX_REPEATS or not _SAFE_PATTERN.fullmatch(pattern):
        return True
    try:
        return re.search(pattern, value) is not None
    except re.error:
        return True


def paths_of(value: Any, path: str = "", depth: int = 0) -> Iterator[str]:
    """Yield the path of every key in a value, in plain keys: `address.street`."""
    if depth > MAX_DEPTH or not isinstance(value, Mapping | list):
        return
    parts = value.items() if isinstance(value, Mapping) else [("", part) for part in value]
    for _, (key, part) in zip(range(1000), parts, strict=False):
        inner = f"{path}.{plain_key(str(key))}".lstrip(".") if key else path
        if key:
            yield inner
        yield from paths_of(part, inner, depth + 1)


def _plain_path(path: str) -> str:
    """Return a path such as `Address.Street name` in plain keys."""
    return ".".join(map(plain_key, path.split(".")))


def keys_at_any_depth(value: Any) -> frozenset[str]:
    """Return the plain keys of all objects in a value."""
    return frozenset(path.rsplit(".", 1)[-1] for path in paths_of(value))


def shape_of_schema(schema: Any, depth: int = 0) -> JsonShape:
    """Return the shape that a JSON Schema describes; an empty one if it is no object.

    No `$ref`.
    """
    if depth > MAX_DEPTH or not isinstance(schema, Mapping):
        return JsonShape()
    kinds = schema.get("type")
    allowed = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
    choices = schema.get("enum", [schema["const"]] if "const" in schema else None)
    properties = schema.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    required = schema.get("required")
    required = set(map(str, required)) if isinstance(required, list) else set()
    others, items = schema.get("additionalProperties"), schema.get("items")
    fields = {
        str(key): shape_of_schema(part, depth + 1)
        for key, part in list(properties.items())[:MAX_ITEMS]
    }
    for key in sorted(required - fields.keys()):
        fields[key] = JsonShape()
    return JsonShape(
        kinds=frozenset(str(kind) for kind in allowed if kind in _NAMES),
        choices=tuple(str(each).casefold() for each in choices)
        if isinstance(choices, list) and not any(isinstance(each, bool) for each in choices)
        else (),
        fields=fields,
        optional=fields.keys() - required,
        others=shape_of_schema(others, depth + 1) if isinstance(others, Mapping) else None,
        items=shape_of_schema(items, depth + 1) if isinstance(items, Mapping) else None,
        form=_FORMS.get(str(schema.get("format")), ""),
        limits=schema,
        is_closed=others is False,
        is_schema=bool(allowed),
    )
