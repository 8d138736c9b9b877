"""Final answers: what a reply comes to in the end, so that two replies can be compared.

The option of a multiple-choice question, a number, a formula, calls of tools, yes or no, the words
of a short answer that the question does not hold itself. A reply of which none can be told (an
essay, a program) has no final answer, which is an outcome of its own. Nothing of a text is
evaluated; every step takes linear time in the characters that are looked at.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from calibrator.corruptions.options import final_letter, options_of
from calibrator.scorer import ToolUse

Kind = Literal["calls", "option", "number", "formula", "claim", "words", "none"]

LOOK: Final = 6_000  # characters at a reply's end that are looked at
QUESTION_LOOK: Final = 8_000  # characters of a question, its end
MAX_CALLS_TEXT: Final = 6_000  # characters of a reply that may be calls in writing
MAX_WORDS: Final = 30  # of a reply that is an answer in words
MAX_DEPTH: Final = 12  # of nested arguments

_BARE_OPTION = re.compile(r"^\W*(?:option|choice|answer)?\W*([A-J])\W*$", re.IGNORECASE)
_LEADING_OPTION = re.compile(r"^\W{0,4}(?:(?-i:([A-J])))[).:\]](?:\s|\*|$)")
_MARKED_OPTION = re.compile(r"\](?:\s|:|\uff1a)*([A-J])\s*(?:<|$)")
_INLINE_OPTIONS = re.compile(r"(?:^|[\s;?\uff1f\u3002(])\(?([A-J])\s?[:.)\uff1a]")
_BOXED = re.compile(r"\\boxed\s*\{")
_FIELD = re.compile(
    r"[\"'](?:final_)?answer[\"']\s*:\s*(\"(?:[^\"\\]|\\.){0,400}\"|'[^'\n]{0,400}'|[^,}\n]{1,200})",
    re.IGNORECASE,
)
_STATED = re.compile(
    r"(?:####|\banswer(?:\s+(?:is|to\s[^.\n:]{1,80}\sis))?\s*(?::|\uff1a|\bis\b|=)?\**\s*:?"
    r"|\bresult\s+is\b|\btotal\s+(?:is|of)\b)[ \t*$]{0,6}([^\n]{1,160})",
    re.IGNORECASE,
)
_NUMBER = re.compile(
    r"(?<![\w.,])[-\u2212]?\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\w)"
    r"|(?<![\w.])[-\u2212]?\d+(?:\.\d+)?(?:[eE][-+]?\d{1,3})?"
)
_FRACTION = re.compile(r"^([-\u2212]?)\\?[dt]?frac\{([-\d.]{1,12})\}\{([-\d.]{1,12})\}$")
_RATIO = re.compile(r"^[-\u2212]?\d{1,12}/\d{1,12}$")
_WANTS_NUMBER = re.compile(
    r"\bhow (?:many|much|long|old|far|tall|often|large|big|fast|heavy)\b|\bkolik\b|\bin what year\b"
    r"|\b(?:what|which) year\b|\bcalculate\b|\bcompute\b|\bwhat is the (?:value|sum|number|total)\b"
    r"|\bfind the (?:value|sum|number|total)\b|\bev(?:al|aluate)\b|=\s*\??\s*$",
    re.IGNORECASE,
)
_CLAIM = re.compile(r"\b(yes|no|true|false)\b", re.IGNORECASE)
_ASKS_CLAIM = re.compile(
    r"(?:^|[.?!\n]\s*)(?:is|are|was|were|do|does|did|can|could|would|will|has|have|should)\b[^?\n]*\?"
    r"|\byes or no\b|\btrue or false\b|\blogically sound\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W_]+")
_FREQUENT = (
    "a an the is are was were be been it its of in on at to for from by with and or as that this"
    " these those there he she they his her their i you we not do does did has have had will would"
    " can could answer question je se na v z s o byl byla bylo"
)
_COMMON: Final = frozenset(_FREQUENT.split())


@dataclass(frozen=True, slots=True)
class Answer:
    """What a reply comes to.

    `value` is canonical: two replies of the same kind and value say the same. For `words` it is
    the words that the question does not hold, sorted; `number` is the value of a number.
    """

    kind: Kind
    value: str = ""
    number: float | None = None
    words: frozenset[str] = frozenset()


NOTHING: Final = Answer("none")


def final_answer(question: str, reply: str, tool_use: ToolUse | None = None) -> Answer:
    """What a reply to this question comes to; `NOTHING` where that cannot be told."""
    if tool_use is not None and tool_use.has_calls:
        return Answer("calls", calls_of_message(tool_use.message))
    text, asked = reply[-LOOK:].strip(), question[-QUESTION_LOOK:]
    words = new_words(asked, text)
    if len(reply) <= MAX_CALLS_TEXT and (calls := calls_in_text(text)) is not None:
        return Answer("calls", calls, words=words)
    if (letter := _option(asked, text)) is not None:
        return Answer("option", letter, words=words)
    stated = _stated(text)
    if stated is not None and (found := _of_statement(asked, stated, words)) is not None:
        return found
    if _ASKS_CLAIM.search(asked[-600:]) and (claim := _claim(text)) is not None:
        return Answer("claim", claim, words=words)
    if _WANTS_NUMBER.search(asked[-600:]) and (value := _last_number(text)) is not None:
        return Answer("number", f"{value:.10g}", value, words)
    if words and len(_WORD.findall(text)) <= MAX_WORDS:
        return Answer("words", " ".join(sorted(words)), _only_number(text), words)
    return Answer("none", words=words)


def new_words(question: str, reply: str) -> frozenset[str]:
    """The words of a reply that its question does not hold, without endings and common words."""
    asked = {_stem(word) for word in _WORD.findall(question.lower())}
    said = {_stem(word) for word in _WORD.findall(reply.lower()) if word not in _COMMON}
    return frozenset(said - asked)


def _stem(word: str) -> str:
    return word if word[0].isdigit() else word[:6]


# Options.


def _option(question: str, text: str) -> str | None:
    offered = set(options_of(question)) or set(_INLINE_OPTIONS.findall(question))
    if len(offered) < 2:
        return None
    found = final_letter(text)
    candidates = [found[1] if found else None]
    short = text if len(text) <= 400 else ""
    for pattern in (_BARE_OPTION, _LEADING_OPTION, _MARKED_OPTION):
        match = pattern.search(short)
        candidates.append(match[1] if match else None)
    for each in candidates:
        if each is not None and each.upper() in offered:
            return each.upper()
    return _option_by_text(options_of(question), text)


def _option_by_text(options: Mapping[str, str], text: str) -> str | None:
    """The one option whose text is the reply, or stands in the reply's last line."""
    last = _flat(text.rsplit("\n", 1)[-1])
    same = [letter for letter, each in options.items() if _flat(each) and _flat(each) in last]
    longest = max(same, key=lambda letter: len(_flat(options[letter])), default=None)
    others = [each for each in same if each != longest]
    if longest is None or any(
        _flat(options[each]) not in _flat(options[longest]) for each in others
    ):
        return None
    return longest


