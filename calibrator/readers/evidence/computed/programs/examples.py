"""The examples of a request or a reply, such as "pages(10, 5) = 2", compared with the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from calibrator.readers.evidence.computed.programs.evaluator import Evaluator
from calibrator.readers.evidence.computed.programs.syntax import read_literal
from calibrator.readers.evidence.computed.programs.values import (
    NotComputableError,
    RaisedError,
)
from calibrator.readers.evidence.finding import MAX_SHIFT, Finding
from calibrator.text.guarded import compile_guarded

MAX_EXAMPLES: Final = 12
MAX_STEPS: Final = 20_000  # of all examples together
MAX_CALL: Final = 300  # characters of a call or a value
_STATES: Final = re.compile(
    r"[`*\s]{0,3}\)?;?[ \t]*(?:(?P<eq>==)|=>?|[-=]>|→|⇒|(?:\#|//)[ \t]*(?:=>|->|→|returns?:?"
    r"|output:?|prints?:?|gives)?|(?:should|must|would|will|needs? to)[ ]"
    r"(?:return|be|give|equal|yield|print)|returns|gives|is|are|yields|equals|evaluates[ ]to|prints"
    r"|ergibt|liefert|gibt|ist|sind|devuelve|da|es|son|retorna|renvoie|donne|vaut|est|sont)\s*:?[`*\s]{0,3}",
    re.IGNORECASE,
)
_RAISES: Final = re.compile(
    r"[`\s]{0,3}(?:should |must |will )?(?:raises?|throws?|wirft|lanza|lève)\s+"
    r"(?:an? |einen? |une? )?[`*]{0,3}(?P<e>[A-Z]\w*Error)\b"
)
_AND: Final = re.compile(r"[`\s]{0,3}(?:,|and|und|y|et|or|oder)(?: and)?[`\s]{1,4}$|[`]?,\s?[`]?$")
_LITERAL: Final = re.compile(
    r"(?:True|False|None)\b|-?\d+(?:\.\d+)?(?![\w%]|[.,]\d|\s?[-+*/^]|\s(?!and\b|und\b|but\b|for\b|because\b|as\b)[a-z]{3,})"
    r"|\"(?:[^\"\\\n]|\\.){0,200}\"|'(?:[^'\\\n]|\\.){0,200}'"
)
_CONDITION: Final = re.compile(r"\b(?:if|while|elif|and|or|not|return|when|in)\b[^`\n]*$")
_IS_REPORT: Final = compile_guarded(
    r"\b(?:but|instead|wrong|bugs?|fix\w*|errors?|why|expected|actual\w*|currently|incorrect\w*"
    r"|aber|falsch|warum|pero|mal|erreur|pourquoi|mais)\b",
    re.IGNORECASE,
)
_FOR_EMPTY: Final = compile_guarded(
    r"\b(?P<v>None|0|False|True|-1|0\.0|(?:an? )?empty (?:list|string|dict)|\[\]|\"\"|'')`? "
    r"(?:for|if|when|on|given|bei|für|wenn|para|si|pour) (?:the |an? |its? |eine[rnm]? |leere[rn]? "
    r"|una? |une? )?(?:input |list |string |liste |lista )?(?:is |ist |está |est )?"
    r"(?:an |eine? )?(?:empty|leere?[rn]?|vac[ií]a|vide)(?: (?P<k>list|array|string|text|sequence"
    r"|liste|lista))?\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class StatedCall:
    """A call with its stated value, or with the name of the error that it raises."""

    name: str
    args: tuple[Any, ...]
    value: Any
    error: str = ""

    def __str__(self) -> str:
        """Return the call as source, such as `add(1, 2)`, cut to 80 characters."""
        return f"{self.name}({', '.join(map(repr, self.args))})"[:80]


def example_bugs(tree: ast.Module, request: str, reply: str) -> Iterator[Finding]:
    """Yield the finding of an example whose computed value differs from the stated one.

    At most one. An example is `add(1, 2) returns 4`. It is a certain bug unless it is one of many
    in the request.
    """
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    names = [node.name for node in functions]
    known = [name for name in names if names.count(name) == 1]
    if not known:
        return
    steps = MAX_STEPS
    request_examples = [] if _IS_REPORT.search(request) else [*examples_in(request, known)]
    if len({isinstance(each.value, list) for each in request_examples}) > 1:
        request_examples = []
    for examples in (
        [*examples_in(reply, known), *_of_nothing(functions, request)],
        request_examples,
    ):
        faults, count = [], 0
        for example in examples[:MAX_EXAMPLES]:
            evaluator = Evaluator(tree, min(steps, MAX_STEPS // 3))
            fault = _fault(evaluator, example)
            count += 1
            faults += [fault] if fault else []
            steps -= MAX_STEPS // 3 - evaluator.steps
            if steps <= 0:
                return
        if faults:
            is_sure = examples is not request_examples or 2 * len(faults) >= count
            yield Finding(False if is_sure else None, -MAX_SHIFT if is_sure else -2.0, faults[0])
            return


def _fault(evaluator: Evaluator, example: StatedCall) -> str:
    """Describe how the value or error of a call differs from the stated one; empty if it does not.

    Empty also if the call cannot be computed.
    """
    args = [list(each) if isinstance(each, list) else each for each in example.args]
    try:
        evaluator.define()
        value = evaluator.call(example.name, args)
    except (NotComputableError, RecursionError):
        return ""
    except RaisedError as error:
        name = str(error)
        is_same = name == example.error or not name.endswith(("Error", "Exception"))
        return "" if is_same or example.error else f"{example} raises {name}"
    if example.error:
        return f"{example} raises no {example.error}"
    if is_same_value(value, example.value):
        return ""
    return f"{example} is {value!r:.80}, not {example.value!r:.80}"


def is_same_value(value: Any, stated: Any) -> bool:
    """Return whether a value equals the stated one; a stated fraction may be rounded."""
    if isinstance(stated, list | tuple):
        is_list = isinstance(value, list | tuple) and len(value) == len(stated)
        return is_list and all(map(is_same_value, value, stated))
    if isinstance(stated, float) and isinstance(value, int | float):
        places = len(repr(stated).partition(".")[2])
        return abs(value - stated) <= 0.51 * 10.0**-places
    if isinstance(stated, bool) or stated is None:
        return bool(value) is bool(stated) if isinstance(value, str) else bool(value == stated)
    return bool(value == stated)


def examples_in(text: str, names: list[str]) -> Iterator[StatedCall]:
    """Yield the calls with stated values in a text.

    An example is `add(1, 2) returns 3` or `>>> add(1, 2)`. Only for functions with one of `names`
    and literal arguments.
    """
    calls = re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, names[:20]))})\(")
    waiting: list[tuple[str, tuple[Any, ...]]] = []
    end = 0
    for number, found in enumerate(calls.finditer(text)):
        if number >= 4 * MAX_EXAMPLES:
            return
        call = text_in_brackets(text, found.end() - 1)
        args = None if call is None else _arguments(call)
        line = text[max(0, found.start() - 120) : found.start()].rpartition("\n")[2]
        if call is None or args is None or re.search(r"\bdef\s*$", line):
            waiting = []
            continue
        if waiting and not _AND.fullmatch(text[end : found.start()][:12]):
            waiting = []
        end = found.end() - 1 + len(call)
        waiting.append((found[0][:-1], args))
        is_stated, value, error = _read_stated(text, end, line)
        if is_stated:
            for name, each in waiting:
                yield StatedCall(name, each, value, error)
            waiting = []


def _read_stated(text: str, end: int, line: str) -> tuple[bool, Any, str]:
    """Return (is stated, value, error) after a call that ends at `end`.

    `line` is the text before the call on its line. (False, None, "") without a value; an error is a
    name such as `ValueError`.
    """
    raises = _RAISES.match(text, end)
    if raises:
        return True, None, raises["e"]
    if line.lstrip().startswith(">>>"):
        at = end + 1 if text[end : end + 1] == "\n" else -1
    else:
        found = _STATES.match(text, end)
        is_test = line.lstrip().startswith("assert ") and "not " not in line
        if found is None or (_CONDITION.search(line) and not is_test and "`" not in line):
            return False, None, ""
        at = found.end() if is_test or not found["eq"] or "`" in text[end : found.end()] else -1
    written = None if at < 0 else literal_at(text, at)
    if written is None:
        return False, None, ""
    value = read_literal(written)
    return value is not None or written == "None", value, ""


def literal_at(text: str, at: int) -> str | None:
    """Return the source of the literal that begins at a position; None without one.

    Spaces, backquotes and asterisks before it are skipped.
    """
    while text[at : at + 1] in (" ", "`", "*"):
        at += 1
    if text[at : at + 1] in ("[", "(", "{"):
        return text_in_brackets(text, at)
    found = _LITERAL.match(text, at)
    return None if found is None else found[0]


def text_in_brackets(text: str, start: int) -> str | None:
    """Return the text from the bracket at `start` to its partner, both included.

    None if there is none within MAX_CALL characters.
    """
    depth, quote = 0, ""
    for at in range(start, min(len(text), start + MAX_CALL)):
        sign = text[at]
        if quote:
            quote = "" if sign == quote and text[at - 1] != "\\" else quote
        elif sign in "\"'":
            quote = sign
        elif sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
            if depth == 0:
                return text[start : at + 1]
    return None


def _arguments(call: str) -> tuple[Any, ...] | None:
    """Return the values in `(1, "a")`; None if they are no literals."""
    inner = call[1:-1].strip()
    if not inner:
        return ()
    value = read_literal(f"({inner},)")
    return value if isinstance(value, tuple) else None


def _of_nothing(functions: list[ast.FunctionDef], request: str) -> Iterator[StatedCall]:
    """Yield the call that a wish such as `return None for an empty list` states.

    Only for a single function with one required parameter.
    """
    found = _FOR_EMPTY.search(request)
    if found is None or len(functions) != 1:
        return
    wanted = functions[0].args
    if len(wanted.args) - len(wanted.defaults) != 1 or wanted.vararg or wanted.kwonlyargs:
        return
    kind = (found["k"] or "").casefold()
    if not kind:
        return
    empty: Any = "" if kind in ("string", "text") else []
    word = found["v"].casefold()
    values: dict[str, Any] = {
        "none": None,
        "false": False,
        "true": True,
        "[]": [],
        '""': "",
        "''": "",
    }
    if word in values:
        value: Any = values[word]
    elif "empty" in word:
        value = [] if "list" in word else "" if "string" in word else {}
    else:
        value = float(word) if "." in word else int(word)
    yield StatedCall(functions[0].name, (empty,), value)
