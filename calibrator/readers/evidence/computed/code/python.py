"""The checks of Python in a reply: its syntax, its names, and the requested function.

The code is parsed and never executed or imported.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from pyflakes import messages
from pyflakes.checker import Checker

from calibrator.readers.evidence.computed.basics.verdict import MAX_TEXT, Exchange, Verdict
from calibrator.readers.evidence.computed.basics.word_lists import word_set
from calibrator.readers.evidence.computed.code.python_bugs import general_bugs
from calibrator.readers.evidence.computed.code.python_habits import habit_bugs
from calibrator.readers.evidence.computed.programs.examples import example_bugs
from calibrator.readers.evidence.computed.programs.syntax import (
    AnyFunction,
    all_nodes,
    assignments,
    is_excerpt,
    is_sketch,
    may_be_newer,
    names_in,
    parse,
    text_of,
)
from calibrator.readers.evidence.finding import MAX_SHIFT, Finding

_QUICK: Final = frozenset(("python", "def", "numpy", "pandas"))
_WANTED: Final = re.compile(
    r"\b(?:write|implement|create|give|complete|define|make|code|provide|need|fix|correct|rewrite"
    r"|refactor|finish|generate|develop|show|return|schreibe?|implementiere|escribe|crea|écris|can"
    r" you|could you|how (?:do|can|would) i|please|bitte|por favor)\b"
    r"|^\W*(?:(?:in|a|an) )?python\b",
    re.IGNORECASE,
)
_PROGRAM: Final = re.compile(
    r"\b(?:write|implement|create|complete|define|make|code|fix|correct|develop|finish|generate"
    r"|need|schreibe?|implementiere"
    r"|escribe|crea|écris)\b[^.?!\n]{0,80}\b(?:function|program|script|class|code|method"
    r"|(?:python-?)?(?:funktion|programm|skript)|función|programa|fonction|programme)\b",
    re.IGNORECASE,
)
_EXISTING: Final = re.compile(  # the reply may be a part of code that the user has
    r"\b(?:my|our|this|the|an?|existing|above|following) (?:\w+ ){0,2}(?:app|application|project"
    r"|codebase|code base|class|view|model|module|server|bot|pipeline|notebook|route|blueprint"
    r"|snippet|method|decorator)\b|\b(?:add|insert|extend|plug|hook)\b[^.?!\n]{0,60}\b(?:to|into)\b"
    r"|\b(?:hint|snippet|sketch|skeleton|outline|just the|only the)\b",
    re.IGNORECASE,
)
_WRITE_FUNCTION: Final = (
    r"\b(?:write|implement|create|define|make|complete|schreibe|implementiere|escribe|crea|écris)\b"
    r"[^.\n]{0,60}\b(?:function|funktion|función|fonction)\s+"
)
_NAMED: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\b(?:function|class|funktion|función|fonction|method)\s*,?\s*(?:called|named|with the"
        r" name"
        r"|namens|llamad[ao]|nommée|appelée)\s*:?\s*[`\"']?(?P<n>[A-Za-z_]\w*)(?P<a>\([^"
        r"()\n]{0,200}\))?",
        _WRITE_FUNCTION + r"[`\"']?(?P<n>[A-Za-z_]\w*)(?P<a>\([^()\n]{0,200}\))",
        _WRITE_FUNCTION + r"`(?P<n>[A-Za-z_]\w*)(?P<a>\([^()\n]{0,200}\))?`",
    )
)
_FENCE: Final = re.compile(r"^[ \t]*(?P<f>```+|~~~+)[ \t]*(?P<lang>[\w+#.-]*)[^\n]*$", re.MULTILINE)
_CODE: Final = re.compile(
    r"^(?:def |class |import |from \w+ import |async def |@\w|for .+:$|while .+:$|if .+:$|print\("
    r"|return |lambda )",
    re.MULTILINE,
)
_MODULES: Final = word_set(
    "math re os sys json random datetime time itertools functools collections string np pd plt"
    " Counter"
    " defaultdict deque heapq bisect copy statistics operator requests subprocess pathlib Path"
    " reduce sqrt"
    " Decimal Fraction"
)
_NAMES_PYTHON: Final = re.compile(r"\bpython\b|\bdef \w+\(", re.IGNORECASE)
_OTHER_PYTHON: Final = re.compile(
    r"\bpython ?2\b|\bjupyter\b|\bipython\b|pseudo-?code", re.IGNORECASE
)

# Names that notebooks and exercise runners provide.
_PROVIDED: Final = word_set(
    "List Dict Tuple Optional Set Union Any Callable Iterable Iterator Sequence"
    " self cls reveal_type display _ __annotations__ __spec__ __package__"
)
_MISTAKES: Final = (
    messages.AssertTuple,
    messages.BreakOutsideLoop,
    messages.ContinueOutsideLoop,
    messages.DuplicateArgument,
    messages.IfTuple,
    messages.IsLiteral,
    messages.MultiValueRepeatedKeyLiteral,
    messages.PercentFormatMissingArgument,
    messages.PercentFormatPositionalCountMismatch,
    messages.RaiseNotImplemented,
    messages.ReturnOutsideFunction,
    messages.StringDotFormatMissingArgument,
    messages.UndefinedLocal,
    messages.YieldOutsideFunction,
)


def verify_python(exchange: Exchange) -> Verdict | None:
    """Judge the Python code of a reply to a request for code; only a fault is returned, else None.

    Faults are an unclosed block, an error of syntax, and a function that lacks the requested name,
    parameters or `return`.
    """
    reply = exchange.reply[:MAX_TEXT]
    request = exchange.request[:MAX_TEXT]
    is_named = bool(_QUICK & exchange.vocabulary) and bool(
        _NAMES_PYTHON.search(f"{exchange.conversation.rules[:MAX_TEXT]}\n{request}")
    )
    if not is_named and "```py" not in reply:
        return None
    if not _WANTED.search(request) or _OTHER_PYTHON.search(request):
        return None
    fences = list(_FENCE.finditer(reply))
    if len(fences) % 2 and len(exchange.reply) <= MAX_TEXT and _PROGRAM.search(request):
        return Verdict(False, "a code block is not closed", "python")
    blocks = python_blocks(reply, fences)
    if not blocks:
        return None
    fault = fault_of(blocks, request)
    return Verdict(False, fault, "python") if fault else None


def python_blocks(reply: str, fences: list[re.Match[str]]) -> list[str]:
    """Return the Python blocks of a reply.

    `fences` are the matches of its opening and closing marks. Blocks without a label count if they
    look like Python. A reply without fences may be one block itself.
    """
    blocks: list[str] = []
    for opening, closing in zip(fences[::2], fences[1::2], strict=False):
        lang = opening["lang"].casefold()
        code = reply[opening.end() : closing.start()]
        if lang in ("python", "py", "python3") or (not lang and _CODE.search(code)):
            blocks.append(code.strip("\n"))
    line = reply.strip()
    if (
        not fences
        and "\n" not in line
        and re.match(r"^[\w.]+(?:\(|\s=\s|\[)|^\[.*for ", line)
        and len(line) < 200
    ):
        blocks.append(line)
    if not fences and re.match(
        r"^\s*(?:def |class |import |from \w+ import |async def |@\w+)", reply
    ):
        blocks.append(reply)
    return blocks


def fault_of(blocks: list[str], request: str) -> str | None:
    """Describe the first fault of the requested code, or return None.

    An example is `there is no function area`. `request` is the request. None also if a block is a
    sketch or a session and not meant to run.
    """
    trees: list[ast.Module] = []
    for code in blocks:
        if is_sketch(code):
            return None
        tree = parse(code)
        if isinstance(tree, str):
            return _syntax_fault(code, tree, blocks) if tree else None
        trees.append(tree)
    wanted, parameters = wanted_name(request)
    defined = {
        node.name
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    is_class = any(isinstance(node, ast.ClassDef) for tree in trees for node in tree.body)
    if is_class and "class" not in request.casefold():
        wanted = None  # the form of exercise sites
    if wanted and wanted not in defined and defined and not _is_assigned(trees, wanted):
        return f"there is no function {wanted}"
    if wanted and parameters is not None:
        fault = _parameter_fault(trees, wanted, parameters)
        if fault:
            return fault
    is_program = bool(_PROGRAM.search(request)) and not _EXISTING.search(request)
    if is_program and (missing := _missing_names(blocks, request)):
        return f"the name {missing[0]} is not defined"
    return _return_fault(trees, request, wanted)


def _syntax_fault(code: str, reason: str, blocks: list[str]) -> str | None:
    """Return `reason`, the parser's message for `code`, or None if the block may be an excerpt.

    None also for syntax of newer versions, and for one of several blocks without any definition or
    import.
    """
    if len(blocks) > 1 and not re.search(r"^(?:def|class|import|from) ", code, re.MULTILINE):
        return None
    if not _is_at_margin(code) or is_excerpt(code) or may_be_newer(code, reason):
        return None
    return reason


def _is_at_margin(code: str) -> bool:
    """Return whether code begins without indentation; True for empty code."""
    return not code[:1].isspace() or not code.strip()


def wanted_name(request: str) -> tuple[str | None, int | None]:
    """Return the name of the requested function or class and the number of its parameters.

    `Write a function area(w, h)` gives ("area", 2); `self` is not counted. Both are None if nothing
    is named, or if the text speaks of `functions`, `methods` or `classes`. The number is None
    without parentheses, for empty ones, and if there is a `*`, `[` or `.` in them.
    """
    found = next((match for pattern in _NAMED if (match := pattern.search(request))), None)
    if not found:
        return None, None
    others = re.findall(r"\b(?:functions|methods|classes)\b", request)
    if others:
        return None, None
    if not found["a"]:
        return found["n"], None
    inner = found["a"][1:-1].strip()
    if not inner or "*" in inner or "[" in inner or "." in inner:
        return found["n"], None
    return found["n"], len(
        [part for part in inner.split(",") if part.strip() and part.strip() != "self"]
    )


def _is_assigned(trees: Iterable[ast.Module], name: str) -> bool:
    """Return whether a name occurs as a variable in one of the programs."""
    return any(
        isinstance(node, ast.Name) and node.id == name for tree in trees for node in ast.walk(tree)
    )


def _parameter_fault(trees: Iterable[ast.Module], name: str, count: int) -> str | None:
    """Describe that the function `name` cannot take `count` arguments, or return None.

    None also without such a function and for one with `*args`, `**kwargs` or keyword-only
    parameters.
    """
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name == name:
                arguments = node.args
                names = [
                    each.arg
                    for each in (*arguments.posonlyargs, *arguments.args)
                    if each.arg not in ("self", "cls")
                ]
                required = len(names) - len(arguments.defaults)
                if arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
                    return None
                if not required <= count <= len(names):
                    return f"{name} takes {len(names)} parameters, not {count}"
    return None


def _missing_names(blocks: list[str], request: str) -> list[str]:
    """Return undefined names that make the code fail; empty if it does not parse.

    They are known modules without an import, such as `math`, and names that functions or loops over
    a call use and the request `request` does not mention.
    """
    whole = parse("\n\n".join(blocks))
    if isinstance(whole, str):
        return []
    missing = []
    loops = {id_ for node in ast.walk(whole) for id_ in _loop_names(node)}
    for name, is_in_function in undefined_names(whole).items():
        if name in _MODULES:
            if not re.search(rf"\bimport\b[^\n]*\b{re.escape(name)}\b", request):
                missing.append(name)
        elif (is_in_function or name in loops) and not _is_mentioned(name, request):
            missing.append(name)
    return missing


def _loop_names(node: ast.AST) -> set[str]:
    """Return all names in the body of a `for` loop over a call, such as `for row in reader():`.

    Empty for any other node.
    """
    if not isinstance(node, ast.For) or not isinstance(node.iter, ast.Call):
        return set()
    return {
        each.id
        for statement in node.body
        for each in ast.walk(statement)
        if isinstance(each, ast.Name)
    }


def _is_mentioned(name: str, request: str) -> bool:
    """Return whether a request mentions a name as something that exists.

    An example is `the list prices`.
    """
    plain = re.escape(name)
    return bool(
        re.search(
            rf"[`'\"]{plain}\b|\b{plain}\s*[(=\[.:]|\b(?:called|named|variable|list|dict"
            r"|dictionary|dataframe"
            rf"|class|function|module|object|constant|global)\s+{plain}\b|\b{plain}\s+(?:function"
            r"|class|module|variable)\b",
            request,
        )
    )


def _return_fault(trees: Iterable[ast.Module], request: str, wanted: str | None) -> str | None:
    """Describe that the only function lacks the `return` that the request wants.

    None if there is no such fault, also if it yields or raises, or is not the function `wanted`.
    """
    if not re.search(
        r"\bfunction\b[^.\n]{0,120}\b(?:that |which |and |to"
        r" )?returns?\b",
        request,
        re.IGNORECASE,
    ):
        return None
    if re.search(r"\breturns? (?:nothing|none)\b", request, re.IGNORECASE):
        return None
    functions = [node for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)]
    if len(functions) != 1 or (wanted and functions[0].name != wanted):
        return None
    kinds = (ast.Return, ast.Yield, ast.YieldFrom)
    if any(isinstance(node, kinds) for node in ast.walk(functions[0])):
        return None
    if any(isinstance(node, ast.Raise) for node in ast.walk(functions[0])):
        return None
    return f"{functions[0].name} returns nothing"


def python_bugs(code: str, request: str, reply: str = "") -> list[Finding]:
    """Return the findings against Python code; empty if it does not parse.

    `reply` is the text around the code; examples in it and in the request are compared with the
    code.
    """
    tree = parse(code)
    if isinstance(tree, str):
        return []
    try:
        return [
            *(Finding(False, -MAX_SHIFT, mistake) for mistake in mistakes(tree)),
            *general_bugs(tree),
            *search_bugs(tree),
            *habit_bugs(tree, request),
            *example_bugs(tree, request, reply),
        ]
    except RecursionError:
        return []


@lru_cache(maxsize=16)
def flakes(tree: ast.Module) -> tuple[messages.Message, ...]:
    """Return the messages of pyflakes about a program; empty if pyflakes fails on it.

    The results of 16 calls are kept.
    """
    try:
        return tuple(Checker(tree, builtins=_PROVIDED).messages)
    except (RecursionError, ValueError, AttributeError, TypeError):
        return ()


def mistakes(tree: ast.Module) -> list[str]:
    """Return pyflakes' messages about mistakes in any program.

    An example is a `return` outside a function. Empty without any.
    """
    return [_words(each) for each in flakes(tree) if isinstance(each, _MISTAKES) and _words(each)]


def undefined_names(tree: ast.Module) -> dict[str, bool]:
    """Return the undefined names of a program, each with whether a function uses it."""
    functions = [
        (node.lineno, node.end_lineno or node.lineno)
        for node in all_nodes(tree)
        if isinstance(node, AnyFunction)
    ]
    inside = {line for first, last in functions for line in range(first, last + 1)}
    found: dict[str, bool] = {}
    for each in flakes(tree):
        if isinstance(each, messages.UndefinedName):
            name = str(each.message_args[0])
            found[name] = found.get(name, False) or each.lineno in inside
    return found


def _words(message: messages.Message) -> str:
    """Return a message of pyflakes as text with its line, at most 200 characters."""
    text = str(message.message % message.message_args)
    return f"{text} (line {message.lineno})"[:200]


def search_bugs(tree: ast.Module) -> Iterator[Finding]:
    """Yield the bugs of `while` loops that halve a range, as binary search does."""
    for node in all_nodes(tree):
        if isinstance(node, AnyFunction | ast.Module):
            for at, statement in enumerate(node.body):
                if isinstance(statement, ast.While):
                    yield from _of_loop(statement, node.body[at + 1 :])


def _of_loop(loop: ast.While, rest: list[ast.stmt]) -> Iterator[Finding]:
    """Yield the bug of one loop `while low < high:`; `rest` are the statements after it.

    It never ends (`low = middle`) or ends before the last element was compared.
    """
    test = loop.test
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1):
        return
    low, high = test.left, test.comparators[0]
    if not (isinstance(low, ast.Name) and isinstance(high, ast.Name)):
        return
    if not isinstance(test.ops[0], ast.Lt | ast.LtE):
        return
    values = assignments(loop)
    lows = {text_of(each) for each in values.get(low.id, [])}
    highs = {text_of(each) for each in values.get(high.id, [])}
    returns = any(isinstance(each, ast.Return) for each in ast.walk(loop))
    after = rest[0] if rest else None
    is_missed = isinstance(after, ast.Return) and after.value is not None and not names_in(after)
    for middle in _middles(values, {low.id, high.id}):
        if middle in lows and highs:
            yield Finding(False, -MAX_SHIFT, f"the loop does not end where {low.id} = {middle}")
        elif (
            isinstance(test.ops[0], ast.Lt)
            and (lows, highs) == ({f"{middle} + 1"}, {f"{middle} - 1"})
            and returns
            and is_missed
        ):
            reason = f"the search ends before its last element: while {text_of(test)}"
            yield Finding(False, -MAX_SHIFT, reason)


def _middles(values: dict[str, list[ast.expr]], bounds: set[str]) -> Iterator[str]:
    """Yield the names of variables assigned once, to the floor of half the sum of two bounds.

    An example is `mid = (low + high) // 2`. `values` are the loop's assignments by name, `bounds`
    the names.
    """
    for name, assigned in values.items():
        half = assigned[0]
        if isinstance(half, ast.BinOp) and isinstance(half.op, ast.Add):
            half = half.right  # low + (high - low) // 2
        if not (isinstance(half, ast.BinOp) and isinstance(half.op, ast.FloorDiv)):
            continue
        has_constant = any(isinstance(each, ast.Constant) for each in ast.walk(half.left))
        if names_in(half.left) == bounds and not has_constant and len(assigned) == 1:
            yield name