def _flat(text: str) -> str:
    return " ".join(_WORD.findall(text.lower()))


# Statements: a box, a field of JSON, "The answer is ..".


def _stated(text: str) -> str | None:
    """What the reply states as its answer, the last statement of the surest form."""
    box = None
    for box in _BOXED.finditer(text):  # noqa: B007  # the last one is used
        pass
    if box is not None:
        return _braced(text, box.end())
    fields = _FIELD.findall(text)
    if fields:
        return str(_unquoted(fields[-1]))
    statement = None
    for statement in _STATED.finditer(text):  # noqa: B007  # the last one is used
        pass
    return None if statement is None else statement[1].strip()


def _braced(text: str, start: int) -> str:
    depth = 1
    for at in range(start, min(len(text), start + 400)):
        depth += (text[at] == "{") - (text[at] == "}")
        if depth == 0:
            return text[start:at]
    return text[start : start + 400]


def _unquoted(text: str) -> str:
    try:
        found = json.loads(text)
    except ValueError:
        return text.strip().strip("'\"")
    return found if isinstance(found, str) else text.strip()


def _of_statement(question: str, stated: str, words: frozenset[str]) -> Answer | None:
    plain = plain_formula(stated)
    if (value := number_of(plain)) is not None:
        return Answer("number", f"{value:.10g}", value, words)
    claim = _BARE_CLAIM.match(plain)
    if claim is not None:
        return Answer("claim", claim[1].lower(), words=words)
    numbers = _NUMBER.findall(plain)
    own = new_words(question, stated)
    if not own or _CODE.search(question):
        return Answer("formula", _literal(stated), words=words) if plain else None
    if len(numbers) == 1 and (len(own) <= 3 or _WANTS_NUMBER.search(question[-600:])):
        value = _value(numbers[0])
        return Answer("number", f"{value:.10g}", value, words)
    if any(sign in plain for sign in "\\^_=[](){}") or numbers:
        return Answer("formula", plain, words=words)
    if own and len(_WORD.findall(stated)) <= MAX_WORDS:
        return Answer("words", " ".join(sorted(own)), None, own)
    return None


_CODE = re.compile(r"\bdef \w+\(|\bassert \w|\breturn\b.*\n")


def _literal(text: str) -> str:
    """A value as code writes it, whatever its quotes and spaces."""
    plain = text.strip().strip("`.,;* ").replace("\\n", "\n").replace('"', "'")
    return re.sub(r"\s*([,:\[\]{}()=+-])\s*", r"\1", plain).strip("'")


_BARE_CLAIM = re.compile(r"^\W*(yes|no|true|false)\b", re.IGNORECASE)
_LATEX = re.compile(
    r"\\(?:text|mathrm|mathbf|textbf|operatorname)\s*\{([^{}]*)\}|\\(?:left|right|big|Big|!|,|;|:|quad)"
    r"|\\\(|\\\)|\\\[|\\\]|\\ "
)
_SPACE = re.compile(r"\s+")


