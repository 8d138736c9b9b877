"""Bugs of Python code that its syntax tree shows, for any purpose of the code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from calibrator.readers.evidence.computed.programs.syntax import (
    AnyFunction,
    Assigned,
    all_nodes,
    assignments,
    call_of,
    is_call_to,
    own_nodes,
    text_of,
)
from calibrator.readers.evidence.finding import MAX_SHIFT, Finding

_REMOVING: Final = frozenset({"remove", "pop", "insert", "discard", "popitem"})
# Methods that return a new value and change nothing.
_PURE: Final = frozenset({"strip", "lstrip", "rstrip", "lower", "upper", "title", "capitalize"})
_NUMBERS: Final = frozenset({"len", "int", "sum", "round", "float"})
_METHODS: Final = {
    "a list": frozenset({"push", "length", "size", "add", "keys", "append_all", "addAll", "put"}),
    "a dict": frozenset({"append", "push", "add", "has_key", "length", "put", "containsKey"}),
    "a set": frozenset({"append", "push", "length", "extend", "insert", "has"}),
}


def certain_bug(reason: str) -> Finding:
    """Return a finding that proves the reply wrong, for this reason."""
    return Finding(False, -MAX_SHIFT, reason)


def general_bugs(tree: ast.Module) -> Iterator[Finding]:
    """Yield the bugs that a program's syntax tree shows, whatever the program is for."""
    for node in all_nodes(tree):
        if isinstance(node, ast.For):
            yield from _changed_while_iterated(node)
            yield from _not_iterable(node)
        elif isinstance(node, AnyFunction):
            yield from _recursion(node)
            yield from _wrong_methods(node)
            yield from _shared_rows(node)
            values = assignments(node)
            yield from _fractional_index(node, values)
            yield from _text_compared(node, values)
        elif isinstance(node, ast.Assign | ast.Return):
            yield from _value_of_in_place(node)
        elif isinstance(node, ast.Expr):
            yield from _find_discarded(node)
        elif isinstance(node, ast.If | ast.IfExp):
            yield from _always_true(node.test)
        elif isinstance(node, ast.BinOp):
            yield from _text_plus_number(node)
        elif isinstance(node, ast.Subscript):
            yield from _past_the_end(node)
        elif isinstance(node, ast.Call):
            yield from _short_range(node)
        elif isinstance(node, ast.Try):
            yield from _hidden_handler(node)
    yield from _coroutines(tree)


def _changed_while_iterated(loop: ast.For) -> Iterator[Finding]:
    """Find a removal from the collection that a loop goes through, as `items.remove(x)` or `del`.

    The loop may go through its `keys()`, `values()` or `items()` too. Yields one finding at most,
    and none if the loop is left after the change.
    """
    source = loop.iter
    view = call_of(source)
    is_view = view is not None and view[1] in ("keys", "items", "values") and view[0] is not None
    owner = view[0] if view is not None and is_view else source
    if not isinstance(owner, ast.Name | ast.Attribute):
        return
    name = text_of(owner)
    for body, at, statement in _statements(loop.body):
        changed = ""
        called = call_of(statement.value) if isinstance(statement, ast.Expr) else None
        if called and called[0] is not None and text_of(called[0]) == name:
            changed = called[1] if called[1] in _REMOVING else ""
        elif isinstance(statement, ast.Delete):
            target = statement.targets[0]
            if isinstance(target, ast.Subscript) and text_of(target.value) == name:
                changed = "del"
        leaves = any(isinstance(each, ast.Break | ast.Return | ast.Raise) for each in body[at:])
        if changed and not leaves:
            yield certain_bug(f"{name} is changed while the loop goes through it")
            return


def _statements(body: list[ast.stmt]) -> Iterator[tuple[list[ast.stmt], int, ast.stmt]]:
    """Yield (block, index, statement) of each statement, nested ones included.

    Functions and classes inside are not entered.
    """
    for at, statement in enumerate(body):
        yield body, at, statement
        if isinstance(statement, AnyFunction | ast.ClassDef):
            continue
        for part in ("body", "orelse", "finalbody"):
            inner = getattr(statement, part, None)
            if isinstance(inner, list):
                yield from _statements(inner)


def _not_iterable(loop: ast.For) -> Iterator[Finding]:
    """Find a loop over a number, such as `for i in len(items):`."""
    if is_call_to(loop.iter, "len") or (
        isinstance(loop.iter, ast.Constant) and isinstance(loop.iter.value, int)
    ):
        yield certain_bug(f"the loop goes through a number: {text_of(loop.iter)}")


