"""Bugs of JavaScript, TypeScript, Java, C# and Go that the text shows, outside comments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from calibrator.readers.evidence.finding import MAX_SHIFT, Finding
from calibrator.text.guarded import compile_guarded

_LITERAL: Final = re.compile(
    r"//[^\n]*|/\*.{0,1000}?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL
)
_NUMERIC: Final = re.compile(
    r"\b(?:numbers?|numeric\w*|integers?|prices?|ages?|scores?|amounts?|zahlen|números|nombres)\b"
    r"|\[\s*-?\d+(?:\.\d+)?\s*,\s*-?\d",
    re.IGNORECASE,
)
_BARE_SORT: Final = re.compile(r"\.(?:sort|toSorted)\(\s*\)")
_FETCH: Final = re.compile(
    r"\b(?:const|let|var)\s+(?P<n>\w+)\s*=\s*(?P<c>fetch|axios(?:\.\w+)?|\w+\.json)\s*\("
)
_ASYNC_MAP: Final = re.compile(r"\.map\(\s*async\b")
_ASYNC_EACH: Final = re.compile(r"\.forEach\(\s*async\b")
_PREDICATE: Final = re.compile(r"\.(?:filter|some|every|find|findIndex)\(\s*async\b")
_COLLECTS: Final = re.compile(
    r"\bPromise\s*\.\s*(?:all|allSettled|any|race)|\bfor\s+await|\.push\(|\bawait\s+\w+\[|pLimit"
)
_BLOCK: Final = re.compile(
    r"\.(?P<m>map|filter|reduce|find|some|every|flatMap)\(\s*(?:\([^()]*\)|\w+)\s*=>\s*\{(?P<b>[^{}]*)\}"
)
_IF_ASSIGNS: Final = re.compile(r"\bif\s*\(\s*[\w.]+\s*=\s*[^=>][^()]*\)")
_NAN: Final = re.compile(r"[!=]==?\s*NaN\b|\bNaN\s*[!=]==?")
_ARRAY_TYPE: Final = re.compile(r"typeof\s+[\w.]+\s*===?\s*[\"']array[\"']")
_PARSE_INT: Final = re.compile(r"\.map\(\s*parseInt\s*\)")
_LENGTH_CALL: Final = re.compile(r"\.length\(\)")
_PAST_END: Final = re.compile(
    r"\bfor\s*\(\s*(?:let|var)\s+(?P<i>\w+)\s*=\s*0\s*;\s*(?P=i)\s*<=\s*(?P<a>[\w.]+)\.length\s*;"
)
_FOR_IN: Final = re.compile(r"\bfor\s*\(\s*(?:const|let|var)\s+(?P<i>\w+)\s+in\s+(?P<a>\w+)\s*\)")
_CONST: Final = re.compile(r"\bconst\s+(?P<n>[A-Za-z_$][\w$]*)\s*(?::[^=\n]+)?=(?!=)")
_VAR_LOOP: Final = re.compile(
    r"\bfor\s*\(\s*var\s+(?P<i>\w+)\b[^)]*\)\s*\{(?P<b>[^{}]*\{[^{}]*\}[^{}]*)\}"
)
_CALLED_AT_ONCE: Final = re.compile(
    r"(?:\bset(?:Timeout|Interval)\(\s*|\.addEventListener\([^,()]*,\s*)(?P<c>[A-Za-z_$][\w$]*)\(\s*\)\s*[,)]"
)
_AWAIT: Final = re.compile(r"\bawait\b")
_FUNCTION: Final = re.compile(r"\bfunction\b|=>")
_UNTRUSTED: Final = re.compile(
    r"\b(?:user|input|comment\w*|name|form|untrusted|safe\w*|xss|message|search)\b", re.IGNORECASE
)
_INNER_HTML: Final = re.compile(
    r"\.innerHTML\s*\+?=\s*(?![\"'`]?[\"'`]\s*;?\s*$)(?P<v>[^;\n]+)", re.MULTILINE
)

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


def javascript_bugs(code: str, request: str) -> Iterator[Finding]:
    """Yield the findings against JavaScript or TypeScript, such as a promise without `await`.

    The request decides whether some habits are bugs, such as `sort()` without a comparator for
    numbers.
    """
    text = _LITERAL.sub(_empty_literal, code)
    yield from _promises(text)
    yield from _callbacks(text, request)
    yield from _constants(text)
    yield from _loops(text)
    for pattern, reason in (
        (_IF_ASSIGNS, "the condition assigns instead of comparing"),
        (_NAN, "nothing equals NaN"),
        (_PARSE_INT, "map() gives parseInt the index as its base"),
        (_LENGTH_CALL, "length is no function"),
    ):
        if pattern.search(text):
            yield _certain_bug(reason)
    if _ARRAY_TYPE.search(code):
        yield _certain_bug("typeof never gives array")
    put = _INNER_HTML.search(text)
    if (
        put
        and _UNTRUSTED.search(request)
        and re.search(r"\$\{|\+|^\s*\w", put["v"])
        and not re.search(r"escape|sanitize|DOMPurify|encode", code, re.IGNORECASE)
    ):
        yield Finding(None, -1.2, "innerHTML runs what a user typed in")


def _certain_bug(reason: str) -> Finding:
    """Return a finding that proves the reply wrong, for this reason."""
    return Finding(False, -MAX_SHIFT, reason)


def _empty_literal(found: re.Match[str]) -> str:
    """Return an empty literal for a matched text, `""` or `''`, and a space for a comment."""
    sign = found[0][0]
    return " " if sign == "/" else sign * 2


def _promises(text: str) -> Iterator[Finding]:
    """Find promises that are used like values, such as `const r = fetch(url); r.json()`.

    `text` is code without comments and texts.
    """
    for found in list(_FETCH.finditer(text))[:20]:
        name, rest = found["n"], text[found.end() : found.end() + 1_500]
        is_waited = re.search(
            rf"\bawait\s+{name}\b|\b{name}\s*\.\s*(?:then|catch)\b|\[[^\]]*\b{name}\b", rest
        )
        of_promise = r"(?!then\b|catch\b|finally\b)\w+"
        of_reply = "ok|status|json|text|data|headers|body|map|length"
        is_json = found["c"].endswith(".json")
        owner = found["c"].removesuffix(".json")
        is_json &= re.search(rf"\b{owner}\s*=\s*await\s+fetch\b", text) is not None
        is_used = re.search(rf"\b{name}\s*\.\s*(?:{of_promise if is_json else of_reply})\b", rest)
        if is_used and not is_waited and found["c"] != "axios":
            yield _certain_bug(f"{found['c']}() is not awaited")
            break
    if _ASYNC_MAP.search(text) and not _COLLECTS.search(text):
        yield _certain_bug("map() with an async function gives promises; Promise.all is missing")
    if _PREDICATE.search(text):
        yield _certain_bug("an async test is always true")
    if _ASYNC_EACH.search(text):
        yield Finding(None, -1.5, "forEach() does not wait for an async function")
    if _AWAIT.search(text) and "async" not in text and _FUNCTION.search(text):
        yield _certain_bug("await is used outside of an async function")


def _callbacks(text: str, request: str) -> Iterator[Finding]:
    """Find callbacks that return nothing, numbers sorted as text, and a callback called at once.

    Examples are `list.map(x => { x * 2 })` and `setTimeout(run(), 100)`. `text` is code without
    comments and texts.
    """
    if _BARE_SORT.search(text) and _NUMERIC.search(request):
        yield _certain_bug("sort() without a comparator orders numbers as text")
    for found in list(_BLOCK.finditer(text))[:20]:
        body = found["b"]
        if body.strip() and not re.search(r"\breturn\b|\bthrow\b", body):
            yield _certain_bug(f"the callback of {found['m']}() returns nothing")
            break
    early_call = _CALLED_AT_ONCE.search(text)
    if early_call:
        yield Finding(None, -1.5, f"{early_call['c']}() is called at once and not later")


def _constants(text: str) -> Iterator[Finding]:
    """Find the first constant that gets another value, as in `const n = 0; n++`."""
    for name in dict.fromkeys(found["n"] for found in _CONST.finditer(text)):
        plain = re.escape(name)
        if len(re.findall(rf"(?<![\w$.]){plain}\b\s*(?:=(?![=>])|:)", text)) > 1:
            continue  # another variable of this name, or a key
        if re.search(
            rf"(?m)(?:^|[;{{}}])\s*(?:{plain}\s*(?:\+\+|--|[-+*/]=)|(?:\+\+|--){plain}\b)", text
        ):
            yield _certain_bug(f"the constant {name} is changed")
            return


def _loops(text: str) -> Iterator[Finding]:
    """Find loops past the end, over indices instead of elements, or with one shared variable.

    Examples are `i <= list.length`, `for (const x in list) x.name` and `for (var i ..)
    setTimeout(..)`.
    """
    past = _PAST_END.search(text)
    if past:
        index = f"{past['a']}[{past['i']}]"
        if index in text[past.end() : past.end() + 800]:
            yield _certain_bug(f"the loop goes past the end of {past['a']}")
    inner = _FOR_IN.search(text)
    if inner:
        body = text[inner.end() : inner.end() + 400]
        i, a = inner["i"], inner["a"]
        is_element = re.search(rf"\b{i}\.\w+|[-+*/]=\s*{i}\b", body) and f"{a}[{i}]" not in body
        if is_element:
            yield Finding(None, -2.0, "for .. in gives indices, not elements")
    shared = _VAR_LOOP.search(text)
    if (
        shared
        and re.search(r"\bset(?:Timeout|Interval)\(|addEventListener\(", shared["b"])
        and re.search(rf"\{{[^{{}}]*\b{shared['i']}\b[^{{}}]*\}}", shared["b"])
    ):
        yield _certain_bug(f"all callbacks share the last value of {shared['i']}")


def null_bugs(code: str, request: str) -> Iterator[Finding]:
    """Yield a finding if Java or C# uses a method's only parameter without a test for null.

    An example is `int size(String s) { return s.length(); }`. Only if the request mentions null as
    a value to handle; only the first method is looked at.
    """
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


def go_bugs(code: str) -> Iterator[Finding]:
    """Yield the first thing that Go's compiler refuses; nothing without one.

    This is a list given to a function for texts (`strings.ToUpper(words)`), a package used without
    import, or an import without use. Imports are checked only in a file with `package`.
    """
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
