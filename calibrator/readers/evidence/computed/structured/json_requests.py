"""The JSON that a prompt asks for: its keys, types and choices, from a template or from prose."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from calibrator.readers.evidence.computed.basics.word_lists import word_set
from calibrator.readers.evidence.computed.structured.json_classes import shape_of_classes
from calibrator.readers.evidence.computed.structured.json_shapes import JsonShape, plain_key
from calibrator.readers.evidence.computed.structured.json_templates import (
    TYPE_WORDS,
    add_remark,
    choices_of,
    cleaned_choices,
    templates_in,
)

MAX_KEYS: Final = 60
MAX_LISTED: Final = 1500  # characters of an enumeration of keys
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
    r"|champs|each (?:entry|item|object|element|row|record)(?: has| with)?)\b"
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
_TYPED: Final = re.compile(
    rf"[`\"'“]?(?P<k>[A-Za-z_]\w{{0,40}})[`\"'”]? ?\((?:an? )?(?:{TYPE_WORDS}|ISO|YYYY|HH:)\b",
    re.IGNORECASE,
)
_BULLETS: Final = re.compile(
    r"^[ \t]*[-*•][ \t]*[`\"'*]*(?P<k>[A-Za-z_]\w*)[`\"'*]*[ \t]*(?P<rest>[:(–—-][^\n]*)?$",
    re.MULTILINE,
)
_TYPED_LINES: Final = re.compile(
    rf"^[ \t]*[`\"'*]*(?P<k>[A-Za-z_]\w*)[`\"'*]*\??[ \t]*"
    rf"(?P<rest>:[ \t]*(?:an? )?(?:{TYPE_WORDS})\b[^\n]*)$",
    re.MULTILINE | re.IGNORECASE,
)
_SINGLE: Final = re.compile(
    r"\bjson\b[^.\n]{0,40}?\b(?:with|key|field)\s+[`\"'“](?P<k>\w+)[`\"'”]\s+(?:as|is|being) "
    rf"(?P<t>(?:an? )?(?:{TYPE_WORDS})\b)",
    re.IGNORECASE,
)
_STOP: Final = word_set(
    "every all any other each a an the of and or as in is are be"
    " with for to each from following these that which should must json object array keys key"
    " fields field values value objects records rows numbers strings integers booleans"
    " list array number string integer boolean true false if not null no only it e.g example"
)
_PLURAL_TYPES: Final = re.compile(r"\W*(?:numbers|strings|integers|booleans)\b", re.IGNORECASE)
_LINE: Final = re.compile(
    r"^[^\w\n]{0,6}(?P<l>[^\W\d][\w -]{0,30}?)[`\"'*]*[ \t]*(?::|=)[ \t]*(?P<v>[^\n{}]{3,600})$",
    re.MULTILINE,
)
_ASKS: Final = re.compile(r"json|\{\s*[\"“'\w<]|\b(?:keys|fields)\b", re.IGNORECASE)
_GLOSS: Final = re.compile(r"\s*\([^()\n]{0,120}\)")


@dataclass(slots=True)
class JsonRequest:
    """The JSON that a prompt asks for.

    A reply must have one of `shapes`. `variants` are lists such as the slots of each intent, by the
    intent.
    """

    shapes: list[JsonShape] = field(default_factory=list)
    variants: dict[str, frozenset[str]] = field(default_factory=dict)
    is_template: bool = False
    prompt: str = ""

    def fault(self, value: Any) -> str | None:
        """Describe how a value differs from every shape, or from the list of its variant.

        Else None.
        """
        faults = [shape.fault(value, self.prompt) for shape in self.shapes]
        if faults and all(faults):
            return faults[0]
        return _variant_fault(value, self.variants) if self.variants else None

    def shape_at(self, path: tuple[str, ...]) -> JsonShape | None:
        """Return the shape of the value at a path; None if the prompt gives none."""
        return next((part for shape in self.shapes if (part := shape.shape_at(path))), None)


def split_data(rules: str, request: str) -> tuple[str, str]:
    """Return (the request for JSON with the rules, the text with the values) of a prompt.

    The request for JSON are the rules alone, or the paragraphs up to the last that asks for it.
    """
    if _ASKS.search(rules):
        return rules, request
    parts = re.split(r"\n[ \t]*\n", request)
    last = max((at for at, part in enumerate(parts) if _ASKS.search(part)), default=0)
    if last == len(parts) - 1:
        last = 0 if len(parts) > 1 and _ASKS.search(parts[0]) else last
    ask, data = "\n\n".join(parts[: last + 1]), "\n\n".join(parts[last + 1 :])
    return f"{rules}\n{ask}", data or request


def read_request(rules: str, request: str) -> JsonRequest:
    """Return the JSON that the rules and the request of a conversation ask for.

    The shapes come from templates, JSON Schemas, Python classes, or else from sentences; the only
    one may be empty.
    """
    wish = f"{rules}\n{request}"
    ask, _ = split_data(rules, request)
    found = JsonRequest(list(templates_in(wish)), prompt=wish)
    if (described := shape_of_classes(ask)) is not None:
        found.shapes = [described, JsonShape(frozenset({"array"}), items=described)]
    found.is_template = bool(found.shapes)
    is_strict = bool(_STRICT.search(wish))
    is_optional = bool(_OPTIONAL.search(ask)) or _may_omit(wish)
    if not found.shapes:
        found.shapes.append(_prose(wish))
    for shape in found.shapes:
        _free_arguments(shape)
        inner = shape.items if shape.items is not None and not shape.fields else shape
        if not inner.is_schema and not shape.is_schema:
            is_whole = is_strict and not is_optional and not shape.is_partial
            inner.is_closed |= is_whole and len(inner.fields) > 1
            if is_optional:
                inner.optional |= inner.fields.keys()
        _add_list(shape, wish)
        _add_choices(shape, ask)
    found.variants = _variants(ask)
    return found


_NAMES_OF_CALLS: Final = word_set(
    "fn func function tool toolname action op operation command method intent name type kind"
)
_ARGUMENTS: Final = word_set("args arguments params parameters slots input inputs options payload")


def _free_arguments(shape: JsonShape) -> None:
    """Make the arguments in an example of a call optional, as other calls have others.

    The shape is changed in place.
    """
    for one in (shape, shape.items):
        if one is None or not any(plain_key(name) in _NAMES_OF_CALLS for name in one.fields):
            continue
        for name, part in one.fields.items():
            if plain_key(name) in _ARGUMENTS and all(p.is_example for p in part.fields.values()):
                part.optional |= part.fields.keys()


def _may_omit(wish: str) -> bool:
    """Return whether a sentence about fields says that some may be left out.

    An example is `Omit unknown keys.`.
    """
    sentences = re.split(r"\.\s|\n", wish)
    return any(
        _OPTIONAL.search(each)
        for each in sentences
        if re.search(r"\b(?:json|fields?|keys?|slots?)\b", each, re.IGNORECASE)
    )


_IS_LIST: Final = re.compile(
    r"(?<![(:=] )(?<![(:=])(?<!\bis a )(?<!\bis )(?<!\bare )"  # not the type of one key
    r"\bjson[ -](?:array|list)e?\b"
    r"|\b(?:return|give(?: me)?|output|with|produce|as|into|json:?|(?:output|reply|response|answer"
    r"|result) (?:is|must be|should be))\s+(?:an? |the )?(?:json )?(?:array|list) of (?:json )?"
    r"objects\b",
    re.IGNORECASE,
)
_IS_OBJECT: Final = re.compile(
    r"\bjson object\b(?! (?:per|for each|for every|each|je|pro|por|par)\b)|\btop[- ]level\b",
    re.IGNORECASE,
)


def _add_list(shape: JsonShape, wish: str) -> None:
    """Set in place whether a shape is a list or an object, if the prompt says so."""
    if shape.kinds - {"object"} or shape.is_schema:
        return
    if _IS_LIST.search(wish) and not _IS_OBJECT.search(wish):
        shape.kinds = frozenset({"array"})
        shape.items = JsonShape(
            frozenset({"object"}) if not shape.is_prose or shape.fields else frozenset(),
            fields=shape.fields,
            optional=shape.optional,
            others=shape.others,
            is_closed=shape.is_closed,
            is_literal=shape.is_literal,
            is_prose=shape.is_prose,
            is_partial=shape.is_partial,
        )
        shape.fields, shape.others, shape.is_prose = {}, None, True
    elif re.search(
        r"\b(?:an?|one|single|this|following|valid|the) json object\b"
        r"(?! (?:per|for each|for every|each|je|pro|por|par)\b)",
        wish,
        re.IGNORECASE,
    ) and not re.search(r"json objects\b|\barray\b", wish, re.IGNORECASE):
        shape.kinds = frozenset({"object"})


def _prose(wish: str) -> JsonShape:
    """Return the shape that sentences or bullets describe, such as `with the fields name and age`.

    Empty if they describe none.
    """
    shape = JsonShape(is_prose=True, is_literal=False)
    keys: list[tuple[str, str]] = []
    for listed in _enumerations(wish):
        keys, is_whole = _keys_of(listed)
        if keys:
            shape.is_literal = all(re.fullmatch(r"\w+", key) for key, _ in keys)
            shape.is_partial = not is_whole
            break
    if not keys and re.search(r"\b(?:fields?|keys?|properties|schema)\b", wish, re.IGNORECASE):
        lines = list(_BULLETS.finditer(wish)) or list(_TYPED_LINES.finditer(wish))
        keys = [(found["k"], found["rest"] or "") for found in lines[:MAX_KEYS]]
        keys = keys if len(keys) > 1 else []
    if not keys and (single := _SINGLE.search(wish)):
        keys = [(single["k"], single["t"])]
    if keys and _PLURAL_TYPES.match(keys[-1][1]) and not any(rest for _, rest in keys[:-1]):
        keys = [(key, keys[-1][1]) for key, _ in keys]
    for key, rest in keys:
        part = JsonShape()
        add_remark(part, rest.replace("numbers", "number"))
        shape.fields.setdefault(key, part)
        _add_later(key, part, wish)
    return shape


def _enumerations(wish: str) -> Iterator[str]:
    """Yield texts that may list keys, such as `name, age` after `with the keys`."""
    for pattern in (_WITH, _LISTED):
        for _, found in zip(range(MAX_KEYS), pattern.finditer(wish), strict=False):
            yield _sentence_from(wish, found.start("k"))
    typed = [found for _, found in zip(range(MAX_KEYS), _TYPED.finditer(wish), strict=False)]
    if len(typed) > 1 and typed[1].start() - typed[0].end() < 200:
        line = wish[wish.rfind("\n", 0, typed[0].start()) + 1 : typed[0].start()][-200:]
        before = re.split(r"[:;.]\s", line)[-1]
        pieces = before.split(",")
        pieces[0] = pieces[0].strip().rsplit(" ", 1)[-1] if len(pieces) > 1 else ""
        yield ",".join(pieces) + _sentence_from(wish, typed[0].start())


_EDGE: Final = re.compile(r"[(\[)\]\n{}?;]|\.(?=\s|$)")
_PART: Final = re.compile(r"[()]|,|;|\s+(?:and|und|y|et|&)\s+", re.IGNORECASE)


def _sentence_from(text: str, start: int) -> str:
    """Return an enumeration from `start` to its full stop, brace or line break.

    Brackets may contain full stops and semicolons. At most MAX_LISTED characters.
    """
    depth = 0
    for found in _EDGE.finditer(text, start, start + MAX_LISTED):
        if found[0] in "([":
            depth += 1
        elif found[0] in ")]":
            depth -= 1
        elif depth <= 0 or found[0] == "\n":
            return text[start : found.start()]
        if depth < 0:
            return text[start : found.start()]
    return text[start : start + MAX_LISTED]


def _pieces_of(text: str) -> list[str]:
    """Split an enumeration at commas, semicolons and words for `and` outside of brackets.

    Blank pieces are left out.
    """
    pieces, depth, start = [], 0, 0
    for found in _PART.finditer(text):
        if found[0] in "()":
            depth += 1 if found[0] == "(" else -1
        elif depth <= 0:
            pieces.append(text[start : found.start()])
            start = found.end()
    return [piece for piece in (*pieces, text[start:]) if piece.strip()]


def _bracket_of(text: str) -> str:
    """Return the remark in brackets at the start of a text, with inner brackets.

    Empty without one.
    """
    depth = 0
    for found in re.finditer(r"[()]", text if text[:1] == "(" else ""):
        depth += 1 if found[0] == "(" else -1
        if depth == 0:
            return text[: found.end()]
    return ""


_KEY: Final = re.compile(r"[`\"'“”*]*(?P<k>[^\W\d]\w*)[`\"'“”*]*\s*(?P<r>.*)$", re.DOTALL)
_BESIDE: Final = re.compile(
    r"(?:from|for|of|with|where|so|that|only|using|if|based|to|on|about)\b", re.IGNORECASE
)
_SAYS: Final = re.compile(
    rf":\s*(?:an? )?(?:{TYPE_WORDS}|one of|either|[\"'`\w-]+\s*[|/])|\[\]"
    r"|as\b|is\b|must\b|should\b|one of\b|either\b|in\b",
    re.IGNORECASE,
)


def _keys_of(text: str) -> tuple[list[tuple[str, str]], bool]:
    """Return ([(key, remark), ..], whether the enumeration was read to its end).

    `name (string), age` gives `name` with its remark and `age`. The list is empty for prose.
    """
    keys: list[tuple[str, str]] = []
    pieces = _pieces_of(text[:MAX_LISTED])
    is_whole = len(pieces) <= MAX_KEYS
    for piece in pieces[:MAX_KEYS]:
        piece = re.sub(r"^\s*(?:and|und|y|et|the|a|an)\s+", "", piece.strip(), flags=re.IGNORECASE)
        found = _KEY.match(piece)
        if not found or found["k"].casefold() in _STOP:
            is_whole = False
            break
        key, rest = found["k"], found["r"].strip()
        bracket = _bracket_of(rest)
        if bracket or _SAYS.match(rest):
            keys.append((key, bracket or rest))
            if bracket and rest[len(bracket) :].strip():
                is_whole = False
                break
            continue
        words = rest.split()
        if (
            len(words) == 1
            and re.fullmatch(r"[^\W\d]\w*[`\"'“”*]*", rest)
            and not _BESIDE.match(rest)
        ):
            keys.append((f"{key} {rest}".strip("`\"' "), ""))
            continue
        if not words or rest.startswith(":") or _BESIDE.match(rest):
            keys.append((key, ""))
        if words:
            is_whole = False
            break
    is_list = len(keys) > 1 or (bool(keys) and text.strip()[:1] in "`\"'")
    return (keys if is_list else []), is_whole


def _add_later(key: str, part: JsonShape, wish: str) -> None:
    """Add to `part`, in place, what the prompt says of its key elsewhere.

    An example is `status must be one of a, b`. Nothing changes if the part has a type, a form or
    choices already.
    """
    found = re.search(
        rf"(?<!\w)[`\"']?{re.escape(key)}[`\"']?\s*(?:must be|should be|is|has to be|as|:|=|\()\s*"
        r"(?P<r>[^\n]{1,200})",
        wish,
    )
    if found is None or part.kinds or part.choices or part.form:
        return
    sentence = re.split(r"\.\s|;", found["r"])[0]
    if re.match(
        rf"(?:exactly )?one of\b|either\b|(?:an? )?(?:{TYPE_WORDS})\b"
        r"|(?:in )?(?:the )?(?:format )?(?:YYYY-MM-DD|ISO)",
        sentence,
        re.IGNORECASE,
    ):
        add_remark(part, sentence)


def _add_choices(shape: JsonShape, ask: str) -> None:
    """Add in place the choices that a line lists for a key, such as `Labels: spam, ham`."""
    parts: dict[str, JsonShape] = {plain_key(name): part for name, part in shape.parts() if name}
    others = [each for each in (shape, *(part for _, part in shape.parts())) if each.other_name]
    for found in list(_LINE.finditer(ask))[:MAX_KEYS]:
        label = plain_key(found["l"])
        singular = _singular(label)
        choices = choices_of(found["v"]) or _listed_choices(found["v"])
        if not choices or re.match(r"\d+[/.-]\d", found["v"]):
            continue
        for each in others:
            if plain_key(each.other_name) in (label, singular):
                each.names = each.names or choices
        if label not in parts and re.search(
            rf"^\W*{re.escape(singular)}\W*:[ \t]*\S+ \S+", ask, re.MULTILINE | re.IGNORECASE
        ):
            continue  # the key is described elsewhere
        part = parts.get(label) or parts.get(singular)
        if part is None or part.choices or part.form or part.kinds & {"boolean", "object"}:
            continue
        target = part.items if part.items is not None else part
        if not target.choices and not target.fields:
            target.choices = choices


def _singular(label: str) -> str:
    """Return an English label without its plural ending: `category` for `categories`."""
    if label.endswith("ies"):
        return label[:-3] + "y"
    return label[:-1] if label.endswith("s") else label


def _listed_choices(text: str) -> tuple[str, ...]:
    """Return the items of a line such as `spam (junk), ham` in lower case.

    Empty if it is prose.
    """
    bare = _GLOSS.sub("", text).strip().rstrip(".")
    if re.search(r"[.:!?]\s|\.{3}|\be\.g\b|\betc\b", bare):
        return ()
    pieces = re.split(r"\s*[,;|]\s*(?:or |and |und |oder )?|\s+or\s+|\s+and\s+", bare)
    choices = cleaned_choices(pieces)
    return choices if "(" in text or len(choices) > 2 else ()


def _variants(ask: str) -> dict[str, frozenset[str]]:
    """Return the lists of a prompt by label, such as the slots of each intent: `book: date, time`.

    Empty unless there are two or more.
    """
    found: dict[str, frozenset[str]] = {}
    for line in list(_LINE.finditer(ask))[:MAX_KEYS]:
        items = [item.strip() for item in line["v"].rstrip(".").split(",")]
        if all(re.fullmatch(r"[A-Za-z]\w{0,40}", item) for item in items):
            found[line["l"].strip()] = frozenset(items)
    return found if len(found) > 1 else {}


def _variant_fault(value: Any, variants: dict[str, frozenset[str]]) -> str | None:
    """Describe a key that belongs only to other variants than the one the reply names.

    None without such a key. `variants` are lists of keys by the variant's name.
    """
    if not isinstance(value, dict):
        return None
    chosen = next(
        (each for each in value.values() if isinstance(each, str) and each in variants), None
    )
    if chosen is None:
        return None
    known = frozenset().union(*variants.values())
    for part in (value, *(each for each in value.values() if isinstance(each, dict))):
        for key in part:
            if key in known and key not in variants[chosen]:
                return f'"{key[:40]}" does not belong to {chosen}'
    return None