def _recursion(function: AnyFunction) -> Iterator[Finding]:
    """Find a generator's own call without `yield from`, and a function that always calls itself."""
    name = function.name
    nodes = own_nodes(function)
    for node in nodes:
        if isinstance(node, ast.Yield) and node.value is not None and is_call_to(node.value, name):
            yield certain_bug(f"{name} yields a generator; it needs yield from")
    is_generator = any(isinstance(node, ast.Yield | ast.YieldFrom) for node in nodes)
    for node in nodes:
        if is_generator and isinstance(node, ast.Expr) and is_call_to(node.value, name):
            yield certain_bug(f"the call of the generator {name} has no effect")
    branches = (ast.If, ast.For, ast.While, ast.Try, ast.Match, ast.With, ast.AsyncFor)
    for statement in function.body:
        if isinstance(statement, branches) or is_generator or function.decorator_list:
            return
        if isinstance(statement, AnyFunction | ast.ClassDef | ast.Assert):
            continue
        lazy = (ast.IfExp, ast.BoolOp, ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.SetComp)
        inner = list(ast.walk(statement))
        if any(isinstance(node, (*lazy, ast.DictComp, ast.Await)) for node in inner):
            return
        if any(is_call_to(node, name) for node in inner):
            yield certain_bug(f"{name} calls itself without end")
            return
        if isinstance(statement, ast.Return | ast.Raise):
            return


def _value_of_in_place(node: ast.Assign | ast.Return) -> Iterator[Finding]:
    """Find uses of what an in-place method returns, such as `x = items.sort()`, which is None."""
    called = call_of(node.value) if node.value is not None else None
    if called is None or not isinstance(node.value, ast.Call):
        return
    owner, method = called
    if isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Name):
        return
    if owner is None:
        return
    if method in ("sort", "reverse") and not node.value.args:
        if {each.arg for each in node.value.keywords} <= {"key", "reverse"}:
            yield certain_bug(f"{text_of(owner)}.{method}() returns None")
    elif method == "shuffle" and text_of(owner) == "random":
        yield certain_bug("random.shuffle() returns None")


def _find_discarded(statement: ast.Expr) -> Iterator[Finding]:
    """Find a value or comparison that nothing uses, such as the line `name.strip()` or `x == 3`."""
    value = statement.value
    if isinstance(value, ast.Compare):
        if len(value.ops) == 1 and isinstance(value.ops[0], ast.Eq):
            yield Finding(None, -1.0, f"the comparison {text_of(value)} has no effect")
        return
    called = call_of(value)
    if called is None or not isinstance(value, ast.Call):
        return
    owner, method = called
    if owner is None:
        if method in ("sorted", "reversed") and value.args:
            yield Finding(None, -1.5, f"the result of {method}() is not used")
        return
    is_plain = not value.keywords and not isinstance(owner, ast.Call)
    is_replacing = method == "replace" and len(value.args) == 2 and text_of(owner) != "os"
    if is_plain and ((method in _PURE and len(value.args) < 2) or is_replacing):
        yield Finding(None, -2.0, f"the result of .{method}() is not used")


def _always_true(test: ast.expr) -> Iterator[Finding]:
    """Find conditions such as `x == "a" or "b"`, one finding for each constant that is true."""
    if not isinstance(test, ast.BoolOp) or not isinstance(test.op, ast.Or):
        return
    is_compared = any(isinstance(each, ast.Compare) for each in test.values)
    for each in test.values:
        if is_compared and isinstance(each, ast.Constant) and each.value:
            yield certain_bug(f"the condition is always true because of {text_of(each)}")


def _text_plus_number(node: ast.BinOp) -> Iterator[Finding]:
    """Find a text and a number that are added, such as `"n: " + len(items)`."""
    if not isinstance(node.op, ast.Add):
        return
    for text, number in ((node.left, node.right), (node.right, node.left)):
        is_text = isinstance(text, ast.Constant) and isinstance(text.value, str)
        if is_text and any(is_call_to(number, name) for name in _NUMBERS):
            yield certain_bug(f"a text and a number are added: {text_of(node)}")


def _past_the_end(node: ast.Subscript) -> Iterator[Finding]:
    """Find an element at the length of its own list, such as `items[len(items)]`."""
    if isinstance(node.ctx, ast.Load) and is_call_to(node.slice, "len"):
        call = node.slice
        if isinstance(call, ast.Call) and text_of(call.args[0]) == text_of(node.value):
            yield certain_bug(f"{text_of(node)} is past the end")


def _short_range(call: ast.Call) -> Iterator[Finding]:
    """Find ranges that end one step early, and ranges with a fraction.

    Examples are `range(0, len(x) - size, size)` and `range(n / 2)`.
    """
    if not is_call_to(call, "range"):
        return
    if any(isinstance(a, ast.BinOp) and isinstance(a.op, ast.Div) for a in call.args):
        yield certain_bug(f"range() gets a fraction: {text_of(call)}")
    if len(call.args) != 3:
        return
    end, step = call.args[1], call.args[2]
    if (
        isinstance(end, ast.BinOp)
        and isinstance(end.op, ast.Sub)
        and is_call_to(end.left, "len")
        and isinstance(step, ast.Name)
        and text_of(end.right) == step.id
    ):
        yield certain_bug(f"{text_of(call)} leaves out the last part")