def plain_formula(text: str) -> str:
    """A formula without what only sets it: `$\\dfrac{1}{2}$.` is `\\frac{1}{2}`."""
    plain = _LATEX.sub(lambda found: found[1] or "", text.replace("\\\\", "\\"))
    plain = plain.replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac").replace("\\%", "%")
    plain = plain.replace("^\\circ", "").replace("^{\\circ}", "").replace("\u00b0", "")
    plain = plain.replace("\\cdot", "*").replace("\\times", "*").replace("\\pi", "pi")
    return _SPACE.sub("", plain).strip("$*`\"'.,;:")


def number_of(text: str) -> float | None:
    """The value of a text that is a number and nothing else: `1,200`, `$12`, `3/4`, `20%`."""
    bare = plain_formula(text).strip("$\u20ac\u00a3").rstrip("%")
    found = _FRACTION.match(bare)
    if found is not None:
        return _quotient(found[2], found[3], negative=bool(found[1]))
    if _RATIO.match(bare):
        above, below = bare.replace("\u2212", "-").split("/")
        return _quotient(above, below)
    return _value(bare) if _NUMBER.fullmatch(bare) else None


def _quotient(above: str, below: str, negative: bool = False) -> float | None:
    try:
        value = float(above) / float(below)
    except (ValueError, ZeroDivisionError):
        return None
    return -value if negative else value


def _value(text: str) -> float:
    return float(text.replace(",", "").replace("\u2212", "-")[:40])


def _last_number(text: str) -> float | None:
    found = _NUMBER.findall(text[-800:])
    return _value(found[-1]) if found else None


def _only_number(text: str) -> float | None:
    found = _NUMBER.findall(text)
    return _value(found[0]) if len(found) == 1 else None


def _claim(text: str) -> str | None:
    """Yes, no, true or false: said at the beginning, else said last."""
    first = _BARE_CLAIM.match(text)
    if first is not None:
        return first[1].lower()
    found = _CLAIM.findall(text[-300:])
    return found[-1].lower() if found else None


# Calls of tools.


def calls_of_message(message: Mapping[str, Any]) -> str:
    """The calls of an assistant's message, in canonical form: names and arguments, sorted."""
    found = []
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        own = call.get("function") or call.get("custom") if isinstance(call, Mapping) else None
        if isinstance(own, Mapping):
            arguments = own.get("arguments", own.get("input"))
            found.append(_canonical_call(str(own.get("name")), arguments))
    legacy = message.get("function_call")
    if isinstance(legacy, Mapping):
        found.append(_canonical_call(str(legacy.get("name")), legacy.get("arguments")))
    return "; ".join(sorted(found))


def calls_in_text(text: str) -> str | None:
    """The calls of a reply that writes them, `[name(a=1)]` or `[{"name": "{..}"}]`, in canonical
    form; None for any other reply."""
    bare = text.strip().removeprefix("```json").removeprefix("```python").strip("`\n ")
    if not bare.startswith(("[", "{")) and not re.match(r"^[\w.]+\(", bare):
        return None
    return _calls_of_json(bare) if bare.startswith(("[{", "{")) else _calls_of_python(bare)


def _calls_of_json(text: str) -> str | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    entries = found if isinstance(found, list) else [found]
    calls = []
    for entry in entries:
        if not isinstance(entry, dict) or not entry:
            return None
        if "name" in entry and ({"arguments", "parameters"} & set(entry)):
            given = entry.get("arguments", entry.get("parameters"))
            calls.append(_canonical_call(str(entry["name"]), given))
        elif len(entry) == 1 and all(_are_arguments(each) for each in entry.values()):
            name, given = next(iter(entry.items()))
            calls.append(_canonical_call(name, given))
        else:
            return None
    return "; ".join(sorted(calls)) if calls else None


def _are_arguments(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, str) and value.lstrip().startswith("{"))


def _calls_of_python(text: str) -> str | None:
    """Parsed as a literal list of calls, never run."""
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    nodes = tree.elts if isinstance(tree, ast.List | ast.Tuple) else [tree]
    calls = []
    for node in nodes:
        if not isinstance(node, ast.Call):
            return None
        try:
            given = {word.arg or "**": ast.literal_eval(word.value) for word in node.keywords}
            given |= {str(at): ast.literal_eval(value) for at, value in enumerate(node.args)}
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            return None
        calls.append(_canonical_call(ast.unparse(node.func), given))
    return "; ".join(sorted(calls)) if calls else None


def _canonical_call(name: str, arguments: Any) -> str:
    given = arguments
    if isinstance(arguments, str):
        try:
            given = json.loads(arguments)
        except (ValueError, RecursionError):
            given = arguments
    name = re.sub(r"\W+", "_", name).strip("_").lower()
    return f"{name}({_canonical(given, 0)})"


def _canonical(value: Any, depth: int) -> str:
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
