"""Bugs of compiled languages: null values in Java and C#, imports and types in Go."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from calibrator.readers.evidence.finding import MAX_SHIFT, Finding
from calibrator.text.guarded import compile_guarded

_NULL_ALLOWED: Final = compile_guarded(
    r"\b(?:for|on|if|when|with|handles?|allow\w*|accepts?|given|bei|für|wenn|para|si|pour)\b"
    r"[^.?!\n]{0,30}\bnull\b|\bnull[- ]?safe\b"
    r"|\bnull\b[^.?!\n]{0,30}\b(?:returns?|gives?|false|true|0)\b",
    re.IGNORECASE,
)
_METHOD: Final = re.compile(
    r"\b(?:static\s+|public\s+|private\s+|final\s+)*[\w<>\[\]?]{1,60}\s+(?P<n>\w+)\s*"
    r"\((?:final\s+)?(?:String|string|Integer|List<[^<>]*>|Object|[A-Z]\w*)\??\s+(?P<p>\w+)\)"
    r"[^{;]{0,60}\{(?P<b>[^{}]*)\}"
)


def null_bugs(code: str, request: str) -> Iterator[Finding]:
    """Yield a method whose only parameter may be null and is used first of all."""
    if not _NULL_ALLOWED.search(request):
        return
    found = _METHOD.search(code)
    if found is None:
        return
    name = re.escape(found["p"])
    if re.search(rf"\b{name}\.\w", found["b"]) and not re.search(
        rf"\b{name}\s*[!=]=|[!=]=\s*{name}\b|\b{name}\?\.|\b{name}\s+is\b|\w\({name}\)", found["b"]
    ):
        yield Finding(False, -MAX_SHIFT, f"{found['n']} fails if {found['p']} is null")


_COMMENT: Final = re.compile(r"//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|`[^`]{0,2000}`")
_IMPORT: Final = re.compile(
    r"^import\s+(?:\(\s*(?P<a>[^()]{0,2000})\)|(?P<b>[^\n(]+))", re.MULTILINE
)
_PATH: Final = re.compile(r"^\s*(?P<n>[\w.]+\s+)?\"(?P<p>[\w./-]+)\"", re.MULTILINE)
_SLICE: Final = re.compile(r"\b(?P<n>\w+)\s*:?=\s*\[\]\w+\{|\bvar\s+(?P<v>\w+)\s+\[\]\w+")
_STANDARD: Final = re.compile(
    r"(?<![\w.])(?P<n>fmt|strings|strconv|errors|sort|slices|maps|bufio|os|io|time|math|sync|context"
    r"|bytes|regexp)\.[A-Z]\w*"
)


def go_bugs(code: str) -> Iterator[Finding]:
    """Yield what the compiler of Go refuses: imports that lack or are unused, texts from lists."""
    text = _COMMENT.sub('""', code)
    for found in list(_SLICE.finditer(text))[:20]:
        name = found["n"] or found["v"]
        used = re.search(rf"\bstrings\.(?!Join\b)(?P<f>\w+)\({re.escape(name)}\s*[,)]", text)
        if used:
            yield Finding(
                False, -MAX_SHIFT, f"strings.{used['f']} takes a text, not the list {name}"
            )
            return
    if not re.search(r"^package \w+", code, re.MULTILINE):
        return
    paths = [
        each
        for found in _IMPORT.finditer(code)
        for each in _PATH.finditer(found["a"] or found["b"])
    ]
    own = {(each["n"] or each["p"].rpartition("/")[2]).strip() for each in paths}
    used_names = {found["n"] for found in _STANDARD.finditer(text)}
    for name in sorted(used_names - own):
        if not re.search(rf"\b{name}\s*(?::=|,|=)|\b{name} \*?\w+[,)]", text):
            yield Finding(False, -MAX_SHIFT, f"the package {name} is not imported")
            return
    body = _COMMENT.sub('""', _IMPORT.sub(" ", code))
    for each in paths:
        name = (each["n"] or each["p"]).strip()
        is_plain = "." not in each["p"] and "/" not in name and name != "_"
        if is_plain and not re.search(rf"(?<![\w.]){re.escape(name)}\.", body):
            yield Finding(False, -MAX_SHIFT, f"the import of {name} is not used")
            return
