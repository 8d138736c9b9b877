"""Questions for the output of given Python code, answered by the evaluator."""

from __future__ import annotations

import ast
import json
import re
from typing import Final

from calibrator.readers.evidence.computed.basics.verdict import Exchange, Verdict
from calibrator.readers.evidence.computed.programs.evaluator import Evaluator
from calibrator.readers.evidence.computed.programs.examples import (
    is_same_value,
    literal_at,
    text_in_brackets,
)
from calibrator.readers.evidence.computed.programs.syntax import parse, read_literal
from calibrator.readers.evidence.computed.programs.values import (
    NotComputableError,
    RaisedError,
)
from calibrator.text.guarded import compile_guarded

MAX_REQUEST: Final = 4_000  # characters
_CODE: Final = re.compile(
    r"```(?:python|py)?[ \t]*\n(?P<a>.*?)```|\[PYTHON\]\n(?P<b>.*?)\[/PYTHON\]", re.DOTALL
)
_OPEN: Final = re.compile(r"^assert (?P<f>\w+)(?P<c>\(.*\)) == \?+\s*$", re.MULTILINE)
_INLINE: Final = re.compile(r"`([^`\n]{3,120})`")
_ASKS: Final = compile_guarded(
    r"\bwhat (?:does|do|will|would|is|gets|are|did)\b[^.?!\n]{0,60}\b(?:prints?|printed|outputs?"
    r"|displayed?|return(?:s|ed)?|evaluates? to|give)\b|\bwas (?:gibt|druckt)\b[^.?!\n]{0,60}\b"
    r"aus\b|\bqué (?:imprime|muestra|devuelve)\b|\bqu'(?:affiche|imprime|est-ce qu[ei])\b"
    r"|\bque (?:renvoie|retourne|affiche)\b|== \?\?",
    re.IGNORECASE,
)
_WANTS_MORE: Final = compile_guarded(
    r"\b(?:fix|rewrite|refactor|change|instead|complexity|memory|improve|error)\b", re.IGNORECASE
)
_CALL: Final = re.compile(r"`?(?<![\w.])(?P<f>[a-z_]\w*)\(")
_FIELD: Final = re.compile(r"\"answer\":\s*(\"(?:[^\"\\\n]|\\.){0,2000}\")")
_ANSWER: Final = re.compile(
    r"^assert \w+\(.*\) == (?P<a>[^\n`]+)|\[ANSWER\]\s*(?P<b>[^\n]+?)\s*\[/ANSWER\]",
    re.MULTILINE,
)


def verify_output(exchange: Exchange) -> Verdict | None:
    """Judge a reply that must say what Python code prints or returns; None for other requests.

    None also if the code cannot be computed or the answer is not clear.
    """
    request = exchange.request
    if not ("(" in request or "`" in request) or len(request) > MAX_REQUEST:
        return None
    if not _ASKS.search(request):
        return None
    if _WANTS_MORE.search(request) and "??" not in request:
        return None
    found = _CODE.search(request)
    if found is None:
        return _of_expression(exchange)
    code = found["a"] or found["b"]
    opened = _OPEN.search(code)
    tree = _parse_code(code[: opened.start()] if opened else code)
    if tree is None:
        return None
    evaluator = Evaluator(tree)
    try:
        if opened:
            return _judge_value(evaluator, opened["f"], opened["c"], exchange.reply)
        outside = request[: found.start()] + request[found.end() :]
        called = _CALL.search(outside)
        call = None if called is None else text_in_brackets(outside, called.end() - 1)
        if called is not None and call is not None and f"def {called['f']}(" in code:
            return _judge_value(evaluator, called["f"], call, exchange.reply)
        evaluator.run()
        return _judge_lines(evaluator.printed, exchange.reply)
    except (NotComputableError, RaisedError, RecursionError):
        return None


def _of_expression(exchange: Exchange) -> Verdict | None:
    """Judge the stated value of the only code in backticks, as in `What is len("abc") in Python`.

    None for other requests and what cannot be computed.
    """
    if "python" not in exchange.request.lower():
        return None
    codes = _INLINE.findall(exchange.request)
    tree = _parse_code(codes[0]) if len(codes) == 1 and re.search(r"[-+*/%(\[]", codes[0]) else None
    if tree is None or len(tree.body) != 1 or not isinstance(tree.body[0], ast.Expr):
        return None
    evaluator = Evaluator(tree)
    try:
        value = evaluator.value_of(tree.body[0].value)
    except (NotComputableError, RaisedError, RecursionError):
        return None
    printed = [repr(value)] if value is not None else evaluator.printed
    return _judge_lines(printed, exchange.reply)


def _parse_code(code: str) -> ast.Module | None:
    """Return the syntax tree of code; None if it does not parse."""
    tree = parse(code.strip("\n"))
    return None if isinstance(tree, str) else tree


def _judge_value(evaluator: Evaluator, name: str, call: str, reply: str) -> Verdict | None:
    """Judge a reply by the value of the call `name` with the arguments in `call`.

    An example is `(2, 3)`. None if the arguments are no literals or the reply's answer is not
    clear. Raises NotComputableError or RaisedError where the call has no value.
    """
    args = read_literal(f"({call[1:-1]},)") if call[1:-1].strip() else ()
    if not isinstance(args, tuple):
        return None
    evaluator.define()
    value = evaluator.call(name, list(args))
    answer = _answer(reply)
    if answer is None:
        return None
    read = read_literal(answer)
    is_right = answer.strip() in (str(value), repr(value), repr(value)[1:-1]) or (
        read is not None and type(read) is type(value) and is_same_value(value, read)
    )
    if not is_right and read is None and not isinstance(value, str):
        return None
    call_text = f"{name}{call}"[:80]
    return Verdict(is_right, f"{call_text} is {value!r:.80}", "code")


def _answer(reply: str) -> str | None:
    """Return the value that a reply states, as text: in JSON, after `==` in an assertion, or alone.

    None without one.
    """
    reply = reply[-MAX_REQUEST:]
    fields = _FIELD.findall(reply)
    if fields:
        try:
            answer = str(json.loads(fields[-1]))
        except ValueError:
            return None
        return answer.rpartition(" == ")[2] if answer.startswith("assert ") else answer
    found = list(_ANSWER.finditer(reply))
    if found:
        return (found[-1]["a"] or found[-1]["b"]).strip()
    text = reply.strip().strip("`* ")
    return text if len(reply) <= 80 and literal_at(text, 0) == text else None


def _judge_lines(lines: list[str], reply: str) -> Verdict | None:
    """Judge a reply by the lines that the code prints; right if its first block consists of them.

    Wrong if a line is missing. None for no line, more than 20, and any other reply.
    """
    lines = [line.strip() for line in lines if line.strip()]
    if not lines or len(lines) > 20:
        return None
    plain_reply = " ".join(reply.replace("`", " ").replace("*", " ").split())
    printed = ", ".join(lines)[:80]
    for line in dict.fromkeys(lines):
        plain = " ".join(line.replace("`", " ").replace("*", " ").split())
        if not re.search(rf"(?<![\w.]){re.escape(plain)}(?![\w]|\.\d)", plain_reply):
            return Verdict(False, f"the code prints {printed}", "code")
    block = re.search(r"```\w*\n(?P<b>.*?)\n?```|`(?P<i>[^`\n]+)`", reply, re.DOTALL)
    first = [] if block is None else (block["b"] or block["i"] or "").splitlines()
    if [line.strip() for line in first if line.strip()] == lines:
        return Verdict(True, f"the code prints {printed}", "code")
    return None
