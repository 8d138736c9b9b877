"""The keys, types and choices that a prompt asks of a JSON reply."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from calibrator.evidence.computed.word_lists import word_set

MAX_KEYS: Final = 60
_OPTIONAL: Final = re.compile(
    r"\b(?:leave out|omit|optional|if (?:it is |they are )?(?:stated|present|available|known|any"
    r"|given|mentioned|possible|applicable)|that (?:the user|it|he|she|they|are|is|were|was)? ?"
    r"(?:has |have )?(?:stated|mentioned|given|present)|where (?:stated|available|present)|only "
    r"(?:the )?(?:fields|keys|slots) that|when (?:available|present)|skip)\b",
    re.IGNORECASE,
)
_STRICT: Final = re.compile(
    r"\b(?:exactly|only|just|no other|no additional|no extra|nothing else"
    r"|strictly)\b[^.\n]{0,40}\b(?:keys?|fields?|propert(?:y|ies)|attributes?)\b"
    r"|\b(?:keys?|fields?|properties)\b[^.\n]{0,60}\b(?:only|exactly|and no others?|and nothing"
    r" else|no others?|no (?:other|extra|additional) (?:keys?|fields?))\b",
    re.IGNORECASE,
)
_LISTED: Final = re.compile(
    r"\b(?:keys?|fields?|propert(?:y|ies)|attributes?|schlüsseln?|felder[n]?|claves?|campos?|clés?"
    r"|champs)\b"
    r"(?:\s+(?:should be|must be|are|is|named|called|as follows|namely|exactly|following|only"
    r"|these|below|to extract|to return|required|in this order|\(in this order\)))*\s*:?\s*"
    r"(?P<k>[`\"'“*]?[A-Za-z_][\w]*(?:[ -][a-z]\w*)?[^.;\n{}?]{0,800})",
    re.IGNORECASE,
)
_WITH: Final = re.compile(
    r"\bjson(?: object| array| list| format| output)?(?:,)?\s+(?:with|containing|that (?:has"
    r"|contains|includes)|having|including|of|mit|con|avec)\s+(?!the (?:following|same)|keys?\b"
    r"|fields?\b|an? |all |this|no |only|markdown)(?:the )?(?P<k>[`\"'“]?[A-Za-z_]\w*[`\"'”]?"
    r"(?:\s*(?:\([^)\n]{0,80}\))?\s*(?:,|\band\b|\bund\b|\by\b"
    r"|\bet\b)+\s*[`\"'“]?[A-Za-z_]\w*[`\"'”]?(?:\s*\([^)\n]{0,80}\))?){1,20})",
    re.IGNORECASE,
)
_BULLETS: Final = re.compile(
    r"^[ \t]*[-*•][ \t]*[`\"'*]*(?P<k>[A-Za-z_]\w*)[`\"'*]*[ \t]*"
    r"(?P<rest>[:(–—-][^\n]*)?$",
    re.MULTILINE,
)
_TYPES: Final = {
    "string": "string", "str": "string", "text": "string", "number": "number", "numeric": "number",
    "integer": "integer", "int": "integer", "float": "number", "double": "number",
    "decimal": "number",
    "boolean": "boolean", "bool": "boolean", "true/false": "boolean", "true or false": "boolean",
    "array": "array", "list": "array", "object": "object", "dict": "object", "zahl": "number",
    "ganzzahl": "integer", "número": "number", "entero": "integer", "nombre entier": "integer",
}  # fmt: skip
_TYPE_WORDS: Final = "|".join(sorted(map(re.escape, _TYPES), key=len, reverse=True))
_SINGLE: Final = re.compile(
    r"\bjson\b[^.\n]{0,40}?\b(?:with|key|field)\s+[`\"'“](?P<k>\w+)[`\"'”]\s+(?:as|is|being) "
    r"(?:an? )?"
    rf"(?P<t>{_TYPE_WORDS})\b",
    re.IGNORECASE,
)
_NAMES: Final = {
    "string": "a string",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
}
_STOP: Final = word_set(
    "every all any other each a an the of and or as in is are be"
    " with for to each from following these that which should must json object array keys key"
    " fields field values value if not null no only it e.g example"
)


def plain_key(key: str) -> str:
    """Return a key without case and separators: `Phone number` and `phone_number` are the same."""
    return re.sub(r"[\W_]+", "", key.casefold())


@dataclass(slots=True)
class Shape:
    """What a prompt asks of a JSON reply; every part may be empty."""

    keys: dict[str, str] = field(default_factory=dict)  # plain key to key as it is written
    types: dict[str, str] = field(default_factory=dict)
    choices: dict[str, tuple[str, ...]] = field(default_factory=dict)
    iso_dates: set[str] = field(default_factory=set)
    schema: Mapping[str, Any] | None = None
    is_optional: bool = False
    is_strict: bool = False
    is_literal: bool = False  # the keys are to be written as they are
    is_list: bool | None = None

    def fault(self, value: Any) -> str | None:
        """Return how a value differs from the shape, or None."""
        if self.schema is not None:
            return _schema_fault(value, self.schema)
        if self.is_list is True and not isinstance(value, list) and not _one_list(value):
            return "the reply is no JSON array"
        if self.is_list is False and not isinstance(value, dict):
            return "the reply is no JSON object"
        items = value if isinstance(value, list) else [value]
        for item in items[:200]:
            if isinstance(item, Mapping):
                fault = self._object_fault(item)
                if fault:
                    return fault
        return None

    def _object_fault(self, item: Mapping[str, Any]) -> str | None:
        found = {plain_key(key): key for key in _all_keys(item)}
        own = {plain_key(key) for key in item}
        if self.keys and not self.is_optional:
            for plain, key in self.keys.items():
                if plain in found and (
                    not self.is_literal or found[plain] == key or plain not in own
                ):
                    continue
                if plain in found:
                    return f'the key "{key}" is written "{found[plain]}"'
                if self.is_literal or not any(plain in other or other in plain for other in found):
                    return f'the key "{key}" is missing'
        if len(self.keys) > 1 and self.is_strict and not self.is_optional:
            extra = [key for key in item if plain_key(key) not in self.keys]
            if extra:
                return f'the key "{extra[0][:40]}" was not asked for'
        for key, value in item.items():
            fault = self._value_fault(plain_key(key), key, value)
            if fault:
                return fault
        return None

    def _value_fault(self, plain: str, key: str, value: Any) -> str | None:
        wanted = self.types.get(plain)
        if wanted and value is not None and not is_of_type(value, wanted):
            return f'"{key}" is not {_NAMES[wanted]}'
        choices = self.choices.get(plain)
        if choices and isinstance(value, str) and value and value.casefold() not in choices:
            return f'"{key}" is "{value[:40]}", which is not one of {", ".join(choices[:8])}'
        if (
            plain in self.iso_dates
            and isinstance(value, str)
            and value
            and not re.match(r"^\d{4}-\d{2}-\d{2}(?:$|T)", value)
            and re.search(r"\d", value)
        ):
            return f'"{key}" is not written YYYY-MM-DD'
        return None


def _one_list(value: Any) -> bool:
    """Return whether an object only wraps a list."""
    return (
        isinstance(value, Mapping)
        and len(value) == 1
        and isinstance(next(iter(value.values())), list)
    )


def _all_keys(item: Mapping[str, Any], depth: int = 0) -> list[str]:
    keys: list[str] = []
    for key, value in item.items():
        keys.append(key)
        if isinstance(value, Mapping) and depth < 4:
            keys += _all_keys(value, depth + 1)
    return keys[:500]


def is_of_type(value: Any, wanted: str) -> bool:
    """Return whether a value has a type of JSON Schema."""
    if wanted == "string":
        return isinstance(value, str)
    if wanted == "boolean":
        return isinstance(value, bool)
    if wanted == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    if wanted == "integer":
        return (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and float(value).is_integer()
        )
    if wanted == "array":
        return isinstance(value, list)
    return isinstance(value, Mapping) if wanted == "object" else True


def _schema_fault(
    value: Any, schema: Mapping[str, Any], path: str = "", depth: int = 0
) -> str | None:
    """Return how a value breaks the usual parts of a JSON schema, or None."""
    if depth > 12 or not isinstance(schema, Mapping):
        return None
    name = f'"{path}"' if path else "the reply"
    kinds = schema.get("type")
    allowed = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
    if allowed and not any(
        (kind == "null" and value is None) or (kind in _NAMES and is_of_type(value, kind))
        for kind in allowed
    ):
        return f"{name} is not {_NAMES.get(str(allowed[0]), str(allowed[0]))}"
    choices = schema.get("enum")
    if isinstance(choices, list) and value not in choices:
        return f"{name} is not one of {', '.join(map(str, choices[:8]))}"
    if isinstance(value, Mapping):
        return _object_schema_fault(value, schema, depth)
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        for item in value[:200]:
            fault = _schema_fault(item, schema["items"], path, depth + 1)
            if fault:
                return fault
    if isinstance(value, int | float) and not isinstance(value, bool):
        low, high = schema.get("minimum"), schema.get("maximum")
        if (isinstance(low, int | float) and value < low) or (
            isinstance(high, int | float) and value > high
        ):
            return f"{name} is out of range"
    return None


def _object_schema_fault(
    value: Mapping[str, Any], schema: Mapping[str, Any], depth: int
) -> str | None:
    properties = schema.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    required = schema.get("required")
    for key in required if isinstance(required, list) else ():
        if key not in value:
            return f'the key "{key}" is missing'
    if schema.get("additionalProperties") is False:
        for key in value:
            if key not in properties:
                return f'the key "{key[:40]}" was not asked for'
    for key, part in properties.items():
        if key in value:
            fault = _schema_fault(value[key], part, str(key), depth + 1)
            if fault:
                return fault
    return None


def read_shape(wish: str) -> Shape:
    """Read the keys, types and choices of a prompt, from prose, bullets, a template or a schema."""
    shape = Shape(is_optional=bool(_OPTIONAL.search(wish)), is_strict=bool(_STRICT.search(wish)))
    if re.search(
        r"\bjson array\b|\bjson list\b|\barray of (?:json )?objects\b"
        r"|\blist of (?:json )?objects\b",
        wish,
        re.IGNORECASE,
    ):
        shape.is_list = True
    elif re.search(
        r"\b(?:an?|one|single|this|following|valid|the) json object\b", wish, re.IGNORECASE
    ) and not re.search(r"json objects\b|\barray\b", wish, re.IGNORECASE):
        shape.is_list = False
    if _read_template(wish, shape):
        return shape
    listed = _WITH.search(wish) or next(
        (found for found in _LISTED.finditer(wish) if _keys_of(found["k"])), None
    )
    if listed:
        for key, rest in _keys_of(listed["k"]):
            shape.keys.setdefault(plain_key(key), key)
            _read_remark(key, rest, shape)
        shape.is_literal = listed.re is _LISTED and all(
            re.fullmatch(r"\w+", key) for key in shape.keys.values()
        )
    if not listed and re.search(r"\b(?:fields?|keys?|properties|schema)\b", wish, re.IGNORECASE):
        for found in list(_BULLETS.finditer(wish))[:MAX_KEYS]:
            shape.keys.setdefault(plain_key(found["k"]), found["k"])
            _read_remark(found["k"], found["rest"] or "", shape)
        if len(shape.keys) < 2:
            shape.keys.clear()
    single = _SINGLE.search(wish)
    if single and not shape.keys:
        shape.keys[plain_key(single["k"])] = single["k"]
        shape.types[plain_key(single["k"])] = _TYPES[single["t"].casefold()]
    for key in list(shape.keys.values()):
        _read_later(key, wish, shape)
    return shape


def _keys_of(text: str) -> list[tuple[str, str]]:
    """Return the keys of an enumeration with the remark on each, or none if it is prose."""
    pieces = re.split(r",(?![^()]*\))|;|\s+(?:and|und|y|et|&)\s+(?![^()]*\))", text)
    keys: list[tuple[str, str]] = []
    for piece in pieces[:MAX_KEYS]:
        piece = re.sub(r"^\s*(?:and|und|y|et|the|a|an)\s+", "", piece.strip(), flags=re.IGNORECASE)
        found = re.match(r"[`\"'“”*]*(?P<k>[A-Za-z_]\w*)[`\"'“”*]*\s*(?P<r>.*)$", piece, re.DOTALL)
        if not found or found["k"].casefold() in _STOP:
            break
        rest = found["r"].strip()
        if rest.startswith(":") and not re.match(
            rf":\s*(?:an? )?(?:{_TYPE_WORDS}|one of|either|[\"'`\w-]+\s*["
            r"|/])",
            rest,
            re.IGNORECASE,
        ):
            keys.append((found["k"], ""))
            break
        if rest and not re.match(r"[(:\[]|as\b|is\b|must\b|should\b|one of\b|either\b|in\b", rest):
            if (
                re.match(
                    r"(?:from|for|of|with|where|so|that|only|using|if|based|to|on"
                    r"|about)\b",
                    rest,
                )
                or len(rest.split()) > 1
            ):
                if len(rest.split()) == 1 or re.match(
                    r"(?:from|for|of|where|so|that|only|using|if|based|to|on"
                    r"|about)\b",
                    rest,
                ):
                    keys.append((found["k"], ""))
                break
            keys.append((f"{found['k']} {rest}".strip("`\"' "), ""))
            continue
        keys.append((found["k"], rest))
    return keys if len(keys) > 1 or (keys and text.strip()[:1] in "`\"'") else []


def _read_remark(key: str, rest: str, shape: Shape) -> None:
    """Read the type or the choices in a remark on a key, such as `(integer)`."""
    plain = plain_key(key)
    found = re.match(
        rf"\W{{0,3}}\s*(?:as |is |must be |should be |of type )?(?:an?"
        rf" )?(?P<t>{_TYPE_WORDS})\b(?! of (?:the|a)\b)",
        rest,
        re.IGNORECASE,
    )
    if found and not re.search(
        r"\bor\b|\||/(?!false)", rest[: found.end() + 12].replace("true or false", "")
    ):
        shape.types.setdefault(plain, _TYPES[found["t"].casefold()])
    if re.search(r"YYYY-MM-DD|\bISO\b", rest):
        shape.iso_dates.add(plain)
    choices = choices_of(rest)
    if choices:
        shape.choices.setdefault(plain, choices)


_CHOICES: Final = re.compile(
    r"\b(?:one of|either|exactly one of|any of|allowed(?: values)?|options?)\b\s*(?:the"
    r" following)?\s*:?\s*"
    r"(?P<l>[^).;\n{}]{3,300})",
    re.IGNORECASE,
)


def choices_of(text: str) -> tuple[str, ...]:
    """Return the choices that a remark lists, in lower case; empty if it lists none.

    They follow `one of`, are separated by bars or slashes, or stand in quotation marks.
    """
    text = text[:400]
    found = _CHOICES.search(text)
    if found:
        parts = re.split(r"\s*(?:,|\||/|\bor\b|\band\b)\s*", found["l"])
    else:
        inner = re.split(r"[)\]}\n;]", text.strip(" :(="), maxsplit=1)[0]
        quoted = re.findall(r"[`\"'“]([\w -]{1,30})[`\"'”]", inner)
        if "|" in inner or re.search(r"\w\s?/\s?\w", inner):
            parts = re.split(r"\s*[|/]\s*", inner.strip(" ,.\"'`"))
        elif len(quoted) > 1 and not re.sub(r"[`\"'“”,\s]|\bor\b|[\w -]", "", inner):
            parts = quoted
        else:
            return ()
    cleaned = [part.strip(" `\"'“”()[]:*.,").casefold() for part in parts]
    cleaned = [part for part in cleaned if part]
    if len(cleaned) < 2 or any(len(part.split()) > 3 for part in cleaned):
        return ()
    if set(cleaned) & {*_TYPES, "null", "dd", "mm", "yyyy", "none"}:
        return ()
    return tuple(cleaned)


def _read_later(key: str, wish: str, shape: Shape) -> None:
    """Read what a prompt says of a key elsewhere, such as `status must be one of open, closed`."""
    plain = plain_key(key)
    quoted = re.escape(key)
    found = re.search(
        rf"(?<!\w)[`\"']?{quoted}[`\"']?\s*(?:must be|should be|is|has"
        rf" to be|as|:|=|\()\s*(?P<r>[^\n]{{1,200}})",
        wish,
    )
    if found and plain not in shape.types and plain not in shape.choices:
        sentence = re.split(r"\.\s|;", found["r"])[0]
        if plain not in shape.choices and re.match(
            r"(?:one of|either|exactly one of)\b", sentence, re.IGNORECASE
        ):
            choices = choices_of(sentence)
            if choices:
                shape.choices[plain] = choices
        typed = re.match(rf"(?:an? )?(?P<t>{_TYPE_WORDS})\b", sentence, re.IGNORECASE)
        if typed and not re.match(r"\s*(?:or|\||/)", sentence[typed.end() :]):
            shape.types[plain] = _TYPES[typed["t"].casefold()]
        if re.match(r"\(?(?:in )?(?:the )?(?:format )?(?:YYYY-MM-DD|ISO)", sentence):
            shape.iso_dates.add(plain)


def _read_template(wish: str, shape: Shape) -> bool:
    """Read a template or a JSON schema in braces; False if the prompt has none."""
    start = wish.find("{")
    while start >= 0:
        end = _closing(wish, start)
        if end is None:
            return False
        block = wish[start : end + 1]
        keys = re.findall(r"[\"'“]([A-Za-z_][\w -]{0,40})[\"'”]\s*:", block)
        before = wish[max(0, start - 160) : start].casefold()
        if keys and '"properties"' in block:
            try:
                schema = json.loads(block)
            except ValueError:
                schema = None
            if isinstance(schema, Mapping):
                inner = (
                    schema.get("schema") if isinstance(schema.get("schema"), Mapping) else schema
                )
                shape.schema = inner
                return True
        if keys and _is_template(block, before):
            _read_block(block, shape)
            return True
        start = wish.find("{", end + 1)
    return False


def _closing(text: str, start: int) -> int | None:
    depth = 0
    for at in range(start, min(len(text), start + 6000)):
        if text[at] == "{":
            depth += 1
        elif text[at] == "}":
            depth -= 1
            if depth == 0:
                return at
    return None


def _is_template(block: str, before: str) -> bool:
    """Return whether a block in braces shows the wanted form, and is not the data."""
    if re.search(
        r"\.\.\.|…|<[\w |/-]+>|:\s*(?:string|number|int(?:eger)?|float"
        r"|bool(?:ean)?|str)\b|:\s*[\"'](?:string|number|int(?:eger)?|float|bool(?:ean)?|str"
        r"|\.\.\.|)[\"']|\"\s*\|\s*\"|:\s*\"[\w ]+(?:\|[\w ]+)+\"",
        block,
    ):
        return True
    return bool(
        re.search(
            r"\b(?:format|schema|structure|shape|template|form|looks? like"
            r"|like this|of the form|exactly as)\b",
            before[-120:],
        )
    )


def _read_block(block: str, shape: Shape) -> None:
    """Read the keys of a template with the type or the choices that follow each."""
    depth = 0
    for found in re.finditer(
        r"[\"'“](?P<k>[A-Za-z_][\w -]{0,40})[\"'”]\s*:\s*"
        r"(?P<v>[^,\n}]{0,120})|[{}]",
        block,
    ):
        if found[0] in "{}":
            depth += 1 if found[0] == "{" else -1
            continue
        depth_here = depth
        if found["v"].lstrip().startswith("{"):
            depth += found["v"].count("{")
        if found["v"].count("["):
            depth += found["v"].count("{") if not found["v"].lstrip().startswith("{") else 0
        if depth_here > 1:
            continue
        key, value = found["k"], found["v"].strip()
        plain = plain_key(key)
        shape.keys.setdefault(plain, key)
        shape.is_literal = True
        bare = value.strip("\"'<>` ")
        typed = re.match(
            rf"^(?:an? )?(?P<t>{_TYPE_WORDS})(?:\b|$)(?!\s*(?:or|\||/))", bare, re.IGNORECASE
        )
        if typed:
            shape.types[plain] = _TYPES[typed["t"].casefold()]
        elif "|" in value and ":" not in bare:
            choices = choices_of(value + "\n")
            if choices and not re.search(r"\.\.\.|…", value):
                shape.choices[plain] = choices
        elif value.startswith("["):
            shape.types[plain] = "array"
        if re.search(r"YYYY-MM-DD", value):
            shape.iso_dates.add(plain)
