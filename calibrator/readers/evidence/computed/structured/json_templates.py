"""The JSON that a template asks for, such as `{"name": string, "tags": [str]}`.

Types may be those of JSON, Python or TypeScript, and values may be examples or placeholders.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from calibrator.readers.evidence.computed.basics.word_lists import word_set
from calibrator.readers.evidence.computed.structured.json_shapes import (
    MAX_DEPTH,
    JsonShape,
    shape_of_schema,
)

MAX_BLOCK: Final = 6_000  # characters of a template
MAX_BLOCKS: Final = 6
_TYPES: Final = {
    "string": "string str text strings texto texte zeichenkette",
    "number": "number numbers numeric float double decimal zahl número nombre percentage",
    "integer": "integer integers int ganzzahl entero entier",
    "boolean": "boolean booleans bool booleano booléen wahrheitswert",
    "array": "array list liste lista tuple sequence",
    "object": "object dict map record objekt objeto objet mapping",
    "null": "null none nil undefined",
}
KINDS: Final = {word: kind for kind, words in _TYPES.items() for word in words.split()}
TYPE_WORDS: Final = "|".join(sorted(map(re.escape, KINDS), key=len, reverse=True))
_TYPE: Final = re.compile(
    rf"(?:(?:an?|one|the|eine?|un|une) )?(?P<t>true\s?/\s?false|true or false|{TYPE_WORDS})"
    r"(?![\w-])",
    re.IGNORECASE,
)
_OF: Final = re.compile(rf"\s*(?:of|von|de)\s+(?:the )?(?P<t>{TYPE_WORDS})(?![\w-])", re.IGNORECASE)
FORM: Final = re.compile(
    r"(?<![A-Za-z])(?:(?:YYYY|yyyy|DD|dd|MM|HH|hh)(?:[-/.: T]|'T')?){1,5}(?:ss|SS|mm|YY|yy)?Z?"
    r"(?![A-Za-z])"
)
_TOKEN: Final = re.compile(
    r"\s+|//[^\n]*|(?<=\s)#[^\n]*|[\"“”][^\"“”\n]{0,400}[\"“”]|'[^'\n]{0,80}'|`[^`\n]{0,80}`"
    r"|<[^<>\n]{0,80}>|\.{3}|…|\([^()\n]{0,200}\)|[{}\[\],;:|?=]|[^\s{}\[\],;:|?()=\"“”'`]+|."
)
_DATA_AHEAD: Final = re.compile(
    r"\b(?:format|schema|structure|shape|template|form|looks? like|like this|exactly as|schema is"
    r"|like)\b[^{}\[\]]{0,60}$"
    r"|\b(?:example|e\.g|beispiel|ejemplo|exemple)\b[^{}\[\]]*"
    r"(?:\b(?:output|out|result|json|reply|answer|ausgabe|antwort|salida|sortie|résultat)\b|->|=>|→)"
    r"\s*[:=]?\s*(?:```(?:json)?)?\s*$"
)
_OPENS: Final = re.compile(r"[{\[]")
_BRACKETS: Final = re.compile(r"[{}\[\]]")
_EACH: Final = re.compile(
    r"\b(?:values?|each|every|entry|entries|elements?|werte?|jede[rsn]?|valor(?:es)?|valeurs?)\b"
    r"[^{}\[\]\n.]{0,30}$"
)
_LIST_OF: Final = re.compile(
    r"\b(?:lists?|arrays?|sequences?|series|objects|rows|records|liste|lista|one (?:per|for each))"
    r"\b"
    r"[^{}\[\]\n.]{0,30}$"
)
_OF_KEY: Final = re.compile(
    r"[,;][ \t]*(?:and[ \t]+)?[`\"']?(?P<k>[a-z_]\w{0,40})[`\"']?[ \t]*"
    r"(?:[(:][ \t]*)?(?:(?:an? )?(?:array|list|object)s?(?: of)?[ \t]*)?$"
    r"|\b(?P<b>[a-z_]\w{0,40})[`\"']?[ \t]*\([ \t]*"
    r"(?:(?!format|like|schema|example|json|form)[^\W\d_]{1,12}:?[ \t]*){0,4}$"
)
_NO_KEYS: Final = word_set(
    "json like as return returns reply respond output format form shape schema template structure"
    " namely exactly with into following object array list example"
)
_PLACEHOLDERS: Final = word_set("key k word name_of_key some_key any_key id_of_item")
_QUOTES: Final = "\"'`“”"
_VERBATIM: Final = re.compile(r"\b(?:word for word|verbatim|exact quote|wörtlich|literal)\b", re.I)


class _UnreadableError(Exception):
    """An error for a block that is no template."""


class _TemplateReader:
    """A parser of one template such as `{"name": string}`; `at` is the next token.

    `typed` counts the values that are types or choices and no examples.
    """

    def __init__(self, text: str) -> None:
        self.tokens = [found[0] for found in _TOKEN.finditer(text)]
        self.at = 0
        self.typed = 0
        self.has_quoted_keys = re.search(r"[\"“'`][\w $-]{1,60}[\"”'`]\s*\??\s*:", text) is not None

    def peek(self) -> str:
        """Return the next token that is no space, without consuming it.

        Raises `_UnreadableError` at the end.
        """
        while self.at < len(self.tokens) and self.tokens[self.at].isspace():
            self.at += 1
        if self.at >= len(self.tokens):
            raise _UnreadableError
        return self.tokens[self.at]

    def value(self, depth: int) -> JsonShape:
        """Read alternatives such as `string | null` and return their merged shape.

        Raises `_UnreadableError` if they are nested too deeply or are no template.
        """
        if depth > MAX_DEPTH:
            raise _UnreadableError
        options = [self.option(depth)]
        while self.at < len(self.tokens) and self.peek() in ("|", "or", "oder", "o", "ou"):
            self.at += 1
            options.append(self.option(depth))
        return _union(options)

    def option(self, depth: int) -> JsonShape:
        """Read an object, a list, or a word with its remarks, and return its shape."""
        token = self.peek()
        if token == "{":
            return self.wrap_in_list(self.object(depth))
        if token == "[":
            return self.array(depth)
        words: list[str] = []
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            if token in "{}],;|" or "\n" in token or (words and token in ("or", "oder")):
                break
            if token == "[":
                return self.read_generic("".join(words), depth)
            if token.startswith(("//", "#")):
                break
            words.append(token)
            self.at += 1
        shape = shape_of_words("".join(words))
        self.typed += not shape.is_example
        return shape

    def wrap_in_list(self, shape: JsonShape) -> JsonShape:
        """Return a shape, or a list of it where `[]` follows, as in `{id: number}[]`.

        `[][]` gives a list of lists. Moves past each pair and adds one to `typed` for it.
        """
        while self.at + 1 < len(self.tokens) and self.tokens[self.at : self.at + 2] == ["[", "]"]:
            self.at += 2
            self.typed += 1
            shape = JsonShape(frozenset({"array"}), items=shape)
        return shape

    def object(self, depth: int) -> JsonShape:
        """Read the keys and values up to the closing brace, and return the shape."""
        self.at += 1
        shape = JsonShape(kinds=frozenset({"object"}))
        last: JsonShape | None = None
        while (token := self.peek()) != "}":
            if token in (",", ";", "...", "…"):
                self.typed += token in ("...", "…")
                self.at += 1
            elif token.startswith(("//", "#")):
                add_remark(last, token)
                self.at += 1
            else:
                key, is_named, is_optional, remark = self.key()
                if self.peek() == ":":
                    self.at += 1
                    last = self.value(depth + 1)
                else:
                    last = _union([shape_of_words(remark)])
                    self.typed += bool(remark) or not self.has_quoted_keys
                if not is_named or (depth and key in _PLACEHOLDERS and key not in shape.fields):
                    shape.others, shape.other_name = last, key
                    self.typed += 1
                else:
                    shape.fields[key] = last
                    if is_optional:
                        shape.optional.add(key)
        self.at += 1
        return shape

    def key(self) -> tuple[str, bool, bool, str]:
        """Read a key and return (name, is literal, is optional, remark).

        A key such as `<name>` is no literal one. Raises `_UnreadableError` if there is no key.
        """
        words: list[str] = []
        remark = ""
        is_optional = False
        while (token := self.peek()) not in (":", ",", ";", "}"):
            if token == "[":  # [key: string]
                while self.peek() != "]":
                    self.at += 1
                words.append("<>")
            elif token in ("{", "]", "|", "="):
                raise _UnreadableError
            elif token == "?":
                is_optional = True
            elif token.startswith("("):
                remark = token[1:-1]
                is_optional |= "optional" in token
            else:
                words.append(token)
            self.at += 1
        name = " ".join(words).strip()
        bare = name.strip(_QUOTES)
        if not bare or len(bare) > 60:
            raise _UnreadableError
        is_quoted = name[0] in _QUOTES
        is_named = "<" not in name and (is_quoted or (len(words) == 1 and not self.has_quoted_keys))
        return bare, is_named, is_optional, remark

    def array(self, depth: int) -> JsonShape:
        """Read the items up to the closing bracket, and return the shape of the list."""
        self.at += 1
        items: list[JsonShape] = []
        while (token := self.peek()) != "]":
            if token in (",", ";", "...", "…") or token.startswith(("//", "#")):
                self.typed += token in ("...", "…")
                self.at += 1
            else:
                start = self.at
                items.append(self.value(depth + 1))
                if self.at == start:  # the closing bracket of something else
                    raise _UnreadableError
        self.at += 1
        return JsonShape(kinds=frozenset({"array"}), items=_union(items) if items else None)

    def read_generic(self, name: str, depth: int) -> JsonShape:
        """Read the parameters of a type such as `list[str]` or `Optional[int]`.

        Return its shape.
        """
        start = self.at + 1
        inner = self.array(depth).items or JsonShape()
        self.typed += 1
        base = name.strip().casefold()
        if base == "literal" or _ONE_OF.fullmatch(base):
            listed = [each for each in self.tokens[start : self.at - 1] if each not in ",|"]
            return JsonShape(choices=cleaned_choices(listed))
        if base in ("optional", "union"):
            return inner
        if base.startswith(("dict", "map", "record")):
            return JsonShape(kinds=frozenset({"object"}))
        if base in KINDS and KINDS[base] != "array":
            inner = shape_of_words(base)
        return JsonShape(kinds=frozenset({"array"}), items=inner)


def shape_of_words(text: str) -> JsonShape:
    """Return the shape of a type, a choice, a date's form or an example.

    An example is `int`, `"a" | "b"`, `3.5`. An empty shape if it says nothing.
    """
    text = text.strip(" \t=")
    base, bracket, remark = text.partition("(")
    if bracket and base.strip():
        shape = shape_of_words(base)
        add_remark(shape, remark)
        return shape
    inner = text.strip(_QUOTES + " <>")
    is_quoted = text[:1] in _QUOTES
    shape = JsonShape(is_quote=bool(_VERBATIM.search(text)))
    if not inner or inner in ("...", "…"):
        return shape
    form = FORM.search(inner)
    if form and form[0].strip() == inner:
        shape.form, shape.kinds = inner.replace("'", ""), frozenset({"string"})
        return shape
    found = _TYPE.match(inner)
    if found and not re.match(r"\s*(?:[|/]|or\b|oder\b)", inner[found.end() :]):
        kind = KINDS.get(found["t"].casefold(), "boolean")
        shape.kinds = frozenset({kind})
        if kind == "array" and (part := _OF.match(inner, found.end())):
            shape.items = JsonShape(kinds=frozenset({KINDS[part["t"].casefold()]}))
        add_remark(shape, inner[found.end() :])
        return shape
    shape.choices = choices_of(text)
    if shape.choices or text.startswith("<"):
        return shape
    if re.fullmatch(r"-?\d+(?:\.\d+)?", text):
        return JsonShape(kinds=frozenset({"number"}), choices=(text,), is_example=True)
    if inner in ("true", "false"):
        return JsonShape(kinds=frozenset({"boolean"}), is_example=not is_quoted)
    if is_quoted:
        shape.kinds, shape.choices = frozenset({"string"}), (inner.casefold(),)
        shape.is_example = True
        return shape
    if re.fullmatch(r"[\w-]{1,40}", inner):
        shape.choices = (inner.casefold(),)  # one of several, or a description
        return shape
    add_remark(shape, inner)
    return shape


def _union(options: list[JsonShape]) -> JsonShape:
    """Merge alternatives into one shape; a single one is changed in place and returned.

    Of a single one, `null` is dropped, and an only choice is an example: it is removed, and a
    string becomes a remark without a type. Of several, `null` only joins one other option or typed
    ones. Options that are neither all listed nor all typed give a shape without demands.
    """
    if len(options) == 1:
        only = options[0]
        if len(only.choices) == 1:  # an example, or a word that describes the value
            words = only.choices[0]
            only.choices = ()
            if only.kinds == {"string"}:
                only.kinds = frozenset()
                add_remark(only, words)
        only.kinds -= {"null"}
        return only
    nullable = any("null" in each.kinds for each in options)
    options = [each for each in options if each.kinds != {"null"}]
    if len(options) == 1:
        only = _union(options)
        only.kinds |= {"null"} if only.kinds and nullable else frozenset()
        return only
    is_listed = bool(options) and all(each.choices for each in options)
    merged = JsonShape()
    if is_listed:
        merged.choices = tuple(word for each in options for word in each.choices)
        if all(each.kinds == {"string"} for each in options):
            merged.kinds = frozenset({"string"})
    elif all(each.kinds and not each.choices for each in options):
        merged.kinds = frozenset().union(*(each.kinds for each in options))
        for each in options:
            merged.items = merged.items or each.items
            merged.form = merged.form or each.form
    return merged


_CHOICES: Final = re.compile(
    r"\b(?:one of|either|any of|allowed(?: values)?|options?|entweder|eines von|una? de|un de)\b"
    r"\s*(?:the following|these)?\s*:?\s*(?P<l>[^).;\n{}]{3,300})",
    re.IGNORECASE,
)
_ONE_OF: Final = re.compile(
    r"(?:(?:exactly |must be |is )?(?:one|any) of(?: the following| these)?|either|enum|choices?"
    r"|eine?[rs]? (?:von|aus|der)|una? de|un de)\s*:?"
)
_OPEN_LIST: Final = re.compile(r"\.{3}|…|\betc\b|\be\.?g\b|\bfor example\b|\bsuch as\b|\bz\. ?B\.")


def choices_of(text: str) -> tuple[str, ...]:
    """Return the choices that a remark lists, in lower case; empty if it lists none.

    They follow `one of`, are separated by bars or slashes, or are in quotation marks.
    """
    text = text[:400]
    if _OPEN_LIST.search(text):
        return ()
    found = _CHOICES.search(text)
    if found:
        return cleaned_choices(re.split(r"\s*(?:,|\||/|\bor\b|\band\b|\boder\b)\s*", found["l"]))
    inner = re.split(r"[)\]}\n;]", text.strip(" :(="), maxsplit=1)[0]
    quoted = re.findall(r"[`\"'“]([\w -]{1,30})[`\"'”]", inner)
    if "|" in inner or re.search(r"\w\s?/\s?\w", inner):
        return cleaned_choices(re.split(r"\s*[|/]\s*", inner.strip(" ,.\"'`")))
    if len(quoted) > 1 and not re.sub(r"[`\"'“”,\s]|\bor\b|[\w -]", "", inner):
        return cleaned_choices(quoted)
    return ()


_DESCRIBES: Final = re.compile(r"(?:an?|the|any|some|eine?|der|die|das|un|une|una)\b .")


def cleaned_choices(parts: list[str]) -> tuple[str, ...]:
    """Return the parts of a list as choices in lower case, without quotes.

    Empty for fewer than two, and if they are types or sentences.
    """
    cleaned = [part.strip(" `\"'“”()[]:*.,").casefold() for part in parts]
    cleaned = [part for part in cleaned if part]
    if len(cleaned) < 2 or any(len(part.split()) > 3 for part in cleaned):
        return ()
    if {*cleaned} & {*KINDS, "dd", "mm", "yyyy"} or any(map(_DESCRIBES.match, cleaned)):
        return ()
    return tuple(cleaned)


_GOES_ON: Final = re.compile(  # text that makes a type a description, such as `number of the house`
    r"\s*(?:[|/]|or\b|of (?!(?:strings|numbers|integers|objects|str|int)\b)"
    r"|(?!between|from|with|in\b|of\b|only|max|min|no\b|without|and\b|for\b|where\b)[^\W\d_]+ )",
    re.IGNORECASE,
)


def add_remark(shape: JsonShape | None, text: str) -> None:
    """Add a remark such as `(integer)` or `one of "a", "b"` to a shape in place; skip None."""
    if shape is None:
        return
    remark = text.strip(" \t:(/#-–—")
    remark = re.sub(r"^(?:(?:as|is|must be|should be|of type|in|format) )+", "", remark)
    found = _TYPE.match(remark)
    if found and not shape.kinds and not _GOES_ON.match(remark, found.end()):
        kind = KINDS.get(found["t"].casefold(), "boolean")
        shape.kinds = frozenset({kind})
        if kind == "array" and (part := _OF.match(remark, found.end())):
            shape.items = JsonShape(kinds=frozenset({KINDS[part["t"].casefold()]}))
    if not shape.form and not shape.kinds - {"string"}:
        form = FORM.search(remark)
        if form and len(form[0].strip()) > 3:
            shape.form = form[0].strip()
        elif re.search(r"\bISO(?:[- ]?8601)?\b(?![- ]?\d)", remark):
            shape.form = "YYYY-MM-DD" if not re.search(r"time", remark) else ""
    shape.choices = shape.choices or choices_of(remark)
    shape.is_quote |= bool(_VERBATIM.search(remark))


def templates_in(text: str) -> Iterator[JsonShape]:
    """Yield the shapes of the templates and JSON Schemas of a text, at most MAX_BLOCKS.

    If a template is that of each entry, an object or a list of it is yielded before it.
    """
    start, tried = 0, 0
    while tried < MAX_BLOCKS and (found := _OPENS.search(text, start)):
        tried += 1
        block = text[found.start() : _end(text, found.start())]
        start = found.start() + max(len(block), 1)
        before = text[max(0, found.start() - 160) : found.start()].casefold()
        shape = _read(block, before)
        if shape is None:
            continue
        if _is_nested(before):
            continue
        if _EACH.search(before):
            yield JsonShape(frozenset({"object"}), others=shape)
        if _EACH.search(before) or _LIST_OF.search(before):
            yield JsonShape(frozenset({"array"}), items=shape)
            shape = replace(shape, is_placed=True)
        yield shape


def _is_nested(before: str) -> bool:
    """Return whether a template belongs to one key of an enumeration: `name, address {street}`.

    `before` is the text before it in lower case.
    """
    found = _OF_KEY.search(before)
    return found is not None and (found["k"] or found["b"]) not in _NO_KEYS


def _end(text: str, start: int) -> int:
    """Return the position after the bracket that closes the one at `start`.

    `start` + 1 if none does within MAX_BLOCK characters.
    """
    depth = 0
    for found in _BRACKETS.finditer(text, start, start + MAX_BLOCK):
        depth += 1 if found[0] in "{[" else -1
        if depth == 0:
            return found.end()
    return start + 1


def _read(block: str, before: str) -> JsonShape | None:
    """Return the shape of a block in brackets; None if it is data or no JSON.

    `before` is the text before it in lower case.
    """
    if '"properties"' in block or '"items"' in block:
        try:
            schema = json.loads(block)
        except (ValueError, RecursionError):
            schema = None
        if isinstance(schema, dict):
            inner = schema.get("schema")
            schema = inner if isinstance(inner, dict) else schema
            if isinstance(schema.get("properties"), dict) or schema.get("type") == "array":
                return shape_of_schema(schema)
    reader = _TemplateReader(block)
    try:
        shape = reader.value(0)
    except _UnreadableError:
        return None
    inner_shape = shape.items if shape.items is not None else shape
    if not inner_shape.fields and inner_shape.others is None:
        return None
    if reader.typed == 0 and not _DATA_AHEAD.search(before):
        return None
    return shape
