"""The syntax trees of Python code, and code that need not parse: sessions, excerpts, diffs."""

from __future__ import annotations

import ast
import re
import threading
import warnings
from functools import lru_cache
from typing import Any, Final

AnyFunction = ast.FunctionDef | ast.AsyncFunctionDef
Assigned = dict[str, list[ast.expr]]
MAX_DEPTH: Final = 60  # nested brackets; the parser of Python is recursive
_LOCK: Final = threading.Lock()

# Lines of a session, a notebook, a template, a traceback or a sketch.
_SKETCH: Final = re.compile(
    r"^[ \t]*(?:>>>|\$ |%|!\w|\.\.\.\s|In \[\d*\]:|Out\[\d*\]:|\.\.\.$|…|pip3? install|python3? \S"
    r"|Traceback \(most recent call last\)|File \"<?\w+>?\", line \d|@@ |diff --git |--- \S"
    r"|\+\+\+ \S|\w+Error: |\?\w|\w+\?\??$)"
    r"|^[ \t]*#+ *(?:\.\.\.|…)|<[A-Za-z_][A-Za-z_ -]*>|…|\{%|%\}|\[\.\.\.\]",
    re.MULTILINE,
)
_DIFF_LINE: Final = re.compile(r"^[-+](?![-+\d.])[ \t]*\S", re.MULTILINE)
_HEADER: Final = re.compile(
    r"(?:async +)?(?:def|class|for|while|if|elif|else|try|except|finally|with|match|case)\b.*:"
    r"[ \t]*(?:#.*)?$"
)
_GOES_ON: Final = re.compile(r"(?:elif|else|except|finally|case)\b.*:")
_MORE: Final = re.compile(r"\.\.\.[ \t]*[)\]},;]?[ \t]*(?:#.*)?$|,[ \t]*\.\.\.[ \t]*\w")
_NEWER: Final = re.compile(  # syntax of Python 3.12 and later, which older versions cannot parse
    r"^[ \t]*(?:(?:async +)?def|class) +\w+\[|^[ \t]*type +\w+(?:\[[^\]\n]*\])? *="
    r"|\bexcept +\w[\w.]*(?:, *\w[\w.]*)+ *:|\bt[\"']",
    re.MULTILINE,
)
_INDENT: Final = re.compile(r"[ \t]*")


@lru_cache(maxsize=16)
def parse(code: str) -> ast.Module | str:
    """Return the syntax tree of code, or as a text the reason why it does not parse.

    The reason is empty if it is not clear whether the code parses, as for deeply nested code.
    """
    if _depth(code) > MAX_DEPTH or re.search(
        r"[-+~]{50}|(?:not\s+){50}|(?:\*\*\s*-?\w+\s*){30}|"
        r"(?:\.\w+){80}|(?:lambda[^:\n]{0,20}:\s*){30}",
        code,
    ):
        return ""
    try:
        with _LOCK, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(code)
    except SyntaxError as error:
        line = f" in line {error.lineno}" if error.lineno else ""
        return f"the Python code does not parse: {error.msg}{line}"
    except (ValueError, RecursionError, MemoryError):
        return ""


def read_literal(text: str) -> Any:
    """Return the value of a literal of Python, such as `[1, "a"]`; None for any other text.

    `None` gives None too.
    """
    try:
        with _LOCK, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None


@lru_cache(maxsize=16)
def all_nodes(tree: ast.Module) -> tuple[ast.AST, ...]:
    """Return all nodes of a program, level by level; results are kept."""
    return tuple(ast.walk(tree))


@lru_cache(maxsize=64)
def own_nodes(function: AnyFunction) -> tuple[ast.AST, ...]:
    """Return the nodes of a function's body, without the insides of functions and classes in it."""
    waiting: list[ast.AST] = [*reversed(function.body)]
    found: list[ast.AST] = []
    while waiting:
        node = waiting.pop()
        found.append(node)
        if not isinstance(node, AnyFunction | ast.ClassDef | ast.Lambda):
            waiting += reversed(list(ast.iter_child_nodes(node)))
    return tuple(found)


def call_of(node: ast.AST | None) -> tuple[ast.expr | None, str] | None:
    """Return (owner, name) of a call: of `a.b()` the node of `a` and `b`.

    The owner is None for `f()`. None for anything but a call of a name or attribute.
    """
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Attribute):
        return node.func.value, node.func.attr
    return (None, node.func.id) if isinstance(node.func, ast.Name) else None


def is_call_to(node: ast.AST | None, name: str) -> bool:
    """Return whether a node calls the function `name` directly, as `len(x)` calls `len`."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def names_in(node: ast.AST) -> set[str]:
    """Return the identifiers of all variables that a node uses or assigns."""
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def text_of(node: ast.AST) -> str:
    """Return the source of a node, cut to 200 characters."""
    return ast.unparse(node)[:200]


def assignments(node: ast.AST) -> Assigned:
    """Return the values that statements such as `x = 1` in a node assign to each name, in order."""
    found: Assigned = {}
    for each in ast.walk(node):
        if isinstance(each, ast.Assign):
            for target in each.targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(each.value)
    return found


def is_sketch(code: str) -> bool:
    """Return whether code is a session such as `>>> 1 + 1`, a sketch with gaps, or a diff."""
    return _SKETCH.search(code) is not None or len(_DIFF_LINE.findall(code)) > 1


def is_excerpt(code: str) -> bool:
    """Return whether code that does not parse is a piece of a program, such as a lone header.

    An excerpt begins with the second half of a statement, leaves out a body or replaces it by a
    comment, or has an ellipsis for omitted parts.
    """
    lines = [line.rstrip() for line in code.splitlines() if line.strip()]
    if not lines or _GOES_ON.match(lines[0]):
        return True
    if any(_MORE.search(line) for line in lines):
        return True
    return any(_has_no_body(lines, at) for at, line in enumerate(lines) if _is_header(line))


def may_be_newer(code: str, reason: str) -> bool:
    """Return whether code that does not parse may be valid in a later version of Python.

    `reason` is the parser's message. An example is `def first[T](x: T)`.
    """
    return "f-string" in reason or _NEWER.search(code) is not None


def _is_header(line: str) -> bool:
    """Return whether a line is the header of a statement with a body, such as `if x:`."""
    return _HEADER.match(line.lstrip()) is not None


def _has_no_body(lines: list[str], at: int) -> bool:
    """Return whether the header at line `at` is followed by no statement of its own.

    True if the next line that is no comment is no deeper and is another header or part of its
    statement (`else:`), or any such line after a comment, or if there is none. `lines` have no
    blank ones; the 39 lines after the header are read.
    """
    own = _indentation(lines[at])
    has_comment = False
    for line in lines[at + 1 : at + 40]:
        if line.lstrip().startswith("#"):
            has_comment = True
            continue
        if _indentation(line) > own:
            return False
        return has_comment or _GOES_ON.match(line.lstrip()) is not None or _is_header(line)
    return True


def _indentation(line: str) -> int:
    """Return the width of a line's indentation in columns.

    A tab goes to the next multiple of 4.
    """
    found = _INDENT.match(line)
    return len(found[0].expandtabs(4)) if found else 0


def _depth(code: str) -> int:
    """Return the deepest nesting of brackets in code."""
    depth = deepest = 0
    for character in code:
        if character in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in ")]}":
            depth = max(0, depth - 1)
    return deepest