def _hidden_handler(node: ast.Try) -> Iterator[Finding]:
    """Find an `except` that follows `except Exception` and is never reached; at most one."""
    for handler, later in zip(node.handlers, node.handlers[1:], strict=False):
        if handler.type is not None and text_of(handler.type) in ("Exception", "BaseException"):
            if later.type is not None and text_of(later.type) != "BaseException":
                yield certain_bug(f"except {text_of(later.type)} is never reached")
            return


def _wrong_methods(function: AnyFunction) -> Iterator[Finding]:
    """Find methods that lists, dicts or sets lack, such as `items = []` with `items.push(1)`.

    Only for variables that have one type in the function.
    """
    kinds: dict[str, set[str]] = {}
    for node in own_nodes(function):
        targets: list[ast.expr] = []
        value: ast.expr | None = None
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign):
            targets, value = [node.target], node.value
        elif isinstance(node, ast.For | ast.comprehension | ast.AugAssign | ast.NamedExpr):
            targets = [node.target]
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            targets = [node.optional_vars]
        for target in targets:
            for each in ast.walk(target):
                if isinstance(each, ast.Name):
                    kinds.setdefault(each.id, set()).add(_kind(value, target is each))
    for node in own_nodes(function):
        if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)):
            continue
        kind = kinds.get(node.value.id, set())
        if len(kind) == 1 and node.attr in _METHODS.get(next(iter(kind)), ()):
            yield certain_bug(f"{next(iter(kind))} has no {node.attr}")


def _kind(value: ast.expr | None, is_whole: bool) -> str:
    """Return the type of a literal or constructor call: `a list`, `a dict`, `a set`, or empty.

    Empty also if the target is only a part of the assignment (not `is_whole`).
    """
    if not is_whole:
        return ""
    if isinstance(value, ast.List | ast.ListComp) or is_call_to(value, "list"):
        return "a list"
    if isinstance(value, ast.Dict | ast.DictComp) or is_call_to(value, "dict"):
        return "a dict"
    if isinstance(value, ast.Set | ast.SetComp) or is_call_to(value, "set"):
        return "a set"
    return ""


def _fractional_index(function: AnyFunction, values: Assigned) -> Iterator[Finding]:
    """Find an index that is the result of `/` by a constant, such as `items[n / 2]`.

    `values` are the function's assignments by name.
    """
    for node in own_nodes(function):
        if not isinstance(node, ast.Subscript):
            continue
        index: ast.expr = node.slice
        assigned = values.get(index.id, []) if isinstance(index, ast.Name) else [index]
        if (
            assigned
            and all(isinstance(v, ast.BinOp) and isinstance(v.op, ast.Div) for v in assigned)
            and isinstance(node.value, ast.Name)
            and node.value.id not in values
        ):
            first = assigned[0]
            if isinstance(first, ast.BinOp) and isinstance(first.right, ast.Constant):
                yield certain_bug(f"the index is a fraction: {text_of(first)}")
                return


def _shared_rows(function: AnyFunction) -> Iterator[Finding]:
    """Find a grid whose rows are the same list: `g = [[0] * 3] * 3` with `g[0][1] = 5`."""
    grids: set[str] = set()
    for node in own_nodes(function):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.BinOp):
            continue
        value = node.value
        if isinstance(value.op, ast.Mult) and isinstance(value.left, ast.List):
            inner = value.left.elts[:1]
            is_row = bool(inner) and (
                isinstance(inner[0], ast.List | ast.Dict | ast.Set)
                or (
                    isinstance(inner[0], ast.BinOp)
                    and isinstance(inner[0].op, ast.Mult)
                    and isinstance(inner[0].left, ast.List)
                )
            )
            grids |= {each.id for each in node.targets if is_row and isinstance(each, ast.Name)}
    for node in own_nodes(function):
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Subscript)
            and isinstance(node.value.value, ast.Name)
            and node.value.value.id in grids
        ):
            yield certain_bug(f"all rows of {node.value.value.id} are the same list")
            return


def _text_compared(function: AnyFunction, values: Assigned) -> Iterator[Finding]:
    """Find typed text compared with a number: `age = input()` with `age > 17`.

    `values` are the function's assignments by name.
    """
    for node in own_nodes(function):
        if not (isinstance(node, ast.Compare) and isinstance(node.left, ast.Name)):
            continue
        typed = values.get(node.left.id, [])
        other = node.comparators[0]
        is_number = isinstance(other, ast.Constant) and isinstance(other.value, int | float)
        if typed and is_number and all(is_call_to(each, "input") for each in typed):
            yield certain_bug(f"the typed text {node.left.id} is compared with a number")
            return


def _coroutines(tree: ast.Module) -> Iterator[Finding]:
    """Find calls of coroutines as statements without `await`, such as `asyncio.sleep(1)`."""
    own = {node.name for node in all_nodes(tree) if isinstance(node, ast.AsyncFunctionDef)}
    plain = {node.name for node in all_nodes(tree) if isinstance(node, ast.FunctionDef)}
    for node in all_nodes(tree):
        if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
            continue
        name = text_of(node.value.func)
        if name in own - plain or name in ("asyncio.sleep", "asyncio.gather"):
            yield certain_bug(f"{name}() is not awaited")
